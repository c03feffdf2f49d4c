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

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Options is what a gateway is made of.
type Options struct {
	Upstreams []Upstream          // at least one, at most one of each style
	Keys      map[route.Style]Key // one for each upstream
	Leases    Leases
	Counts    Counts
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

	mu      sync.Mutex
	watches map[*watch]bool // of the requests under way
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
	if len(g.upstreams) == 0 || o.Leases == nil || o.Counts == nil || o.Log == nil {
		return nil, &sandbox.Invalid{Field: "options", Expected: "an upstream, leases, counts and a log", Got: "none"}
	}
	g.ledger = ledger{limits: g.limits, counts: o.Counts, runs: map[string]*account{}}
	g.log = journal{w: o.Log, clock: g.clock, failed: make(chan struct{})}
	g.transport = newTransport(o.RootCAs)
	g.watches = map[*watch]bool{}
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

// settle looks at the lease of every request of a run at once, and waits until
// none of them is left whose lease is over.
//
// Blocks: until no request of the run is under way, or ctx is done, which answers
// false.
func (g *Gateway) settle(ctx context.Context, runID string) bool {
	g.mu.Lock()
	var of []*watch
	for w := range g.watches {
		if w.runID == runID {
			of = append(of, w)
		}
	}
	g.mu.Unlock()
	for _, w := range of {
		w.look()
	}
	select {
	case <-g.ledger.idle(runID):
		return true
	case <-ctx.Done():
		return false
	}
}
