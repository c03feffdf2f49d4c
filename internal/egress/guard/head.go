package guard

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Head is the head of a request, as far as it decides anything. What else it
// says is never kept: it may be a token.
type Head struct {
	Method string
	Target string // raw; only policy.ParseTarget gives it a meaning
	Hosts  int    // how many Host headers there are
	Host   string // of the last of them
	Body   bool   // Content-Length or Transfer-Encoding is there, whatever it says
}

// ParseHead reads one whole head: a request line, header lines, an empty line,
// each ended by CRLF. It takes exactly one spelling of everything: single
// spaces in the request line, HTTP/1.0 or 1.1, a token directly before the
// colon, visible ASCII, spaces and tabs in values, no folded lines. A reader
// that is laxer somewhere behind us would otherwise see another request.
//
// The target may hold any byte but space, CR and LF; ParseTarget refuses it
// with a better word than "malformed".
// Errors: a *policy.Refusal with ReasonMalformed (400), or ReasonLimit (431) for
// more than MaxHeaders.
func ParseHead(text string) (Head, error) {
	line, rest, ok := strings.Cut(text, "\r\n")
	if !ok {
		return Head{}, malformed("request line", "CRLF", "none")
	}
	var h Head
	var version string
	if h.Method, line, ok = strings.Cut(line, " "); !ok || !isToken(h.Method) {
		return Head{}, malformed("method", "a token and a space", h.Method)
	}
	if h.Target, version, ok = strings.Cut(line, " "); !ok || h.Target == "" || strings.ContainsAny(h.Target, "\r\n") {
		return Head{}, malformed("target", "one word and a space", "")
	}
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return Head{}, malformed("version", "HTTP/1.0 or HTTP/1.1", version)
	}
	for n := 0; ; n++ {
		if line, rest, ok = strings.Cut(rest, "\r\n"); !ok {
			return Head{}, malformed("header", "CRLF", "none")
		}
		if line == "" {
			break
		}
		if n == MaxHeaders {
			return Head{}, tooLarge("headers", "at most "+strconv.Itoa(MaxHeaders))
		}
		if err := h.header(line); err != nil {
			return Head{}, err
		}
	}
	if rest != "" {
		return Head{}, malformed("head", "its end", "more")
	}
	return h, nil
}

func (h *Head) header(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) { // also a folded line, and a space before the colon
		return malformed("header", "a token and a colon", "")
	}
	for i := range len(value) {
		if c := value[i]; (c < ' ' || c > '~') && c != '\t' {
			return malformed("header", "visible ASCII", "")
		}
	}
	switch {
	case equalFold(name, "host"):
		h.Hosts++
		h.Host = strings.Trim(value, " \t")
	case equalFold(name, "content-length"), equalFold(name, "transfer-encoding"):
		h.Body = true
	}
	return nil
}

// check holds what must be true of a head before its target matters.
func (h *Head) check() error {
	if h.Method == "CONNECT" {
		return nil
	}
	// A request for a page of the proxy itself is no request to a proxy.
	switch h.Method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE":
		if h.Target[0] == '/' {
			return malformed("target", "host:port", "a path")
		}
	}
	return refuse(policy.ReasonMethod, 405, "method", "CONNECT", h.Method)
}

// agree holds that nothing in the head speaks of another target than t, and that
// no body is announced: who believes in one would take the payload for it, and
// who does not would take it for a request.
func (h *Head) agree(t policy.Target) error {
	switch {
	case h.Hosts > 1:
		return refuse(policy.ReasonHostHeaderMismatch, 400, "Host", "one", strconv.Itoa(h.Hosts))
	// Agents in wide use leave out the port that https has by default.
	case h.Hosts == 1 && !equalFold(h.Host, t.Raw) && (t.Port != 443 || !equalFold(h.Host, t.Host)):
		return refuse(policy.ReasonHostHeaderMismatch, 400, "Host", "the target", "another")
	case h.Body:
		return refuse(policy.ReasonBody, 400, "header", "no body", "a body")
	}
	return nil
}

// errSilence is a connection that ended, or was ended, before its first byte:
// it asked for nothing.
var errSilence = errors.New("nothing was asked")

// errOther is a first byte that begins no method: a TLS or SOCKS greeting. It
// is closed without a word of HTTP, which its sender could not read.
var errOther = refuse(policy.ReasonMalformed, 0, "head", "HTTP", "something else")

// readHead reads one head of at most most bytes and what came right behind it.
// It stops at the first byte that no continuation could mend, so that a hostile
// head is answered and not waited for.
// Errors: errSilence; a *policy.Refusal; the connection's, for a head that stops
// half-way. had reports whether anything came, target what was named so far.
func readHead(r io.Reader, most int) (head string, rest []byte, err error) {
	const usual = 1 << 10
	buffer := make([]byte, 0, min(usual, most))
	var s scan
	for {
		if len(buffer) == cap(buffer) {
			if len(buffer) == most {
				return string(buffer), nil, tooLarge("head", "at most "+strconv.Itoa(most)+" bytes")
			}
			grown := make([]byte, len(buffer), min(2*cap(buffer), most))
			copy(grown, buffer)
			buffer = grown
		}
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		end, fault := s.more(buffer)
		switch {
		case fault != nil:
			return string(buffer), nil, fault
		case end > 0:
			return string(buffer[:end]), buffer[end:], nil
		case err != nil && len(buffer) == 0:
			return "", nil, errSilence
		case err != nil:
			return string(buffer), nil, err
		}
	}
}

// scan looks for the end of a head in bytes that come in pieces.
type scan struct {
	at    int // how many bytes were looked at
	line  int // where the present line begins
	lines int
}

// more looks at what is new in all. end is the length of the head, or 0.
func (s *scan) more(all []byte) (end int, err error) {
	for ; s.at < len(all); s.at++ {
		c := all[s.at]
		switch {
		case s.at == 0 && !tokenBytes[c]:
			return 0, errOther
		case s.at > 0 && all[s.at-1] == '\r' && c != '\n':
			return 0, malformed("head", "LF after CR", "")
		case c == '\n':
			if s.at == 0 || all[s.at-1] != '\r' {
				return 0, malformed("head", "CR before LF", "")
			}
			if s.lines > 0 && s.at-1 == s.line {
				return s.at + 1, nil
			}
			s.line, s.lines = s.at+1, s.lines+1
		case s.lines > 0 && (c < ' ' || c > '~') && c != '\t' && c != '\r':
			return 0, malformed("header", "visible ASCII", "")
		}
	}
	return 0, nil
}

// tokenBytes are the bytes that a method and a header's name consist of.
// Source: RFC 9110 section 5.6.2.
var tokenBytes = func() (set [256]bool) {
	for c := range set {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' && c < 0x80
		set[c] = letter || '0' <= c && c <= '9' || c < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return set
}()

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// equalFold compares ASCII only. The folding of Unicode makes a Kelvin sign a k.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

func refuse(reason policy.Reason, status int, field, expected, got string) *policy.Refusal {
	const most = 200
	if len(got) > most {
		got = got[:most]
	}
	return &policy.Refusal{Reason: reason, Status: status, Field: field, Expected: expected, Got: got}
}

func malformed(field, expected, got string) *policy.Refusal {
	return refuse(policy.ReasonMalformed, 400, field, expected, got)
}

func tooLarge(field, expected string) *policy.Refusal {
	return refuse(policy.ReasonLimit, 431, field, expected, "more")
}
