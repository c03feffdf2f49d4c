package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// effect is what an operation did, beside its answer.
type effect struct {
	answer   answer
	message  wire.Message // in place of answer
	instance sandbox.InstanceID
	snapshot sandbox.SnapshotID
	until    sandbox.Timestamp           // of what was allocated
	lease    string                      // of an instance that is new
	undo     func(context.Context) error // of a handoff
	ended    []sandbox.InstanceID        // are gone now
}

// mutate drives one mutating call: found in the journal, or run once, on a
// goroutine that its caller's disconnection does not end. The instance, if it
// names one, has to be its lease's; but not for a retry, because the operation
// itself may have ended it.
func (c *call) mutate(instance sandbox.InstanceID, run func(ctx context.Context, o *operation) (effect, error)) error {
	s := c.s
	s.sweep()
	if instance != "" && s.journal.find(c.header.Operation) == nil {
		if err := c.scope(instance); err != nil {
			return err
		}
	}
	o, fresh, err := s.journal.begin(c.header.Operation, record{Endpoint: c.endpoint, Digest: c.digest, Instance: instance, Process: c.opens})
	if err != nil {
		return err
	}
	if fresh {
		ctx, cancel := bounded(s.ctx, c.header.Deadline)
		s.journal.mu.Lock()
		o.cancel = cancel
		unwinding := o.unwind != nil
		s.journal.mu.Unlock()
		if unwinding { // a rollback came in between
			cancel()
		}
		if !s.goes(func() { defer cancel(); s.run(ctx, o, run) }) {
			cancel()
			s.settle(o, effect{}, overloaded())
		}
	}
	return c.await(o, c.wait())
}

// scope holds a call to an instance of its own lease. That it names the instance
// acknowledges that the allocation was taken over.
func (c *call) scope(id sandbox.InstanceID) error {
	if err := c.s.leases.holds(c.traits.Member, id, c.header.Lease); err != nil {
		return err
	}
	c.s.journal.acknowledge("instance/" + string(id))
	return nil
}

// await sends the answer of an operation, or 202 once it was held for wait. A
// server that leaves waits for its operations, and so do their callers: what
// ended may have been the reason to leave, and nobody would be there to ask.
func (c *call) await(o *operation, wait time.Duration) error {
	a, err := c.outcome(o, wait)
	if err != nil {
		return err
	}
	c.s.send(c.w, a)
	return nil
}

func (c *call) outcome(o *operation, wait time.Duration) (answer, error) {
	due, stop := c.s.clock.NewTimer(wait)
	defer stop()
	select {
	case <-o.finished:
	case <-due:
	case <-c.s.ctx.Done():
	case <-c.r.Context().Done():
		return answer{}, c.r.Context().Err() // nobody reads it
	}
	select { // several may be so, and this one is the news
	case <-o.finished:
		return c.s.journal.result(o)
	default:
		return accepted(o)
	}
}

// accepted says that an operation goes on.
func accepted(o *operation) (answer, error) {
	a, err := said(wire.Running{OperationID: o.id, State: string(running)})
	a.status = http.StatusAccepted
	return a, err
}

// run calls the provider and settles the operation.
func (s *Server) run(ctx context.Context, o *operation, run func(context.Context, *operation) (effect, error)) {
	var e effect
	err := func() (err error) {
		defer s.caught(&err)
		e, err = run(ctx, o)
		return err
	}()
	s.settle(o, e, err)
}

// settle writes down how an operation ended, and then tells who waits.
func (s *Server) settle(o *operation, e effect, err error) {
	if err == nil && e.message != nil {
		if e.answer, err = said(e.message); err != nil {
			// It was allocated and cannot be told: nobody could own it.
			s.log(err)
			s.abandon(o, e)
			e = effect{}
		}
	}
	if errors.Is(err, &wire.Error{Tag: wire.TagOverloaded}) {
		// Nothing was done: the same request may come again.
		if werr := s.journal.retract(o); werr != nil {
			s.log(werr)
		}
		return
	}
	if err != nil {
		a := s.refusal(o.record.Endpoint, err)
		if werr := s.journal.finish(o, a, false, s.leases.end(e.ended...)...); werr != nil {
			s.log(werr)
		}
		s.processes.end(e.ended...)
		return
	}
	var changes []store.Change
	allocation := e.undo != nil
	if e.lease != "" {
		bound, mine := s.leases.bind(e.instance, binding{Lease: e.lease, Owner: o.id, Until: e.until})
		if mine {
			changes = append(changes, bound)
		} else {
			s.log(errors.New("the provider allocated an instance under the id of another"))
			e.instance = ""
		}
	}
	if allocation {
		s.journal.allocated(o, e.instance, e.snapshot, e.until, e.undo)
	}
	changes = append(changes, s.leases.end(e.ended...)...)
	if werr := s.journal.finish(o, e.answer, allocation, changes...); werr != nil {
		s.log(werr)
	}
	s.processes.end(e.ended...)
}

// abandon undoes an allocation that nobody will own.
func (s *Server) abandon(o *operation, e effect) {
	if e.undo == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, sandbox.RollbackSeconds*time.Second)
	defer cancel()
	if err := e.undo(ctx); err != nil {
		s.log(err)
	}
}

// sweepEvery is how often what is forgotten is looked for.
const sweepEvery = time.Minute

// sweep forgets what has had its time. It runs on the calls that come, so that
// an idle server does nothing.
func (s *Server) sweep() {
	now := s.clock.Now()
	j := s.journal
	j.mu.Lock()
	due := now.Sub(j.lastSweep) >= sweepEvery
	if due {
		j.lastSweep = now
	}
	j.mu.Unlock()
	if !due {
		return
	}
	changes := j.sweep(now, s.leases.until)
	gone, more := s.leases.sweep(now)
	s.processes.end(gone...)
	if changes = append(changes, more...); len(changes) > 0 {
		if err := j.store.Queue(changes...); err != nil {
			s.log(err)
		}
	}
}

// restore takes up what an earlier server left. What ran then is lost.
func (s *Server) restore(st store.Store) error {
	if err := s.leases.restore(); err != nil {
		return err
	}
	return s.journal.restore()
}

// operation serves the poll of one operation.
func (s *Server) operation(c *call) error {
	m, err := request[wire.OperationRequest](c)
	if err != nil {
		return err
	}
	o := s.journal.find(m.OperationID)
	if o == nil {
		return &wire.Error{Tag: wire.TagOperationUnknown}
	}
	return c.await(o, min(time.Duration(m.WaitMS)*time.Millisecond, s.opt.MaxWait))
}
