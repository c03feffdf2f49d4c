package probe

import (
	"context"
	"net"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// Wire is how a target that is reached over a wire is spoken to by hand, beside
// the client that is its Provider.
type Wire struct {
	// Dial opens one connection on which HTTP/1.1 is spoken, authenticated as
	// far as that is the connection's. Who dials closes it.
	Dial  func(ctx context.Context) (net.Conn, error)
	Host  string // of the Host header
	Path  string // before /v1/…, without a slash at its end
	Token string // the bearer token, "" where there is none
}

// overWire is what the probes of the wire suite need beside their tokens.
func overWire(p *Probe, wire *Wire) (report.Status, string) {
	if p.Suite == report.Wire && wire == nil {
		return report.Skip, "the target is not reached over a wire"
	}
	return "", ""
}

// Via makes what follows in this probe reach the target another way: through p.
func (t *T) Via(p sandbox.Provider) {
	r := t.run
	provider, optional := r.target.Provider, r.optional
	r.target.Provider, r.optional = p, p.Optional()
	t.Defer(func() { r.target.Provider, r.optional = provider, optional })
}
