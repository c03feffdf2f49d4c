package native

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// compile compiles the policy of one instance. A policy that names nothing is
// a list of nothing: the guard denies all.
// The host's own addresses and the resolver need no mention: a guard that runs in
// the host's network refuses both by itself.
// Errors: a host whose resolver cannot be told.
func (p *Provider) compile(id sandbox.InstanceID, r sandbox.ProvisionRequest) ([]byte, error) {
	return p.compilePinned(id, r, nil)
}

// compilePinned is compile for a build, whose operator may have said where a
// registry lives. Nothing that a user writes leads to a pin.
func (p *Provider) compilePinned(id sandbox.InstanceID, r sandbox.ProvisionRequest, pins []policy.Pin) ([]byte, error) {
	revision, err := canonical.Encode(r.Profile.NetworkPolicy)
	if err != nil {
		return nil, err
	}
	c := guard.Config{
		V: guard.ConfigVersion, Instance: string(id), PolicyRevision: sandbox.Digest(canonical.Digest(revision)),
		Allow: []guard.Entry{}, ExpiresAt: r.ExpiresAt,
		ECH: guard.ECHDeny, // an inner name would be one that the list cannot be held against
	}
	for _, pin := range pins {
		prefixes := make([]string, len(pin.Prefixes))
		for i, prefix := range pin.Prefixes {
			prefixes[i] = prefix.String()
		}
		c.Pins = append(c.Pins, guard.Pin{Host: pin.Host, Prefixes: prefixes})
	}
	index := map[string]int{}
	for _, d := range r.Profile.NetworkPolicy.Destinations {
		mode := policy.ModeOf(d)
		i, ok := index[d.Host+" "+mode]
		if !ok {
			i = len(c.Allow)
			index[d.Host+" "+mode] = i
			c.Allow = append(c.Allow, guard.Entry{Host: d.Host, Mode: mode})
		}
		c.Allow[i].Ports = append(c.Allow[i].Ports, d.Port)
	}
	resolver := p.opt.Egress.Resolver
	if !resolver.IsValid() {
		if resolver, err = hostResolver("/etc/resolv.conf"); err != nil {
			return nil, err
		}
	}
	c.Resolver = resolver.String()
	return c.Encode()
}

// hostResolver is the first name server of a resolv.conf. One on loopback is as
// good as any: the guard asks it in the host's own network.
func hostResolver(path string) (netip.AddrPort, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			return netip.AddrPortFrom(a, 53), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s: expected a nameserver, for the names of the allowlist, got none", path)
}
