package matrix

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/internal/controlplane/gateway"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/route"
)

// plane is the model gateway of a lab: the one that ships, behind the sink at
// gatewayAddr, with leases of its own. Its upstream is ours and takes nothing but
// the key, which is made for this lab and is in this process alone.
type plane struct {
	key    string
	leases *gateway.Store
	asked  atomic.Int64 // requests that came to the upstream with the key

	dir      string
	conns    chan net.Conn // from the sink to the gateway
	closed   chan struct{}
	gateway  *http.Server
	upstream *http.Server
	served   sync.WaitGroup
}

// openPlane serves the plane of a lab until it is closed.
func openPlane(l *lab.Lab) (_ *plane, err error) {
	p := &plane{key: "sk-" + rand.Text(), conns: make(chan net.Conn), closed: make(chan struct{})}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.dir, err = lab.Scratch(); err != nil {
		return nil, err
	}
	if p.leases, err = gateway.OpenStore(p.dir, nil); err != nil {
		return nil, err
	}
	// The upstream is out of everybody's reach: on the host's loopback, where
	// neither the workload nor guard or relay of the lab is.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.upstream = &http.Server{Handler: http.HandlerFunc(p.answer), ReadHeaderTimeout: patience}
	p.served.Go(func() { p.upstream.Serve(listener) })
	key, err := gateway.ReadKey(strings.NewReader(p.key), "the lab")
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(gateway.Options{
		Upstreams: []gateway.Upstream{{Style: route.Anthropic, URL: "http://" + listener.Addr().String()}},
		Keys:      map[route.Style]gateway.Key{route.Anthropic: key},
		Leases:    p.leases, Counts: p.leases, Log: io.Discard,
	})
	if err != nil {
		return nil, err
	}
	p.gateway = &http.Server{Handler: g, ReadHeaderTimeout: patience}
	p.gateway.SetKeepAlivesEnabled(false) // what was accepted is over when it was answered
	p.served.Go(func() { p.gateway.Serve(p) })
	l.Ledger.Serve(gatewayAddr, p.take)
	return p, nil
}

// answer is the upstream: a message for who has the key.
func (p *plane) answer(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	if r.Header.Get("X-Api-Key") != p.key {
		http.Error(w, "another key", http.StatusUnauthorized)
		return
	}
	p.asked.Add(1)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"type":"message","usage":{"input_tokens":1,"output_tokens":1}}`)
}

// lease grants a lease, and its token.
func (p *plane) lease(r RunRecord) (token string, err error) {
	return p.leases.Grant(gateway.Lease{RunID: r.RunID, LeaseID: r.LeaseID, LeaseEpoch: r.LeaseEpoch, ExpiresAt: time.Now().Add(time.Hour)})
}

// newRun names a run that there was not before.
func newRun() RunRecord {
	return RunRecord{RunID: "run_" + strings.ToLower(rand.Text()), LeaseID: "lea_" + strings.ToLower(rand.Text()), LeaseEpoch: 1}
}

// take hands a connection of the sink to the gateway, to its end.
func (p *plane) take(conn net.Conn) {
	c := &handed{Conn: conn, done: make(chan struct{})}
	select {
	case p.conns <- c:
		<-c.done
	case <-p.closed:
	}
}

// handed is a connection that its giver waits for.
type handed struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

// Close ends it.
func (c *handed) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	return err
}

// Accept, Close and Addr make the plane the listener of its gateway.
func (p *plane) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close takes no more connections.
func (p *plane) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

// Addr is where the sink is.
func (p *plane) Addr() net.Addr { return net.TCPAddrFromAddrPort(gatewayAddr) }

// close ends all of it.
func (p *plane) close() error {
	var errs []error
	for _, s := range []*http.Server{p.gateway, p.upstream} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	p.Close()
	p.served.Wait()
	if p.leases != nil {
		errs = append(errs, p.leases.Close())
	}
	if p.dir != "" {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}
