package relay

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options is what a relay is made of.
type Options struct {
	Config Config
	// Log gets the lines, each in one Write, one at a time. If it has a method
	// SetWriteDeadline, a Write that takes longer than 5 seconds has failed.
	Log io.Writer
	// Clock is the time; nil is System.
	Clock Clock
	// Notes go into the log's first line: what the process says of itself.
	Notes []string
}

// Relay is the model relay of one sandbox, for one lease.
type Relay struct {
	cfg     compiled
	digest  string
	notes   []string
	clock   Clock
	log     journal
	gateway *http.Transport
	used    atomic.Bool
	ends    sync.WaitGroup // one for each connection

	mu      sync.Mutex
	waiting list.List // connections that hold no place: heads on their way, and refused ones; the oldest first
	places  int       // held by requests
	lease   func() bool
}

// New makes a relay. It opens nothing.
// Errors: *sandbox.Invalid for a configuration that ParseConfig refuses, or whose
// lease is over.
func New(o Options) (*Relay, error) {
	cfg, err := o.Config.compile()
	if err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, digest: o.Config.Digest(), notes: o.Notes, clock: o.Clock}
	if r.clock == nil {
		r.clock = System
	}
	if !r.clock.Now().Before(cfg.expires) {
		return nil, invalid("expires_at", "a time to come", string(o.Config.ExpiresAt))
	}
	if o.Log == nil {
		return nil, invalid("log", "a writer", "none")
	}
	r.log = journal{w: o.Log, clock: r.clock, instance: o.Config.Instance, failed: func() {}}
	r.gateway = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: connectTime, KeepAlive: -1, FallbackDelay: -1}
			d.SetMultipathTCP(false)
			return d.DialContext(ctx, cfg.network, cfg.address)
		},
		// One request on each connection here too: none is ever sent twice because
		// a kept one had died.
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHeadBytes,
		WriteBufferSize:        pieceBytes,
	}
	return r, nil
}

// Why requests end; see End.
var (
	errStopped = errors.New("the relay was told to end")
	errExpired = errors.New("the lease is over")
	errClient  = errors.New("the workload is gone")
	errIdle    = errors.New("the gateway is silent")
)

// Serve writes the log's first line and serves l until ctx ends; then it ends all
// requests and closes l. It may be called once. When the lease is over, all
// requests are ended and new ones refused.
//
// Errors: *LogError, at the first line or later; the listener's, if it fails for
// good. nil if ctx ended.
func (r *Relay) Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	if r.used.Swap(true) {
		return errors.New("relay: expected to serve once")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(errStopped)
	r.log.failed = func() { stop(errStopped) }
	defer context.AfterFunc(ctx, func() { l.Close() })()
	listen := strings.ToValidUTF8(l.Addr().Network()+" "+l.Addr().String(), "?")
	if err := r.log.write(Line{Kind: KindStart, Config: r.digest, Listen: listen, Notes: r.notes}); err != nil {
		return err
	}
	leased, over := context.WithCancelCause(ctx)
	defer over(errStopped)
	r.watchLease(over)
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.lease != nil {
			r.lease()
		}
	}()

	err := r.accept(ctx, leased, l)
	stop(errStopped)
	r.ends.Wait()
	r.gateway.CloseIdleConnections()
	if broken := r.log.broken(); broken != nil {
		return broken
	}
	return err
}

// watchLease ends everything when the lease is over. It looks at the clock every
// now and then on the way, because a clock may be set.
func (r *Relay) watchLease(over context.CancelCauseFunc) {
	left := r.cfg.expires.Sub(r.clock.Now())
	if left <= 0 {
		over(errExpired)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease = r.clock.AfterFunc(min(left, leaseStep), func() { r.watchLease(over) })
}

// accept takes connections until ctx ends.
func (r *Relay) accept(ctx, leased context.Context, l net.Listener) error {
	pause := firstPause
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // no descriptors, or a connection that died in the queue
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		s := &session{relay: r, conn: conn}
		s.wait()
		r.ends.Go(func() { s.run(ctx, leased) })
	}
}

// wait puts a connection among those that hold no place. Where they are too many
// the oldest is ended: a flood of them ends itself.
func (s *session) wait() {
	r := s.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	s.waits = r.waiting.PushBack(s)
	if r.waiting.Len() > MaxHeads {
		oldest := r.waiting.Front()
		r.waiting.Remove(oldest)
		oldest.Value.(*session).conn.Close()
	}
}

// leave takes it out again.
func (s *session) leave() {
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	s.relay.waiting.Remove(s.waits) // nothing, where it was ended
}

// take takes a place, and reports whether there was one.
func (s *session) take() bool {
	r := s.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.places == r.cfg.requests {
		return false
	}
	r.places++
	r.waiting.Remove(s.waits)
	return true
}

// give gives it back.
func (s *session) give() {
	s.relay.mu.Lock()
	s.relay.places--
	s.relay.mu.Unlock()
	s.wait()
}
