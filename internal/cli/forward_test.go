package cli

import (
	"strings"
	"testing"
)

func TestParseForwardRoute(t *testing.T) {
	for _, c := range []struct {
		text string
		want forwardRoute
		ok   bool
	}{
		{"8080", forwardRoute{8080, 8080}, true},
		{"80:8080", forwardRoute{80, 8080}, true},
		{"80:0", forwardRoute{80, 0}, true},
		{"65535:65535", forwardRoute{65535, 65535}, true},
		{"0", forwardRoute{}, false},
		{"0:80", forwardRoute{}, false},
		{"80:", forwardRoute{}, false},
		{":80", forwardRoute{}, false},
		{"80:80:80", forwardRoute{}, false},
		{"080", forwardRoute{}, false},
		{"+80", forwardRoute{}, false},
		{"65536", forwardRoute{}, false},
		{"80:65536", forwardRoute{}, false},
		{"127.0.0.1:80", forwardRoute{}, false},
		{"http", forwardRoute{}, false},
		{"", forwardRoute{}, false},
	} {
		got, err := parseForwardRoute(c.text)
		if got != c.want || (err == nil) != c.ok || err != nil && !strings.HasPrefix(err.Error(), "PORT: expected ") {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
}

func FuzzParseForwardRoute(f *testing.F) {
	for _, seed := range []string{"8080", "80:8080", "80:0", ":", "+1:1", "65536"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseForwardRoute(text)
		if err == nil && (r.port < 1 || r.port > 65535 || r.local < 0 || r.local > 65535 || len(text) > len("65535:65535")) {
			t.Errorf("%q was read as %+v", text, r)
		}
	})
}
