package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
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
func (g *Guard) dial(ctx context.Context, pinned []netip.Addr, port uint16, l *Line) (*net.TCPConn, error) {
	ctx, cancel := g.within(ctx, dialTime)
	defer cancel()
	var last error
	for _, a := range pinned {
		conn, err := g.connect(ctx, netip.AddrPortFrom(a.WithZone("").Unmap(), port), l)
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

func (g *Guard) connect(ctx context.Context, chosen netip.AddrPort, l *Line) (*net.TCPConn, error) {
	ctx, cancel := g.within(ctx, connectTime)
	defer cancel()
	d := net.Dialer{
		FallbackDelay: -1,
		// The tunnel's own idle time is what finds a dead peer.
		KeepAlive: -1,
		// Called for the very socket, with what the kernel is about to be given.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			actual, err := netip.ParseAddrPort(address)
			if err != nil {
				return refuse(policy.ReasonConnectNotPublic, 403, "socket", chosen.String(), address)
			}
			l.Checked = append(l.Checked, actual.Addr().String())
			return g.steps.Socket(chosen, netip.AddrPortFrom(actual.Addr().Unmap(), actual.Port()))
		},
	}
	// A peer of a multipath connection may add paths that nobody judged.
	d.SetMultipathTCP(false)
	// By its text: DialTCP would bind first, and so run out of ports for all
	// origins together. A literal asks no resolver.
	dialed, err := d.DialContext(ctx, "tcp", chosen.String())
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	conn := dialed.(*net.TCPConn) // what "tcp" gives
	local, remote := endpoint(conn.LocalAddr()), endpoint(conn.RemoteAddr())
	if err := g.steps.Peer(chosen, local, remote); err != nil {
		_ = conn.SetLinger(0) // not even an end of file for whoever that is
		conn.Close()
		return nil, err
	}
	l.Connected = remote.String()
	return conn, nil
}

func endpoint(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
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
