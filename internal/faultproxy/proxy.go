// Package faultproxy stands between a client and a server of HTTP/1.1 and does
// to their exchanges what networks do: it cuts, loses, doubles, delays and
// garbles them, by script.
//
// What a script gets is decided by the request alone, so a run can be repeated.
// Bytes that pass are passed as they are, head and framing included.
//
// Trusts: both ends, with its own memory: a request is held whole.
// Errors: a fault of either end ends the connection; nothing is reported.
// Ownership: Close closes everything that was opened and waits for every
// goroutine.
// Concurrency: one goroutine or two for each connection.
// Source: RFC 9112, "Message Body Length", "Chunked Transfer Coding".
package faultproxy

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"
)

// Options are what a Proxy is made from. Dial and Script must be set.
type Options struct {
	Dial   func(context.Context) (net.Conn, error) // connects to the server
	Script Script
	Stall  time.Duration // how long a stalled response stands still; 0 is until either end has gone
	Pause  time.Duration // between the pieces of a dripping response; 0 is 1 ms
}

// Proxy is a running proxy.
type Proxy struct {
	o      Options
	l      net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	paths  map[string]int
	count  int
	faults map[Kind]int
}

// Listen starts a proxy on l, which it owns from now on.
func Listen(l net.Listener, o Options) *Proxy {
	p := &Proxy{o: o, l: l, conns: map[net.Conn]struct{}{}, paths: map[string]int{}, faults: map[Kind]int{}}
	if p.o.Pause == 0 {
		p.o.Pause = time.Millisecond
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.l.Addr() }

// Exchanges is how many requests have come.
func (p *Proxy) Exchanges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Faults is how many of each kind were done. A fault that its exchange was too
// short for was not.
func (p *Proxy) Faults() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[Kind]int{}
	for k, n := range p.faults {
		all[k] = n
	}
	return all
}

// Cut closes every connection that there is, as the loss of a network would.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Close ends the proxy and everything that it opened.
// Errors: the listener's.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	err := p.l.Close()
	p.Cut()
	p.work.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.keep(c) {
			p.work.Go(func() { p.serve(c) })
		}
	}
}

// keep notes a connection, so that Close leaves none.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) dial() (net.Conn, bool) {
	c, err := p.o.Dial(p.ctx)
	if err != nil {
		return nil, false
	}
	return c, p.keep(c)
}

func (p *Proxy) fault(path string) Fault {
	p.mu.Lock()
	e := Exchange{N: p.count, Path: path, Nth: p.paths[path]}
	p.count++
	p.paths[path]++
	p.mu.Unlock()
	return p.o.Script(e)
}

func (p *Proxy) did(k Kind) {
	if k != Pass {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults[k]++
	}
}

// serve serves one connection of a client, exchange by exchange.
func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	in := bufio.NewReaderSize(client, 64<<10)
	s := &session{p: p, client: client}
	defer s.hangUp()
	for {
		r, err := readRequest(in)
		if err != nil {
			return
		}
		// Whoever stops reading a response closes the connection; then the server
		// must hear of it.
		left := make(chan struct{})
		p.work.Go(func() {
			defer close(left)
			if _, err := in.Peek(1); err != nil {
				s.hangUp()
			}
		})
		again := s.exchange(r, p.fault(r.path))
		if !again {
			_ = client.Close()
		}
		<-left // the next request has come, or the client has gone
		if !again {
			return
		}
	}
}
