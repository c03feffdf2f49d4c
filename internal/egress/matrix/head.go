package matrix

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

const agreed = "Host: allowed.test:443\r\n"

// heads are requests that are refused for their form, before the resolver hears
// of anything. A status of 0 is the end of the connection without an answer.
var heads = []struct {
	id, title string
	facts     []Fact
	status    int
	reason    policy.Reason
	heads     []string
}{
	{"E33", "a Host header of another host", []Fact{Exact}, 400, policy.ReasonHostHeaderMismatch, []string{"CONNECT allowed.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n"}},
	{"E34", "two Host headers", []Fact{Exact}, 400, policy.ReasonHostHeaderMismatch, []string{"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + agreed + "\r\n"}},
	{"E35", "a request to be forwarded", []Fact{Exact}, 405, policy.ReasonMethod, []string{"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"}},
	// The guard forwards nothing at all, so these end where E35 does.
	{"E36", "a request to be forwarded, with another host's header", []Fact{Exact}, 405, policy.ReasonMethod, []string{"GET http://allowed.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n"}},
	{"E37", "a request to be forwarded to a port that is not listed", []Fact{Exact}, 405, policy.ReasonMethod, []string{"GET http://allowed.test:8443/ HTTP/1.1\r\nHost: allowed.test:8443\r\n\r\n"}},
	{"E38", "a request for a page of the guard's own", []Fact{Exact}, 400, policy.ReasonMalformed, []string{"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"}},
	{"E39", "the preface of HTTP/2", []Fact{Exact}, 400, policy.ReasonMalformed, []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}},
	{"D26", "a head that is too large", []Fact{Default}, 431, policy.ReasonLimit, []string{
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "X: " + strings.Repeat("a", 9<<10) + "\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + strings.Repeat("X: a\r\n", 65) + "\r\n"}},
	{"D27", "a request that announces a body", []Fact{Default}, 400, policy.ReasonBody, []string{
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "Content-Length: 5\r\n\r\nhello",
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}},
	{"D28", "a control byte, a folded line, a space before the colon", []Fact{Default}, 400, policy.ReasonMalformed, []string{
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "X: a\rb\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "X: a\x00b\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\n" + agreed + "X: a\r\n folded\r\n\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\nHost : allowed.test:443\r\n\r\n"}},
	{"D29", "lines that end with LF alone", []Fact{Default}, 400, policy.ReasonMalformed, []string{"CONNECT allowed.test:443 HTTP/1.1\nHost: allowed.test:443\n\n"}},
	{"D35", "another method", []Fact{Default}, 405, policy.ReasonMethod, []string{
		"TRACE http://allowed.test/ HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n", "CONNECT-UDP allowed.test:443 HTTP/1.1\r\n" + agreed + "\r\n"}},
	{"R10", "a request to be forwarded, and a second behind it", []Fact{Redirect}, 405, policy.ReasonMethod, []string{
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET http://10.77.0.10/ HTTP/1.1\r\nHost: 10.77.0.10\r\n\r\n"}},
}

// headCases are those that are about the form of a request.
func headCases() []Case {
	cases := []Case{
		{ID: "E32", Title: "a configuration that lists what cannot be listed", Facts: []Fact{Exact, Default}, alone: true, run: unlistable},
		{ID: "E40", Title: "a greeting of SOCKS or of TLS", Facts: []Fact{Exact}, run: greetings},
		{ID: "E53", Title: "the spellings of method and version", Facts: []Fact{Exact}, run: spellings},
	}
	for _, h := range heads {
		cases = append(cases, Case{ID: h.id, Title: h.title, Facts: h.facts, run: func(t *trial) error {
			for _, head := range h.heads {
				if err := t.request(head, want{status: []int{h.status}, reason: h.reason}, nil); err != nil {
					return named(head[:min(len(head), 100)], err)
				}
			}
			return nil
		}})
	}
	return cases
}

func greetings(t *trial) error {
	tls, err := sni(allowed)
	if err != nil {
		return err
	}
	for _, greeting := range []string{"\x05\x01\x00", "\x04\x01\x01\xbb\x2d\x21\x20\x0a\x00", string(tls)} {
		if err := t.request(greeting, want{reason: policy.ReasonMalformed}, nil); err != nil {
			return named(greeting[:3], err)
		}
	}
	return nil
}

func spellings(t *trial) error {
	for _, c := range []struct {
		head string
		want want
	}{
		{"connect allowed.test:443 HTTP/1.1\r\n" + agreed + "\r\n", want{status: []int{405}, reason: policy.ReasonMethod}},
		{"CONNECT allowed.test:443 HTTP/1.0\r\n\r\n", want{status: []int{200}, accepts: at(public), asked: []string{allowed}}},
		{"CONNECT allowed.test:443\r\n\r\n", want{status: []int{400}, reason: policy.ReasonMalformed}},
	} {
		err := t.request(c.head, c.want, func(c *client) error { return c.greets(allowed) })
		if err != nil {
			return named(c.head, err)
		}
	}
	return nil
}

// unlistable holds that no guard begins with such a configuration, and that one
// begins with the same configuration without it.
func unlistable(t *trial) error {
	right, err := canonical.Encode(t.settings())
	if err != nil {
		return err
	}
	for name, change := range map[string]func(*guard.Config){
		"wildcard": func(c *guard.Config) {
			c.Allow = append(c.Allow, guard.Entry{Host: "*.allowed.test", Ports: []int64{443}})
		},
		"literal": func(c *guard.Config) {
			c.Allow = append(c.Allow, guard.Entry{Host: "45.33.32.10", Ports: []int64{443}})
		},
		"port 0":            func(c *guard.Config) { c.Allow = append(c.Allow, guard.Entry{Host: "zero.test", Ports: []int64{0}}) },
		"listed twice":      func(c *guard.Config) { c.Allow = append(c.Allow, guard.Entry{Host: allowed, Ports: []int64{443}}) },
		"host of the plane": func(c *guard.Config) { c.Allow = append(c.Allow, guard.Entry{Host: planeHost, Ports: []int64{443}}) },
	} {
		c := t.settings()
		c.Allow = slices.Clone(c.Allow)
		change(&c)
		wrong, err := canonical.Encode(c)
		if err != nil {
			return err
		}
		if err := t.begins(wrong, false); err != nil {
			return named(name, err)
		}
	}
	if err := t.begins(bytes.Replace(right, []byte(`{`), []byte(`{"a_new_key":1,`), 1), false); err != nil {
		return named("unknown key", err)
	}
	return t.begins(right, true)
}

// begins says whether a guard begins with a configuration as it should.
func (t *trial) begins(config []byte, should bool) error {
	own, err := t.ownBytes(config)
	if err == nil {
		err = own.guard.end()
		if !should {
			err = fmt.Errorf("a guard began")
		}
		return err
	}
	if should {
		return err
	}
	return noBeginning(err)
}
