package lab

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Named is two destinations that somebody else runs and that answer both here and
// to a provider's guard: for a provider that cannot be put into an Internet, since
// its machines lie behind a wire. Nobody counts what they accept, so a refusal is
// the machine's word and the case's live control is a connection from here.
type Named struct {
	listed, unlisted sandbox.Destination
}

// NewNamed names them: listed is what an allowlist will name, unlisted what none
// does, on another host.
func NewNamed(listed, unlisted sandbox.Destination) *Named { return &Named{listed, unlisted} }

// Listed is what an allowlist names.
func (n *Named) Listed() sandbox.Destination { return n.listed }

// Unlisted is what none names.
func (n *Named) Unlisted() sandbox.Destination { return n.unlisted }

// aliveTime bounds a connection from here.
const aliveTime = 5 * time.Second

// Alive connects from this host.
func (n *Named) Alive(ctx context.Context, d sandbox.Destination) error {
	dialer := net.Dialer{Timeout: aliveTime}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(d.Host, strconv.FormatInt(d.Port, 10)))
	if err != nil {
		return err
	}
	return c.Close()
}

// Accepted is unknown.
func (n *Named) Accepted(sandbox.Destination) int64 { return -1 }

// Connect is a script that needs bash, or a nc, or Python. It tries an address of
// the host, as it is known here, and then the proxy that the machine was told of.
func (n *Named) Connect(d sandbox.Destination) string {
	direct := d
	ctx, cancel := context.WithTimeout(context.Background(), aliveTime)
	defer cancel()
	if found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", d.Host); err == nil && len(found) > 0 {
		direct.Host = found[0].Unmap().String()
	}
	return orByProxy(attempt(direct), d)
}
