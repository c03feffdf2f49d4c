package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Server is an http.Handler that serves one provider.
//
// Concurrency: all methods may be called at once.
// Ownership: the server owns every process that was opened through it, and the
// goroutines of every operation; Close ends both.
type Server struct {
	opt      Options
	provider sandbox.Provider
	optional sandbox.Optional
	access   access
	clock    Clock
	boot     wire.BootID
	envelope atomic.Pointer[envelope]

	journal   *journal
	leases    *leases
	processes *processes

	ctx     context.Context // of everything that outlives its request
	cancel  context.CancelFunc
	calls   chan struct{} // one for each call that is served
	holds   chan struct{} // one for each that waits for something
	leaving chan struct{} // closed by Close: who waits for a process, waits no longer
	bodies  atomic.Int64  // bytes of requests that are held

	mu      sync.Mutex
	closing bool
	closed  bool           // the work is done
	work    sync.WaitGroup // operations and rollbacks
	answers sync.WaitGroup // calls that were let in, until they are answered
}

type envelope struct {
	digest   sandbox.Digest
	response wire.CapabilitiesResponse
}

// openBound is how long the provider has to say what it is.
const openBound = 30 * time.Second

// New returns a server over o.Provider. It asks the provider for its envelope,
// and takes up the journal that an earlier server left.
// Errors: a *sandbox.Invalid for an option out of bounds; the provider's; the
// operating system's; an envelope that has no form on the wire.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opt: o, provider: o.Provider, optional: o.Provider.Optional(), clock: o.Clock, boot: wire.NewBootID(), calls: make(chan struct{}, o.MaxCalls), holds: make(chan struct{}, maxHolds), leaving: make(chan struct{})}
	if s.access, err = newAccess(o); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openBound)
	defer cancel()
	if err := s.describe(ctx); err != nil {
		return nil, err
	}
	st, err := o.Journal()
	if err != nil {
		return nil, err
	}
	s.leases = newLeases(st, o.Clock)
	s.journal = newJournal(st, o)
	if err := s.restore(st); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.processes = newProcesses(s)
	s.processes.restore(s.journal)
	return s, nil
}

// describe asks the provider what it is.
func (s *Server) describe(ctx context.Context) error {
	c, err := s.provider.Capabilities(ctx)
	if err != nil {
		return err
	}
	digest, err := wire.CapabilitiesDigest(c)
	if err != nil {
		return err
	}
	info := wire.Info{
		Revision: wire.Revision, Members: wire.Members(c, s.optional), AsyncOperations: true,
		Limits: wire.Limits{MaxWaitMS: s.opt.MaxWait.Milliseconds()},
	}
	if s.optional.OpenProcess != nil {
		info.Limits.OutputWindowBytes, info.Limits.InputBufferBytes = int64(s.opt.OutputWindow), int64(s.opt.InputBuffer)
	}
	e := &envelope{digest, wire.CapabilitiesResponse{Capabilities: c, Wire: info}}
	if _, err := wire.Encode(e.response); err != nil {
		return err
	}
	s.envelope.Store(e)
	return nil
}

// ServeHTTP answers one request. Nothing is answered that is not authenticated,
// and nothing is read of a body that is too long.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := s.open(w, r)
	if err == nil {
		err = s.serve(c)
	}
	if err == nil {
		return
	}
	if r.Context().Err() != nil {
		// The caller has gone, or half of its connection has: then it reads yet, and
		// must not take the end of its waiting for the provider's last word.
		panic(http.ErrAbortHandler)
	}
	if r.ContentLength != 0 && !c.whole && r.ProtoMajor == 1 {
		// The rest of the body is not waited for: it may never come.
		w.Header().Set("Connection", "close")
	}
	s.send(w, s.refusal(c.endpoint, err))
}

// serve fences, then hands the call to its endpoint.
func (s *Server) serve(c *call) (err error) {
	leave, err := s.enter(c)
	if err != nil {
		return err
	}
	defer leave()
	if c.traits.Lease {
		if err := s.admit(c.header.Lease); err != nil {
			return err
		}
	}
	defer s.caught(&err)
	return handlers[c.endpoint](c)
}

// caught turns a panic on the way to the provider into a failure: one defect of
// one call is not the end of everybody's instances.
func (s *Server) caught(err *error) {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is compared, by its own documentation
			panic(p)
		}
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// holds are the endpoints that wait for something else: they are bounded by
// what they wait for.
var holds = map[wire.Endpoint]bool{wire.ProcessStream: true, wire.ProcessWait: true, wire.PollOperation: true}

// maxHolds is how many of them there may be at once.
const maxHolds = 1 << 14

// retryAfterMS is what an overloaded server asks for.
const retryAfterMS = 500

func overloaded() error { return &wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: retryAfterMS} }

// enter counts the call in, unless the server is full or leaving.
func (s *Server) enter(c *call) (leave func(), err error) {
	answered, err := s.letIn(c)
	if err != nil {
		return nil, err
	}
	size := max(c.r.ContentLength, 0)
	if s.bodies.Add(size) > s.opt.MaxBodyBytes {
		s.bodies.Add(-size)
		answered()
		return nil, overloaded()
	}
	room := s.calls
	if holds[c.endpoint] {
		room = s.holds
	}
	select {
	case room <- struct{}{}:
		return func() { <-room; s.bodies.Add(-size); answered() }, nil
	default:
		s.bodies.Add(-size)
		answered()
		return nil, overloaded()
	}
}

// goes runs fn on a goroutine that Close waits for; false once the server is
// leaving.
func (s *Server) goes(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.work.Go(fn)
	return true
}

// letIn makes Close wait for the answer of a call, from before anything is done
// for it: what it does may be the reason why the server leaves, and over before
// its caller comes to wait for it. A stream is not waited for: it is told to end.
func (s *Server) letIn(c *call) (answered func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The operation that a poll asks for may be one that is waited for.
	if s.closed || s.closing && c.endpoint != wire.PollOperation {
		return nil, overloaded()
	}
	if c.traits.ResponseBytes == 0 {
		return func() {}, nil
	}
	s.answers.Add(1)
	return s.answers.Done, nil
}

// Close drains the server: streams get detach{draining}, new calls are refused
// as overloaded, operations that run are waited for until ctx is done and then
// cancelled, and every call that was let in gets its answer; live processes end,
// and the journal is closed. A call that does not end is left behind after 30 s
// more.
// Errors: ctx's where something was cancelled; the store's. A second Close does
// nothing.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	s.mu.Unlock()
	if again {
		return nil
	}
	close(s.leaving)
	s.processes.drain()
	worked, done := make(chan struct{}), make(chan struct{})
	go func() {
		s.work.Wait()
		close(worked)
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.answers.Wait()
		close(done)
	}()
	var err error
	select {
	case <-worked:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.cancel()
	s.processes.close()
	bound := time.NewTimer(retireBound)
	defer bound.Stop()
	select {
	case <-done:
	case <-bound.C:
		err = errors.Join(err, errors.New("a call did not end: its provider did not come back, or its caller reads or sends nothing"))
	}
	return errors.Join(err, s.journal.store.Close())
}

func (s *Server) log(err error) { s.opt.Log(err) }
