package guard_test

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// A head is read the same in pieces of any size, and what is behind it is kept.
func TestAHeadInPieces(t *testing.T) {
	const head = "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"
	for piece := 1; piece <= len(head)+8; piece++ {
		got, rest, err := guard.ReadHeadFrom(head+"payload", piece, guard.MaxHeadBytes)
		if err != nil || got != head || !strings.HasPrefix("payload", string(rest)) {
			t.Fatalf("in pieces of %d: %q, %q, %v", piece, got, rest, err)
		}
	}
	exact := "CONNECT a.test:1 HTTP/1.1\r\nX: " + strings.Repeat("x", guard.MaxHeadBytes-34) + "\r\n\r\n"
	if got, _, err := guard.ReadHeadFrom(exact, 1000, guard.MaxHeadBytes); err != nil || len(got) != guard.MaxHeadBytes {
		t.Errorf("a head of %d bytes: %d, %v", len(exact), len(got), err)
	}
	if _, _, err := guard.ReadHeadFrom("CONNECT"+exact[6:], 1000, guard.MaxHeadBytes); err != nil && !errors.Is(err, policy.ReasonLimit) {
		t.Errorf("a head of %d bytes: %v", len(exact)+1, err)
	}
}

// FuzzHead: what is let through, net/http reads as the same request; and it is
// the same however it comes.
func FuzzHead(f *testing.F) {
	for _, head := range []string{
		connect("allowed.test:443"),
		"CONNECT allowed.test:443 HTTP/1.0\r\n\r\npayload",
		"CONNECT ALLOWED.test:443 HTTP/1.1\r\nhost:\t allowed.test \r\nX-A: b\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\nHost: allowed.test:443\n\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
		"CONNECT user@allowed.test:443 HTTP/1.1\r\nHost : a\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01", "\x05\x01\x00",
	} {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, text string) {
		head, rest, err := guard.ReadHeadFrom(text, len(text)+1, guard.MaxHeadBytes)
		slow, _, slowErr := guard.ReadHeadFrom(text, 1, guard.MaxHeadBytes)
		if (err == nil) != (slowErr == nil) || err == nil && head != slow {
			t.Fatalf("at once %q, %v; byte by byte %q, %v", head, err, slow, slowErr)
		}
		if err != nil {
			return
		}
		if !strings.HasPrefix(text, head+string(rest)) {
			t.Fatalf("%q became %q and %q", text, head, rest)
		}
		h, err := guard.ParseHead(head)
		if err == nil {
			err = h.Check()
		}
		if err != nil {
			return
		}
		target, err := policy.ParseTarget(h.Target)
		if err == nil {
			err = h.Agree(target)
		}
		if err != nil {
			return
		}
		other, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			t.Fatalf("%q is let through, and net/http says %v", head, err)
		}
		if other.Method != "CONNECT" || !strings.EqualFold(other.Host, target.Raw) || other.ContentLength != 0 || len(other.TransferEncoding) > 0 {
			t.Fatalf("%q is let through as %+v, and net/http reads %+v", head, target, other)
		}
	})
}
