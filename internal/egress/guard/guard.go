package guard

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Options is what a guard is made of.
type Options struct {
	Config Config
	// Log gets the lines, each in one Write, one at a time. If it has a method
	// SetWriteDeadline, a Write that takes longer than 5 seconds has failed.
	Log io.Writer
	// Clock is the time; nil is System.
	Clock Clock
	// Notes go into the log's first line: what the process says of itself.
	Notes []string
	// LocalAddrs gives the addresses of this machine, which no listed name may
	// lead to. nil asks the kernel, in New and not again; that needs a netlink
	// socket, so New comes before a process locks itself up.
	LocalAddrs func() ([]netip.Addr, error)
	// Alter changes the steps of the request path. Nobody sets it but tests and
	// the builds that they make; see Steps.
	Alter func(*Steps)
}

// Guard is one egress guard, for one policy revision.
type Guard struct {
	cfg    compiled
	digest string
	notes  []string
	pins   []Pin
	infra  policy.Infrastructure
	steps  Steps
	clock  Clock
	log    journal
	pipes  feeds
	spare  spare
	used   atomic.Bool
	ctx    context.Context // of Serve
	ends   sync.WaitGroup  // one for each connection

	mu       sync.Mutex
	heads    list.List // *session whose head has not come whole, and refused ones; the oldest first
	requests map[*session]bool
	over     bool // Serve is ending
	expired  bool
	lease    func() bool // stops the timer of watchLease
}

// New makes a guard. It opens nothing.
// Errors: *sandbox.Invalid for a configuration that ParseConfig refuses, or whose
// lease is over; LocalAddrs'.
func New(o Options) (*Guard, error) {
	cfg, err := o.Config.compile()
	if err != nil {
		return nil, err
	}
	g := &Guard{cfg: cfg, digest: o.Config.Digest(), notes: o.Notes, pins: o.Config.Pins, clock: o.Clock, requests: map[*session]bool{}}
	if g.clock == nil {
		g.clock = System
	}
	if !g.clock.Now().Before(cfg.expires) {
		return nil, invalid("expires_at", "a time to come", string(o.Config.ExpiresAt))
	}
	if cfg.resolver, err = numbered(cfg.resolver); err != nil {
		return nil, err
	}
	if o.Log == nil {
		return nil, invalid("log", "a writer", "none")
	}
	if o.LocalAddrs == nil {
		o.LocalAddrs = interfaceAddrs
	}
	local, err := o.LocalAddrs()
	if err != nil {
		return nil, err
	}
	if g.infra, err = policy.NewInfrastructure(append(local, cfg.infra...)); err != nil {
		return nil, err
	}
	g.pipes.spare = &g.spare
	g.log = journal{w: o.Log, clock: g.clock, instance: o.Config.Instance, revision: o.Config.PolicyRevision, failed: make(chan struct{})}
	g.steps = g.realSteps()
	if o.Alter != nil {
		o.Alter(&g.steps)
	}
	return g, nil
}

func interfaceAddrs() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out, nil
}

// Listen opens a listener as Serve wants it: without multipath TCP, which
// net.Listen has by default.
func Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	c.KeepAlive = -1
	return c.Listen(ctx, network, address)
}

// ListenerError refuses a listener that Serve cannot serve.
type ListenerError struct{ Expected, Got string }

// Error is one line.
func (e *ListenerError) Error() string {
	return "listener: expected " + e.Expected + ", got " + e.Got
}

// Serve writes the log's first line and serves ln until ctx ends. Then all
// connections are ended, their closing lines written, and ln is closed: a client
// of the next policy revision must meet the next guard. It may be called once.
//
// When the lease is over, or the log cannot be written, all tunnels are ended
// and Serve goes on refusing: a listener that nobody accepts from would let
// clients wait. What a tunnel moved without a log nobody could account for, and
// a workload that fills a disk must not gain by it.
//
// Errors: *ListenerError; *LogError for the first line, or if the log failed at
// any time; the listener's, if it fails for good. nil if ctx ended.
func (g *Guard) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if g.used.Swap(true) {
		return &ListenerError{"a guard that has not served", "one that has"}
	}
	if err := checkListener(ln); err != nil {
		return err
	}
	listen := strings.ToValidUTF8(ln.Addr().Network()+" "+ln.Addr().String(), "?")
	if _, err := g.log.write(Line{Kind: KindStart, Config: g.digest, Listen: listen, Notes: g.notes, Pins: g.pins}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	g.ctx = ctx
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-g.log.failed:
			g.interrupt(EndStopped, g.log.broken())
		case <-ctx.Done():
		}
	}()
	g.watchLease()

	err := g.accept(ctx, ln)

	cancel()
	<-watched
	g.mu.Lock()
	g.over = true
	if g.lease != nil {
		g.lease()
	}
	for e := g.heads.Front(); e != nil; e = e.Next() {
		e.Value.(*session).conn.Close()
	}
	g.mu.Unlock()
	g.interrupt(EndStopped, context.Canceled)
	g.ends.Wait()
	g.pipes.end()
	if broken := g.log.broken(); broken != nil {
		return broken
	}
	return err
}

// checkListener refuses what cannot be spliced and what more paths can join.
func checkListener(ln net.Listener) error {
	switch l := ln.(type) {
	case *net.UnixListener:
		return nil
	case *net.TCPListener:
		raw, err := l.SyscallConn()
		if err != nil {
			return err
		}
		protocol, failed := 0, error(nil)
		if err := raw.Control(func(fd uintptr) {
			protocol, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		}); err != nil {
			return err
		}
		if failed != nil || protocol != unix.IPPROTO_TCP {
			return &ListenerError{"plain TCP (net.ListenConfig.SetMultipathTCP(false))", "another protocol, such as multipath TCP"}
		}
		return nil
	}
	return &ListenerError{"a TCP or unix listener", "another"}
}

// watchLease ends everything when the lease is over. It looks at the clock every
// now and then on the way, because a clock may be set.
func (g *Guard) watchLease() {
	left := g.cfg.expires.Sub(g.clock.Now())
	g.mu.Lock()
	g.expired = left <= 0
	if left > 0 && !g.over {
		g.lease = g.clock.AfterFunc(min(left, leaseStep), g.watchLease)
	}
	g.mu.Unlock()
	if left <= 0 {
		g.interrupt(EndExpired, errExpired)
	}
}

var errExpired = refuse(policy.ReasonExpired, 403, "lease", "one that holds", "one that is over")

// interrupt ends all tunnels, and all requests on their way to one.
func (g *Guard) interrupt(end End, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.requests {
		if s.tunnel != nil {
			s.tunnel.abort(end)
			continue
		}
		s.cancel(cause)
		_ = s.conn.SetReadDeadline(past)
	}
}

// past is a deadline that ends a wait now.
var past = time.Unix(1, 0)
