package relay

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// head is a request's head, after it was found to be strictly HTTP/1.1.
type head struct {
	method, target string
	fields         map[string]string // by name in lower case; each stands once
}

// readHead reads up to and with the empty line. The reader's buffer bounds it.
// Errors: *route.Refusal; the reader's, when the connection ended or was late.
func readHead(r *bufio.Reader) (head, error) {
	var text []byte
	for {
		line, err := r.ReadSlice('\n')
		if len(text)+len(line) > MaxHeadBytes || err == bufio.ErrBufferFull {
			return head{}, &route.Refusal{Status: 431, Reason: route.ReasonHeaders, Message: "expected a head of at most " + strconv.Itoa(MaxHeadBytes) + " bytes, in lines of at most " + strconv.Itoa(lineBytes)}
		}
		if err != nil {
			return head{}, err
		}
		text = append(text, line...)
		if len(line) <= 2 { // CRLF, or what parseHead refuses
			return parseHead(text)
		}
	}
}

// parseHead parses a whole head. Where other parsers are lax, two of them read
// one request in two ways; so nothing is.
// Errors: *route.Refusal.
func parseHead(text []byte) (head, error) {
	lines, ok := bytes.CutSuffix(text, []byte("\r\n\r\n"))
	if !ok {
		return head{}, malformed("lines that end in CR LF")
	}
	first, rest, more := strings.Cut(string(lines), "\r\n")
	if !visible(first) {
		return head{}, malformed("visible ASCII")
	}
	method, targetVersion, _ := strings.Cut(first, " ")
	target, version, _ := strings.Cut(targetVersion, " ")
	if !token(method) || target == "" || version != "HTTP/1.1" {
		return head{}, malformed("METHOD target HTTP/1.1")
	}
	h := head{method, target, map[string]string{}}
	for n := 0; more; n++ {
		var line string
		line, rest, more = strings.Cut(rest, "\r\n")
		if n == MaxHeaders {
			return head{}, &route.Refusal{Status: 431, Reason: route.ReasonHeaders, Message: "expected at most " + strconv.Itoa(MaxHeaders) + " headers"}
		}
		name, value, ok := strings.Cut(line, ":")
		// A continuation line begins with a space, and a space before the colon ends
		// the name of the header for some and is part of it for others: no token.
		if !ok || !token(name) || !visible(value) {
			return head{}, malformed("name: value, in visible ASCII")
		}
		name = strings.ToLower(name)
		if _, twice := h.fields[name]; twice {
			return head{}, &route.Refusal{Status: 400, Reason: route.ReasonHeaders, Message: "expected each header once"}
		}
		h.fields[name] = strings.Trim(value, " ")
	}
	return h, nil
}

func malformed(expected string) error {
	return &route.Refusal{Status: 400, Reason: route.ReasonMalformed, Message: "expected " + expected}
}

// visible reports whether s is visible ASCII and spaces.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// token reports whether s is a token of HTTP.
func token(s string) bool {
	for i := range len(s) {
		if b := s[i]; (b|0x20 < 'a' || b|0x20 > 'z') && (b < '0' || b > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return s != ""
}

// chunked is the length of a body that says its end itself.
const chunked = -1

// bodyLength is how long the body will be, or chunked.
// Errors: *route.Refusal. Two statements of a length are two requests to whom
// believes the other one.
func (h head) bodyLength(most int64) (int64, error) {
	length, sized := h.fields["content-length"]
	coding, coded := h.fields["transfer-encoding"]
	switch {
	case sized && coded:
		return 0, badBody(400, "one of content-length and transfer-encoding")
	case coded && coding != "chunked":
		return 0, badBody(400, "transfer-encoding: chunked")
	case h.fields["content-encoding"] != "" && h.fields["content-encoding"] != "identity":
		return 0, badBody(415, "a body without content-encoding")
	case h.method == "GET" && (coded || sized && length != "0"):
		return 0, badBody(400, "no body")
	case coded:
		return chunked, nil
	case !sized && h.method == "GET":
		return 0, nil
	case !sized:
		return 0, badBody(411, "content-length or transfer-encoding")
	}
	n, err := strconv.ParseUint(length, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != length {
		return 0, badBody(400, "a decimal content-length")
	}
	if int64(n) > most {
		return 0, tooLarge(most)
	}
	return int64(n), nil
}

func badBody(status int, expected string) error {
	return &route.Refusal{Status: status, Reason: route.ReasonBody, Message: "expected " + expected}
}

func tooLarge(most int64) error {
	return &route.Refusal{Status: 413, Reason: route.ReasonTooLarge, Message: "expected a body of at most " + strconv.FormatInt(most, 10) + " bytes"}
}
