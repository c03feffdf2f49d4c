package server

import (
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// unwinding is one rollback under way. Callers that come meanwhile join it.
type unwinding struct {
	settled chan struct{} // closed when err is final
	err     error
}

// rollback serves the compensation of one operation. It works from the id alone,
// because that is all that a caller has whose answer was lost.
//
// After it nothing of the operation is left, and a late original of it runs no
// more: an id that nobody used becomes a tombstone. What holds no allocation is
// merely stopped. It is held as any call is, and refused as overloaded after
// that: whoever asks again joins the same rollback.
// Source: contract "Allocation handoff".
func (s *Server) rollback(c *call) error {
	m, err := request[wire.RollbackRequest](c)
	if err != nil {
		return err
	}
	u, err := s.unwind(m)
	if err != nil {
		return err
	}
	if u != nil {
		due, stop := s.clock.NewTimer(c.wait())
		defer stop()
		select {
		case <-u.settled:
		case <-due:
		case <-s.ctx.Done():
		case <-c.r.Context().Done():
			return c.r.Context().Err()
		}
		select {
		case <-u.settled:
			if u.err != nil {
				return u.err
			}
		default:
			return overloaded()
		}
	}
	return c.reply(wire.Settled{Settled: true})
}

// unwind finds or starts the rollback; nil where nothing is left to be done.
func (s *Server) unwind(m wire.RollbackRequest) (*unwinding, error) {
	j := s.journal
	j.mu.Lock()
	o := j.ops[m.OperationID]
	if o == nil {
		if len(j.ops) >= j.max && !j.thin() {
			j.mu.Unlock()
			return nil, &wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: wire.MaxRetryAfterMS}
		}
		o = &operation{id: m.OperationID, durable: j.store.Durable(), finished: make(chan struct{}), cancel: func() {},
			record: record{Endpoint: m.Member, State: rolledBack, Until: sandbox.At(j.clock.Now())}}
		close(o.finished)
		j.ops[m.OperationID] = o
		err := j.save(o)
		j.mu.Unlock()
		if err == nil {
			err = j.store.Sync()
		}
		return nil, err
	}
	defer j.mu.Unlock()
	t, _ := o.record.Endpoint.Traits()
	switch {
	case o.record.Endpoint != m.Member:
		return nil, &wire.Error{Tag: wire.TagOperationMismatch}
	case o.record.State == rolledBack:
		return nil, nil
	case o.record.Owned:
		return nil, sandbox.Conflict(t.Member+wire.OperationSuffixRollback, "an allocation that nobody named yet", "owned")
	case o.unwind != nil:
		return o.unwind, nil
	}
	u := &unwinding{settled: make(chan struct{})}
	o.unwind = u
	o.cancel()
	if !s.goes(func() { s.undo(o, u) }) {
		o.unwind = nil
		return nil, overloaded()
	}
	return u, nil
}

// undo waits for the operation and takes back what it did. A rollback that
// failed may be asked for again.
func (s *Server) undo(o *operation, u *unwinding) {
	<-o.finished
	err := func() (err error) {
		defer s.caught(&err)
		return s.compensate(o)
	}()
	j := s.journal
	j.mu.Lock()
	var changes []store.Change
	if err == nil {
		instance := o.record.Instance
		if t, _ := o.record.Endpoint.Traits(); t.Handoff {
			j.drop(o)
			o.record.State, o.undo = rolledBack, nil
			changes = append(changes, store.Remove(store.Results, string(o.id)))
			if t.Member != sandbox.OpSnapshot && t.Member != sandbox.OpCloneSnapshot && instance != "" {
				changes = append(changes, s.leases.end(instance)...)
				defer s.processes.end(instance)
			}
		}
		if o.durable {
			changes = append(changes, j.written(o))
		}
	}
	o.unwind = nil
	if err == nil {
		err = j.store.Queue(changes...)
	}
	j.mu.Unlock()
	if err == nil {
		err = j.store.Sync()
	}
	if err != nil {
		err = s.named(o, err)
	}
	u.err = err
	close(u.settled)
}

// named says a failed compensation in the contract's words.
func (s *Server) named(o *operation, err error) error {
	failure := s.typed(o.record.Endpoint, err)
	if a, ok := failure.(*sandbox.Error); ok { //nolint:errorlint // typed returns it bare
		renamed := *a
		t, _ := o.record.Endpoint.Traits()
		renamed.Operation = t.Member + wire.OperationSuffixRollback
		return &renamed
	}
	return failure
}

// compensate undoes what one finished operation allocated: by the provider's own
// compensation while this process lives, and after a restart from the record
// alone, which names what the provider said it had allocated under this id.
func (s *Server) compensate(o *operation) error {
	j := s.journal
	j.mu.Lock()
	r, undo, write := o.record, o.undo, o.write
	j.mu.Unlock()
	// The provider goes on when nobody waits for it any more.
	ctx := s.ctx
	t, _ := r.Endpoint.Traits()
	switch {
	case r.State == lost && r.Endpoint == wire.Activate:
		return s.provider.Destroy(ctx, r.Instance) // whether it became active or not
	case r.State == lost && t.Handoff:
		// What it allocated has no name here. The provider's own sweep finds it.
		return sandbox.Failed(t.Member, sandbox.ReasonIndeterminate, nil)
	case undo != nil:
		return undo(ctx)
	case r.Endpoint == wire.OpenProcess:
		return s.processes.discard(ctx, o.id)
	case write != nil:
		return write.Abort(ctx)
	case !t.Handoff || r.Status != 200:
		return nil
	}
	if r.Snapshot != "" {
		if err := s.provider.DestroySnapshot(ctx, r.Snapshot); err != nil {
			return err
		}
	}
	if r.Instance != "" && t.Member != sandbox.OpSnapshot && t.Member != sandbox.OpCloneSnapshot {
		return s.provider.Destroy(ctx, r.Instance)
	}
	return nil
}
