package guard

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// dial connects to the first of the pinned addresses that lets itself be
// connected, in their order and one at a time: a race would connect to several
// and log one. Each socket is judged before it connects and once it is.
// It writes into l which sockets were judged, and the peer.
// Errors: a *policy.Refusal: that of a judgement, which ends the request whatever
// other addresses there are; ReasonLimit for no descriptor; ReasonUpstreamFailed,
// 504 if the last address did not answer in time, else 502.
func (g *Guard) dial(ctx context.Context, to policy.Target, pinned []netip.Addr, l *Line) (*socket, error) {
	last, until := error(nil), g.clock.Now().Add(dialTime)
	for _, a := range pinned {
		left := min(connectTime, until.Sub(g.clock.Now()))
		if left <= 0 {
			last = errLate
			break
		}
		conn, err := g.connect(ctx, left, to.Host, netip.AddrPortFrom(a.WithZone("").Unmap(), to.Port), l)
		var refused *policy.Refusal
		switch {
		case err == nil:
			return conn, nil
		case errors.As(err, &refused):
			return nil, refused
		case exhausted(err):
			return nil, refuse(policy.ReasonLimit, 503, "descriptors", "one for the origin", err.Error())
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	status, got := 502, "no address"
	if last != nil {
		got = last.Error()
		if late(last) {
			status = 504
		}
	}
	return nil, refuse(policy.ReasonUpstreamFailed, status, "origin", "a connection", got)
}

func (g *Guard) connect(ctx context.Context, left time.Duration, host string, chosen netip.AddrPort, l *Line) (*socket, error) {
	ctx, cancel := g.within(ctx, left)
	defer cancel()
	conn, err := openTCP(ctx, chosen, func(actual netip.AddrPort) error {
		l.Checked = append(l.Checked, actual.Addr().String())
		return g.steps.Socket(host, chosen, actual)
	})
	if err != nil {
		return nil, err
	}
	if err := g.steps.Peer(host, chosen, conn.local, conn.remote); err != nil {
		_ = conn.SetLinger(0) // not even an end of file for whoever that is
		conn.Close()
		return nil, err
	}
	l.Connected = conn.remote.String()
	return conn, nil
}

// errLate is a wait that is over.
var errLate = errors.New("not in time")

// within bounds a wait by d of the guard's clock.
func (g *Guard) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := g.clock.AfterFunc(d, func() { cancel(errLate) })
	return ctx, func() { stop(); cancel(nil) }
}

func late(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, errLate) || errors.As(err, &t) && t.Timeout()
}
