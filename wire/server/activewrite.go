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

// transaction finds the write that a later call names. Without its handle it is
// one of an earlier server: then the record alone speaks.
func (s *Server) transaction(id wire.OperationID, instance sandbox.InstanceID) (*operation, sandbox.ActiveWrite, sandbox.JournalState, error) {
	j := s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	o := j.ops[id]
	if o == nil || o.record.Endpoint != wire.BeginActiveWrite || o.record.Instance != instance || o.record.Write == "" {
		return nil, nil, "", &wire.Error{Tag: wire.TagOperationUnknown}
	}
	return o, o.write, o.record.Write, nil
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
	return j.store.sync()
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
func (s *Server) observe(ctx context.Context, o *operation, w sandbox.ActiveWrite, state sandbox.JournalState) (wire.Journal, error) {
	if w == nil {
		state, err := orphan(state)
		return wire.Journal{Journal: state}, err
	}
	state, err := w.Inspect(ctx)
	if err != nil {
		return wire.Journal{}, err
	}
	if err := s.mark(o, state, false); err != nil {
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
	o, w, state, err := c.s.transaction(m.TransactionID, m.InstanceID)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		if w == nil {
			return effect{}, closedWrite(state)
		}
		f := sandbox.FileWrite{Path: m.Path, Content: data, Executable: m.Executable, Symlink: m.Symlink}
		if err := w.Stage(ctx, f); err != nil {
			return effect{}, err
		}
		j, err := c.s.observe(ctx, o, w, state)
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

func (c *call) dispatchActiveWrite() error {
	m, err := request[wire.TransactionRequest](c)
	if err != nil {
		return err
	}
	o, w, state, err := c.s.transaction(m.TransactionID, m.InstanceID)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		if w == nil {
			return effect{}, closedWrite(state)
		}
		err := w.Dispatch(ctx, func() {
			// From here on an end of this process leaves the outcome open.
			if err := c.s.mark(o, sandbox.JournalDispatched, true); err != nil {
				c.s.log(err)
			}
		})
		j, ierr := c.s.observe(context.WithoutCancel(ctx), o, w, state)
		if err == nil {
			err = ierr
		}
		return effect{message: j}, err
	})
}

func (c *call) abortActiveWrite() error {
	m, err := request[wire.TransactionRequest](c)
	if err != nil {
		return err
	}
	o, w, state, err := c.s.transaction(m.TransactionID, m.InstanceID)
	if err != nil {
		return err
	}
	return c.mutate(m.InstanceID, func(ctx context.Context, _ *operation) (effect, error) {
		if w == nil && state != sandbox.JournalOpen && state != sandbox.JournalRolledBack {
			return effect{}, closedWrite(state)
		}
		if w != nil {
			if err := w.Abort(ctx); err != nil {
				return effect{}, err
			}
		}
		j, err := c.s.observe(ctx, o, w, state)
		return effect{message: j}, err
	})
}

func (c *call) inspectActiveWrite() error {
	m, err := request[wire.TransactionRequest](c)
	if err != nil {
		return err
	}
	o, w, state, err := c.s.transaction(m.TransactionID, m.InstanceID)
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	j, err := c.s.observe(ctx, o, w, state)
	if err != nil {
		return err
	}
	return c.reply(j)
}
