package relay

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// Whatever passes our parser has for net/http the same method, target, headers
// and length: we refuse more, and read nothing in another way.
func FuzzHead(f *testing.F) {
	good := "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX-Api-Key: k\r\n\r\n"
	f.Add([]byte(good))
	for _, change := range [][2]string{
		{"\r\n", "\n"}, {"Content-Length: 2", "Transfer-Encoding: chunked"}, {"Host: a", "Host: a\r\nHost: b"},
		{"X-Api-Key:", "X-Api-Key :"}, {"X-Api-Key", " X-Api-Key"}, {"/v1/messages", "http://b/v1/messages"}, {"POST", "CONNECT"},
		{"1.1", "1.0"}, {"Length: 2", "Length: +2"}, {" a", "\ta"}, {"/v1/messages", "/v1/messages?beta=true"}, {"k", "\x00"},
		{"Content-Length: 2", "Content-Length: 2\r\nTransfer-Encoding: chunked"}, {"/v1", "//v1"}, {"POST ", "GET "},
	} {
		f.Add([]byte(strings.Replace(good, change[0], change[1], -1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := readHead(bufio.NewReaderSize(bytes.NewReader(text), lineBytes))
		if err != nil {
			if _, ok := errors.AsType[*route.Refusal](err); !ok && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return
		}
		if _, err := route.Match(h.method, h.target); err != nil || h.fields["host"] == "" {
			return
		}
		length, err := h.bodyLength(1 << 30)
		if err != nil {
			return
		}
		in := bufio.NewReader(bytes.NewReader(text))
		q, err := http.ReadRequest(in)
		if err != nil {
			if strings.Contains(err.Error(), "malformed Host") || strings.Contains(err.Error(), "invalid Host") {
				return // ours is compared with a list
			}
			t.Fatalf("%q: %v", text, err)
		}
		if q.Method != h.method || q.RequestURI != h.target || q.Host != h.fields["host"] {
			t.Fatalf("%q: %s %s %s", text, q.Method, q.RequestURI, q.Host)
		}
		if q.ContentLength != length {
			t.Fatalf("%q: %d, %d", text, q.ContentLength, length)
		}
		for name, values := range q.Header {
			if len(values) != 1 || values[0] != h.fields[strings.ToLower(name)] {
				t.Fatalf("%q: %s: %q", text, name, values)
			}
		}
		// What comes after the head is the same too.
		_, rest, _ := bytes.Cut(text, []byte("\r\n\r\n"))
		if left, _ := io.ReadAll(in); !bytes.Equal(left, rest) {
			t.Fatalf("%q: %q is left", text, left)
		}
	})
}
