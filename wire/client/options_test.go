package client

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/wire"
)

func TestOptions(t *testing.T) {
	token := strings.Repeat("t", 32)
	for _, c := range []struct {
		name string
		o    Options
		want string // the option that is refused
	}{
		{"https", Options{Base: "https://acme.example/checkfu/"}, ""},
		{"loopback", Options{Base: "http://127.0.0.1:8080", Token: token}, ""},
		{"loopback, other forms", Options{Base: "http://[::1]:8080"}, ""},
		{"loopback by name", Options{Base: "http://localhost:1"}, ""},
		{"socket", Options{Base: "unix:/run/checkfu.sock"}, ""},
		{"no base", Options{}, "base"},
		{"plain http elsewhere", Options{Base: "http://acme.example"}, "base"},
		{"plain http to a private network", Options{Base: "http://10.0.0.1"}, "base"},
		{"loopback in another spelling", Options{Base: "http://2130706433/"}, "base"},
		{"a name that begins like loopback", Options{Base: "http://127.0.0.1.acme.example"}, "base"},
		{"user", Options{Base: "https://u:p@acme.example"}, "base"},
		{"query", Options{Base: "https://acme.example/?a"}, "base"},
		{"fragment", Options{Base: "https://acme.example/#a"}, "base"},
		{"another scheme", Options{Base: "ftp://acme.example"}, "base"},
		{"no path", Options{Base: "unix:"}, "base"},
		{"short token", Options{Base: "unix:/s", Token: "secret"}, "token"},
		{"token with a line", Options{Base: "unix:/s", Token: token + "\n"}, "token"},
		{"pin", Options{Base: "https://a", Pin: "sha256:00"}, "pin"},
		{"pin without TLS", Options{Base: "unix:/s", Pin: digestOf(nil)}, "pin"},
		{"certificate without TLS", Options{Base: "unix:/s", Certificate: &tls.Certificate{}}, "certificate"},
		{"lease", Options{Base: "unix:/s", Lease: wire.Lease{ID: "a b"}}, "lease"},
		{"epoch", Options{Base: "unix:/s", Lease: wire.Lease{ID: "a", Epoch: -1}}, "lease"},
		{"deadline", Options{Base: "unix:/s", Deadline: -1}, "deadline"},
		{"wait", Options{Base: "unix:/s", Wait: time.Minute}, "wait"},
		{"heartbeat", Options{Base: "unix:/s", Heartbeat: time.Millisecond}, "heartbeat"},
		{"processes", Options{Base: "unix:/s", Processes: -1}, "processes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := c.o.settle()
			o := (*OptionError)(nil)
			if got := errors.As(err, &o); got != (c.want != "") || got && o.Option != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("it repeats a token")
			}
		})
	}
}

func TestTheAddressOfAnEndpoint(t *testing.T) {
	for base, want := range map[string]string{
		"https://acme.example":             "https://acme.example/v1/write_file",
		"https://acme.example/":            "https://acme.example/v1/write_file",
		"https://acme.example:8443/a/b//":  "https://acme.example:8443/a/b/v1/write_file",
		"https://acme.example/a%2Fb/c%20d": "https://acme.example/a%2Fb/c%20d/v1/write_file",
		"http://[::1]:80":                  "http://[::1]:80/v1/write_file",
		"unix:/run/a b":                    "http://localhost/v1/write_file",
	} {
		to, err := parseBase(base)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // one does not change the next
			if got := to.at(wire.WriteFile).String(); got != want {
				t.Errorf("%s: got %s, want %s", base, got, want)
			}
		}
	}
}
