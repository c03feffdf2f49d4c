package relay

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

func TestConfig(t *testing.T) {
	token := route.NewToken()
	text, err := goodConfig(token).Encode()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseConfig(text)
	if err != nil || parsed.Digest() != canonical.Digest(text) || parsed.Digest() != goodConfig(token).Digest() {
		t.Fatalf("%+v, %v", parsed, err)
	}
	for what, c := range map[string]struct{ old, new, field string }{
		"an unknown key":       {`"v":1`, `"allow":[],"v":1`, ""},
		"a key twice":          {`"v":1`, `"v":1,"v":1`, ""},
		"a provider's key":     {`"v":1`, `"key":"sk","v":1`, ""},
		"no gateway":           {`"gateway":"127.0.0.1:1",`, ``, ""},
		"null":                 {`"v":1`, `"v":null`, ""},
		"not JSON":             {`{`, ``, ""},
		"another version":      {`"v":1`, `"v":2`, "v"},
		"a name to resolve":    {`127.0.0.1:1`, `gateway.test:1`, "gateway"},
		"a URL":                {`127.0.0.1:1`, `http://127.0.0.1:1`, "gateway"},
		"port 0":               {`127.0.0.1:1`, `127.0.0.1:0`, "gateway"},
		"any address":          {`127.0.0.1:1`, `0.0.0.0:1`, "gateway"},
		"a zone":               {`127.0.0.1:1`, `[fe80::1%eth0]:1`, "gateway"},
		"a mapped address":     {`127.0.0.1:1`, `[::ffff:127.0.0.1]:1`, "gateway"},
		"a relative file":      {`127.0.0.1:1`, `unix:gateway`, "gateway"},
		"an abstract socket":   {`127.0.0.1:1`, `unix:@gateway`, "gateway"},
		"dots in a file":       {`127.0.0.1:1`, `unix:/run/../gateway`, "gateway"},
		"a long file":          {`127.0.0.1:1`, `unix:/` + strings.Repeat("x", 107), "gateway"},
		"no host":              {`["relay.test:3129"]`, `[]`, "hosts"},
		"a host twice":         {`["relay.test:3129"]`, `["a","a"]`, "hosts[1]"},
		"a pattern":            {`relay.test:3129`, `*.test`, "hosts[0]"},
		"an upper case host":   {`relay.test:3129`, `Relay.test`, "hosts[0]"},
		"the token itself":     {`"` + route.TokenDigest(token) + `"`, `"` + token + `"`, "token_digest"},
		"no time":              {`2026-05-01T13:00:00.000Z`, `tomorrow`, "expires_at"},
		"a negative limit":     {`"v":1`, `"limits":{"requests":-1},"v":1`, "limits.requests"},
		"too many requests":    {`"v":1`, `"limits":{"requests":4097},"v":1`, "limits.requests"},
		"too large a body":     {`"v":1`, `"limits":{"body_bytes":67108865},"v":1`, "limits.body_bytes"},
		"too long a silence":   {`"v":1`, `"limits":{"idle_s":3601},"v":1`, "limits.idle_s"},
		"no instance":          {`"ins_1"`, `""`, "instance"},
		"more than may be":     {`"v":1`, `"v":1` + strings.Repeat(" ", MaxConfigBytes), "config"},
		"an empty unix socket": {`127.0.0.1:1`, `unix:`, "gateway"},
	} {
		changed := bytes.Replace(text, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(changed, text) {
			t.Fatalf("%s: %q is not in %s", what, c.old, text)
		}
		_, err := ParseConfig(changed)
		bad, ok := errors.AsType[*sandbox.Invalid](err)
		if _, form := errors.AsType[*canonical.Error](err); c.field == "" && !form || c.field != "" && (!ok || bad.Field != c.field) {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(err.Error(), token) {
			t.Errorf("%s: the error tells the token", what)
		}
	}
	for gateway, want := range map[string][2]string{
		"unix:/run/gateway": {"unix", "/run/gateway"}, "[::1]:80": {"tcp", "[::1]:80"}, "10.0.0.1:443": {"tcp", "10.0.0.1:443"},
	} {
		network, address := Config{Gateway: gateway}.GatewayAddr()
		if network != want[0] || address != want[1] {
			t.Errorf("%s: %s %s", gateway, network, address)
		}
	}
	if _, err := New(Options{Config: goodConfig(token), Clock: newClock()}); err == nil {
		t.Error("a relay without a log")
	}
}

// What is read is written back as what it was, and never crashes.
func FuzzConfig(f *testing.F) {
	text, err := goodConfig(route.NewToken()).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.Replace(text, []byte("127.0.0.1:1"), []byte("unix:/a"), 1))
	f.Add(bytes.Replace(text, []byte(`"v":1`), []byte(`"limits":{"requests":4096},"v":1`), 1))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if d, err := ParseConfig(again); err != nil || d.Gateway != c.Gateway || d.Limits != c.Limits || d.TokenDigest != c.TokenDigest {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
	})
}
