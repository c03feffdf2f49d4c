package lab

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// The bounds of a ledger. A flood is counted up to them and then refused.
const (
	firstBytes  = 40
	maxAccepts  = 1 << 16
	maxConns    = 8192
	maxConnTime = time.Minute
)

// Accept is a connection that reached a sink.
type Accept struct {
	In            string         // name of the namespace that accepted it
	Local, Remote netip.AddrPort // Local is the address that the caller dialled
	First         []byte         // its first bytes, at most 40
	Bytes         int64          // how many arrived
	Closed        bool           // no more will
}

// Behaviour is what a sink does with a connection. It need not close it.
type Behaviour func(net.Conn)

// Ledger is what the sinks of all namespaces accepted. A sink listens at every
// address of its namespace and echoes, but where something else is asked for.
type Ledger struct {
	mu      sync.Mutex
	accepts []*Accept
	conns   map[net.Conn]bool
	known   map[netip.AddrPort]bool // where anything was ever accepted
	serve   map[netip.AddrPort]Behaviour
	changed chan struct{} // closed and replaced at each change
	closed  bool
	running sync.WaitGroup
}

func newLedger() *Ledger {
	return &Ledger{conns: map[net.Conn]bool{}, known: map[netip.AddrPort]bool{}, serve: map[netip.AddrPort]Behaviour{}, changed: make(chan struct{})}
}

// Serve gives an address of any namespace a behaviour; nil is echo again.
func (l *Ledger) Serve(at netip.AddrPort, b Behaviour) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b == nil {
		delete(l.serve, at)
		return
	}
	l.serve[at] = b
}

// Mark is where the ledger is now.
func (l *Ledger) Mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepts)
}

// Since returns what was accepted after a mark, without the lab's own probes, in
// the order of arrival.
func (l *Ledger) Since(mark int) []Accept {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since(mark)
}

func (l *Ledger) since(mark int) []Accept {
	var out []Accept
	for _, a := range l.accepts[min(mark, len(l.accepts)):] {
		if !barrier(*a) {
			copied := *a
			copied.First = slices.Clone(a.First)
			out = append(out, copied)
		}
	}
	return out
}

// barrier reports whether it is one of Settle's own: nothing else goes there, and
// nobody else calls the guard from pub.
func barrier(a Accept) bool {
	return barriers.Contains(a.Local.Addr()) || a.Remote.Addr() == publicEdge
}

// Known reports whether anything was ever accepted there. The last segments of
// such a connection may come long after its end.
func (l *Ledger) Known(at netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[at]
}

// Closed waits until everything accepted after the mark has ended, so that its
// bytes are final, and returns it.
// Errors: of ctx, with what there is.
func (l *Ledger) Closed(ctx context.Context, mark int) ([]Accept, error) {
	err := l.wait(ctx, func() bool {
		return !slices.ContainsFunc(l.since(mark), func(a Accept) bool { return !a.Closed })
	})
	return l.Since(mark), err
}

// wait waits for a condition, which is asked under the lock.
func (l *Ledger) wait(ctx context.Context, met func() bool) error {
	for {
		l.mu.Lock()
		done, changed := met(), l.changed
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// change does something under the lock and wakes who waits.
func (l *Ledger) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// listen opens sinks at every address of a namespace.
func (l *Ledger) listen(n *Namespace, ports ...uint16) ([]net.Listener, error) {
	var out []net.Listener
	for _, port := range ports {
		listener, err := n.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), port))
		if err != nil {
			return out, err
		}
		out = append(out, listener)
		l.running.Go(func() { l.accept(n.Name, listener) })
	}
	return out, nil
}

func (l *Ledger) accept(in string, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed; a sink has descriptors to spare
		}
		a := &Accept{In: in, Local: addrPort(conn.LocalAddr()), Remote: addrPort(conn.RemoteAddr())}
		var b Behaviour
		taken := false
		l.change(func() {
			if l.closed || len(l.accepts) >= maxAccepts || len(l.conns) >= maxConns {
				return
			}
			taken = true
			l.accepts = append(l.accepts, a)
			l.known[a.Local] = true
			l.conns[conn] = true
			b = l.serve[a.Local]
		})
		if !taken {
			conn.Close()
			continue
		}
		l.running.Go(func() { l.serveOne(conn, a, b) })
	}
}

func (l *Ledger) serveOne(conn net.Conn, a *Accept, b Behaviour) {
	conn.SetDeadline(time.Now().Add(maxConnTime))
	if b == nil {
		b = echo
	}
	b(&counted{Conn: conn, ledger: l, accept: a})
	conn.Close()
	l.change(func() {
		a.Closed = true
		delete(l.conns, conn)
	})
}

// close ends all connections and waits for their goroutines. The listeners are
// closed already.
func (l *Ledger) close() {
	l.change(func() {
		l.closed = true
		for conn := range l.conns {
			conn.Close()
		}
	})
	l.running.Wait()
}

func echo(conn net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if _, err := conn.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// counted writes what is read into the ledger.
type counted struct {
	net.Conn
	ledger *Ledger
	accept *Accept
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.ledger.change(func() {
			c.accept.Bytes += int64(n)
			if room := firstBytes - len(c.accept.First); room > 0 {
				c.accept.First = append(c.accept.First, p[:min(n, room)]...)
			}
		})
	}
	return n, err
}

// CloseWrite ends what is sent.
func (c *counted) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().WithZone("").Unmap(), ap.Port())
}
