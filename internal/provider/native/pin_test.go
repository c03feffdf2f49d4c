package native

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// A pin is of a build: a Run's list has no word for one, and the guard of a Run,
// also of one on the very hosts that are pinned, is told of none.
func TestARunsGuardHasNoPin(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	p := &Provider{opt: Options{Egress: testGuard("", "plain")}}
	r := sandbox.ProvisionRequest{ExpiresAt: "2030-01-02T03:04:05.678Z"}
	r.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{{Host: "a.test", Port: 443}}}
	pins := []policy.Pin{{Host: "a.test", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	text, err := p.compilePinned(id, r, pins)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := guard.ParseConfig(text); err != nil || len(c.Pins) != 1 || c.Pins[0].Host != "a.test" || c.Pins[0].Prefixes[0] != "10.0.0.0/8" {
		t.Errorf("%s, %v", text, err)
	}
	if text, err = p.compile(id, r); err != nil || bytes.Contains(text, []byte("pin")) {
		t.Errorf("a Run's guard is told %s, %v", text, err)
	}
	// One that names no listed host makes no guard.
	pins[0].Host = "b.test"
	if text, err = p.compilePinned(id, r, pins); err == nil {
		t.Errorf("a pin of nobody: %s", text)
	}
	for _, text := range []string{
		`{"mode":"allowlist","destinations":[{"host":"a.test","port":443,"prefixes":["10.0.0.0/8"]}]}`,
		`{"mode":"allowlist","destinations":[],"pins":[{"host":"a.test","prefixes":["10.0.0.0/8"]}]}`,
	} {
		var n sandbox.NetworkPolicy
		if err := canonical.Decode([]byte(text), &n); err == nil {
			t.Errorf("a Run's list takes %s", text)
		}
	}
}
