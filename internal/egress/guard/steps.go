package guard

import (
	"context"
	"net/netip"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Steps are the decisions of the request path, in its order. Each refuses with a
// *policy.Refusal.
//
// They are a struct of functions for one purpose: a test that claims to find a
// fault must be shown to find it, so a build for tests takes a step out or puts
// a wrong one in (Options.Alter). The guard that ships sets none.
type Steps struct {
	// Parse gives a target its meaning.
	Parse func(raw string) (policy.Target, error)
	// Match asks the list, before the resolver hears the name.
	Match func(policy.Target) (mode string, err error)
	// Resolve asks the resolver, once.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Admit judges all answers for a host together.
	Admit func(host string, answers []netip.Addr) error
	// Pin says what is dialled: the addresses that Admit judged, and not what
	// the resolver says when it is asked again.
	Pin func(ctx context.Context, host string, admitted []netip.Addr) ([]netip.Addr, error)
	// Socket judges a socket before it connects: chosen is the address that was
	// pinned, actual the one that the kernel is about to be given.
	Socket func(host string, chosen, actual netip.AddrPort) error
	// Peer judges a connected socket by what the kernel says of its ends.
	Peer func(host string, chosen, local, remote netip.AddrPort) error
	// Hello judges a ClientHello, on a port of mode tls.
	Hello func(host string, h Hello) error
}

// steps are the real ones.
func (g *Guard) realSteps() Steps {
	return Steps{
		Parse:   policy.ParseTarget,
		Match:   g.cfg.list.Match,
		Resolve: resolver{g.cfg.resolver}.lookup,
		Admit: func(host string, answers []netip.Addr) error {
			return g.cfg.pins.Answers(g.infra, host, answers)
		},
		Pin: func(_ context.Context, _ string, admitted []netip.Addr) ([]netip.Addr, error) {
			return admitted, nil
		},
		Socket: func(host string, chosen, actual netip.AddrPort) error {
			if actual != chosen {
				return refuse(policy.ReasonConnectNotPublic, 403, "socket", chosen.String(), actual.String())
			}
			return g.cfg.pins.Connect(g.infra, host, actual.Addr())
		},
		Peer: func(host string, chosen, local, remote netip.AddrPort) error {
			// Something in between may have sent us elsewhere.
			if remote != chosen {
				return refuse(policy.ReasonConnectNotPublic, 403, "peer", chosen.String(), remote.String())
			}
			// An address that this machine was given after the guard began: the
			// kernel then speaks to itself, from the address that it speaks to.
			if local.Addr() == remote.Addr() {
				return refuse(policy.ReasonInfraAddress, 403, "peer", "another machine", remote.String())
			}
			return g.cfg.pins.Connect(g.infra, host, remote.Addr())
		},
		Hello: func(host string, h Hello) error {
			switch {
			case h.ECH && g.cfg.echDenied:
				return refuse(policy.ReasonECH, 0, "hello", "no encrypted hello", "one")
			case h.ServerName == "":
				return refuse(policy.ReasonSNIMissing, 0, "hello", host, "no name")
			case !equalFold(h.ServerName, host):
				return refuse(policy.ReasonSNIMismatch, 0, "hello", host, h.ServerName)
			}
			return nil
		},
	}
}
