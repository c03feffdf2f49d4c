package server

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

const opWrite = sandbox.OpBeginActiveWrite

// An active write is one operation, that of its beginning, and what is done to it
// later. Its record says how far it came: one that was never dispatched has
// published nothing, whatever became of this process.
// Source: contract "The operations", the paragraph on beginActiveWrite.

func (c *call) beginActiveWrite() error {
	m, err := request[wire.BeginActiveWriteRequest](c)
	if err != nil {
		return err
	}
	if c.s.optional.ActiveWrite == nil {
		return sandbox.Conflict(opWrite, string(opWrite), sandbox.ActualActiveWriteUnsupported)
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, o *operation) (effect, error) {
		w, err := c.s.optional.ActiveWrite.BeginActiveWrite(ctx, m.InstanceID, m.Targets)
		if err != nil {
			return effect{}, err
		}
		j := c.s.journal
		j.mu.Lock()
		o.write, o.record.Write = w, sandbox.JournalOpen
		j.mu.Unlock()
		return effect{message: wire.Journal{Journal: sandbox.JournalOpen}}, nil
	})
}

// transaction is a write that a later call names. Without its handle it is one
// of an earlier server: then the record alone speaks.
type transaction struct {
	operation *operation
	write     sandbox.ActiveWrite // nil without the handle
	state     sandbox.JournalState
}

func (s *Server) transaction(id wire.OperationID, instance sandbox.InstanceID) (transaction, error) {
	j := s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	o := j.ops[id]
	if o == nil || o.record.Endpoint != wire.BeginActiveWrite || o.record.Instance != instance || o.record.Write == "" {
		return transaction{}, &wire.Error{Tag: wire.TagOperationUnknown}
	}
	return transaction{o, o.write, o.record.Write}, nil
}

// mark notes how far a write came.
func (s *Server) mark(o *operation, state sandbox.JournalState, sync bool) error {
	j := s.journal
	j.mu.Lock()
	changed := o.record.Write != state
	o.record.Write = state
	err := j.save(o)
	j.mu.Unlock()
	if err != nil || !sync || !changed {
		return err
	}
	return j.store.Sync()
}

// orphan is what can be said of a write whose handle went with an earlier
// server.
func orphan(state sandbox.JournalState) (sandbox.JournalState, error) {
	switch state {
	case sandbox.JournalOpen:
		return sandbox.JournalRolledBack, nil
	case sandbox.JournalDispatched:
		return "", sandbox.Failed(opWrite, sandbox.ReasonIndeterminate, nil)
	}
	return state, nil
}

// observe asks a write how far it is.
func (s *Server) observe(ctx context.Context, t transaction) (wire.Journal, error) {
	if t.write == nil {
		state, err := orphan(t.state)
		return wire.Journal{Journal: state}, err
	}
	state, err := t.write.Inspect(ctx)
	if err != nil {
		return wire.Journal{}, err
	}
	if err := s.mark(t.operation, state, false); err != nil {
		s.log(err)
	}
	return wire.Journal{Journal: state}, nil
}

func (c *call) stageActiveWrite() error {
	m, err := frameCall[wire.StageCall](c)
	if err != nil {
		return err
	}
	data, err := c.content(m, m.Path, m.Size, m.Digest)
	if err != nil {
		return err
	}
	t, err := c.s.transaction(m.TransactionID, m.InstanceID)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		if t.write == nil {
			return effect{}, closedWrite(t.state)
		}
		f := sandbox.FileWrite{Path: m.Path, Content: data, Executable: m.Executable, Symlink: m.Symlink}
		if err := t.write.Stage(ctx, f); err != nil {
			return effect{}, err
		}
		j, err := c.s.observe(ctx, t)
		return effect{message: j}, err
	})
}

// closedWrite refuses what only an open write takes.
func closedWrite(state sandbox.JournalState) error {
	state, err := orphan(state)
	if err != nil {
		return err
	}
	return sandbox.Conflict(opWrite, string(sandbox.JournalOpen), string(state))
}

// named is the write of a request that says no more than which one it is.
func (c *call) named() (sandbox.InstanceID, transaction, error) {
	m, err := request[wire.TransactionRequest](c)
	if err != nil {
		return "", transaction{}, err
	}
	t, err := c.s.transaction(m.TransactionID, m.InstanceID)
	return m.InstanceID, t, err
}

func (c *call) dispatchActiveWrite() error {
	id, t, err := c.named()
	if err != nil {
		return err
	}
	return c.mutate(id, func(ctx context.Context, _ *operation) (effect, error) {
		if t.write == nil {
			return effect{}, closedWrite(t.state)
		}
		err := t.write.Dispatch(ctx, func() {
			// From here on an end of this process leaves the outcome open.
			if err := c.s.mark(t.operation, sandbox.JournalDispatched, true); err != nil {
				c.s.log(err)
			}
		})
		j, ierr := c.s.observe(context.WithoutCancel(ctx), t)
		if err == nil {
			err = ierr
		}
		return effect{message: j}, err
	})
}

func (c *call) abortActiveWrite() error {
	id, t, err := c.named()
	if err != nil {
		return err
	}
	return c.mutate(id, func(ctx context.Context, _ *operation) (effect, error) {
		if t.write == nil && t.state != sandbox.JournalOpen && t.state != sandbox.JournalRolledBack {
			return effect{}, closedWrite(t.state)
		}
		if t.write != nil {
			if err := t.write.Abort(ctx); err != nil {
				return effect{}, err
			}
		}
		j, err := c.s.observe(ctx, t)
		return effect{message: j}, err
	})
}

func (c *call) inspectActiveWrite() error {
	_, t, err := c.named()
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	j, err := c.s.observe(ctx, t)
	if err != nil {
		return err
	}
	return c.reply(j)
}
