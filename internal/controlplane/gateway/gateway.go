package gateway

import (
	"container/list"
	"context"
	"crypto/x509"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Options is what a gateway is made of.
type Options struct {
	Upstreams []Upstream          // at least one, at most one of each style
	Keys      map[route.Style]Key // one for each upstream
	Leases    Leases
	Log       io.Writer // gets the lines, each in one Write, one at a time
	Limits    Limits
	Clock     Clock          // nil is System
	RootCAs   *x509.CertPool // that certify upstreams; nil is the system's
}

// Gateway is a model gateway: an http.Handler, and a server of itself.
type Gateway struct {
	upstreams map[route.Style]upstream
	leases    Leases
	limits    Limits
	clock     Clock
	ledger    ledger
	log       journal
	transport *http.Transport
}

type upstream struct {
	url *url.URL
	key Key
}

// New makes a gateway. It opens nothing.
// Errors: *sandbox.Invalid.
func New(o Options) (*Gateway, error) {
	g := &Gateway{upstreams: map[route.Style]upstream{}, leases: o.Leases, limits: o.Limits.orDefaults(), clock: o.Clock}
	if g.clock == nil {
		g.clock = System
	}
	for _, u := range o.Upstreams {
		parsed, err := u.compile()
		if err != nil {
			return nil, err
		}
		if _, twice := g.upstreams[u.Style]; twice {
			return nil, &sandbox.Invalid{Field: "upstreams", Expected: "one of each style", Got: "two of " + string(u.Style)}
		}
		key, ok := o.Keys[u.Style]
		if !ok || key == (Key{}) {
			return nil, &sandbox.Invalid{Field: "keys", Expected: "a key for " + string(u.Style), Got: "none"}
		}
		g.upstreams[u.Style] = upstream{parsed, key}
	}
	if len(g.upstreams) == 0 || o.Leases == nil || o.Log == nil {
		return nil, &sandbox.Invalid{Field: "options", Expected: "an upstream, a store of leases and a log", Got: "none"}
	}
	g.ledger = ledger{limits: g.limits, runs: map[string]*account{}}
	g.log = journal{w: o.Log, clock: g.clock, failed: make(chan struct{})}
	g.transport = newTransport(o.RootCAs)
	return g, nil
}

// Serve writes the log's first line and serves l until ctx ends; then it ends all
// requests, whose lines are still written, and closes l.
//
// Errors: *LogError, at the first line or later; the listener's, if it fails for
// good. nil if ctx ended.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	listen := strings.ToValidUTF8(l.Addr().Network()+" "+l.Addr().String(), "?")
	if err := g.log.write(Line{Kind: "start", Listen: listen}); err != nil {
		return err
	}
	base, stop := context.WithCancel(context.Background())
	defer stop()
	var fresh newcomers
	server := &http.Server{
		Handler:                      g,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnState:                    fresh.state,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headTime,
		IdleTimeout:                  keepTime,
		MaxHeaderBytes:               MaxHeaderBytes,
		ErrorLog:                     stdlog.New(io.Discard, "", 0), // it names addresses and headers
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-g.log.failed:
	case <-ctx.Done():
	}
	stop() // of all requests; each writes its line and ends
	end, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = server.Shutdown(end)
	_ = server.Close()
	g.transport.CloseIdleConnections()
	if broken := g.log.broken(); broken != nil {
		return broken
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// newcomers are connections that have no request yet, or none any more. Where
// they are too many the oldest is ended: a flood of them ends itself.
type newcomers struct {
	mu    sync.Mutex
	order list.List
	at    map[net.Conn]*list.Element
}

func (n *newcomers) state(c net.Conn, s http.ConnState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e, ok := n.at[c]; ok {
		n.order.Remove(e)
		delete(n.at, c)
	}
	if s != http.StateNew && s != http.StateIdle {
		return
	}
	if n.at == nil {
		n.at = map[net.Conn]*list.Element{}
	}
	n.at[c] = n.order.PushBack(c)
	if n.order.Len() > MaxHeads {
		oldest := n.order.Remove(n.order.Front()).(net.Conn)
		delete(n.at, oldest)
		oldest.Close()
	}
}

// watch ends a request when its lease is over, or is another's, or nothing has
// moved for too long. It looks at all three every leaseTime, and at the lease's
// own end.
type watch struct {
	gateway *Gateway
	digest  string
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	lease Lease
	moved time.Time
	stop  func() bool
	over  bool
}

// Why requests are ended.
var (
	errLease = &route.Refusal{Status: 401, Reason: route.ReasonLease, Message: "the lease of this run is over, or held by another"}
	errIdle  = &route.Refusal{Status: 504, Reason: route.ReasonLate, Message: "the upstream is silent"}
)

func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = w.gateway.clock.Now()
	w.again()
}

func (w *watch) again() {
	left := w.lease.ExpiresAt.Sub(w.gateway.clock.Now())
	w.stop = w.gateway.clock.AfterFunc(max(0, min(left, leaseTime)), w.look)
}

func (w *watch) look() {
	lease, err := w.gateway.leases.Lookup(w.digest)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if err == nil {
		w.lease = lease // it may have been made longer
	}
	now := w.gateway.clock.Now()
	switch {
	// A store that fails ends nothing that it let begin, before its time.
	case errors.Is(err, ErrNoLease), !now.Before(w.lease.ExpiresAt):
		w.cancel(errLease)
	case now.Sub(w.moved) >= w.gateway.limits.Idle:
		w.cancel(errIdle)
	default:
		w.again()
	}
}

func (w *watch) move() {
	w.mu.Lock()
	w.moved = w.gateway.clock.Now()
	w.mu.Unlock()
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.stop()
}
