package argument

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func TestAllow(t *testing.T) {
	for _, c := range []struct {
		s    string
		want sandbox.Destination
		hint string // of the refusal
	}{
		{"api.example.com:443", sandbox.Destination{Host: "api.example.com", Port: 443}, ""},
		{"API.example.COM:8443", sandbox.Destination{Host: "api.example.com", Port: 8443}, ""},
		{"xn--fa-hia.de:65535", sandbox.Destination{Host: "xn--fa-hia.de", Port: 65535}, ""},
		{"api.example.com", sandbox.Destination{}, "the port too"},
		{"api.example.com:", sandbox.Destination{}, "a port from 1"},
		{"api.example.com:0", sandbox.Destination{}, "a port from 1"},
		{"api.example.com:65979", sandbox.Destination{}, "a port from 1"},
		{"api.example.com:0443", sandbox.Destination{}, "a port from 1"},
		{"api.example.com:https", sandbox.Destination{}, "a port from 1"},
		{"*.example.com:443", sandbox.Destination{}, "no wildcard"},
		{"*:443", sandbox.Destination{}, "no wildcard"},
		{"https://api.example.com", sandbox.Destination{}, "no scheme"},
		{"https://api.example.com:443", sandbox.Destination{}, "no scheme"},
		{"me@api.example.com:443", sandbox.Destination{}, "no scheme"},
		{"1.2.3.4:443", sandbox.Destination{}, "no address"},
		{"2130706433:443", sandbox.Destination{}, "no address"},
		{"0x7f.1:443", sandbox.Destination{}, "no address"},
		{"[::1]:443", sandbox.Destination{}, "no address"},
		{"api.example.com.:443", sandbox.Destination{}, "HOST:PORT"},
		{"\uff41pi.example.com:443", sandbox.Destination{}, "HOST:PORT"},
		{":443", sandbox.Destination{}, "HOST:PORT"},
		{"", sandbox.Destination{}, "HOST:PORT"},
	} {
		got, err := Allow(c.s)
		if got != c.want || (err == nil) != (c.hint == "") || err != nil && !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%q: %+v, %v; want %+v, %q", c.s, got, err, c.want, c.hint)
		}
	}
}
