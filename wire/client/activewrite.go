package client

import (
	"context"
	"slices"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// BeginActiveWrite opens a transaction, whose id is the operation id that is
// minted here. One that was opened behind an answer that nobody got is aborted
// by it.
func (c *Client) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	lease := c.leases.of(id)
	k, err := c.newCall(wire.BeginActiveWrite, lease, wire.BeginActiveWriteRequest{
		InstanceID: id, Targets: slices.Concat([]string{}, targets), // never null
	})
	if err != nil {
		return nil, err
	}
	if err := c.enter(k.op); err != nil {
		return nil, err
	}
	defer c.leave()
	w := &activeWrite{c: c, lease: lease, request: wire.TransactionRequest{InstanceID: id, TransactionID: k.id}}
	err = c.exchange(ctx, k, func(b *body) error {
		j, err := decode[wire.Journal](b)
		if err == nil && j.Journal != sandbox.JournalOpen {
			err = broken(b.endpoint, "journal", string(sandbox.JournalOpen), string(j.Journal))
		}
		return err
	})
	if err != nil {
		return nil, c.abandon(ctx, k, err, func(ctx context.Context) error { return c.rollback(ctx, k) })
	}
	return w, nil
}

// activeWrite is one transaction of a peer.
type activeWrite struct {
	c       *Client
	lease   wire.Lease
	request wire.TransactionRequest
}

// Stage sends the body of one target. The content is not copied.
func (w *activeWrite) Stage(ctx context.Context, f sandbox.FileWrite) error {
	k, err := w.c.newFramedCall(wire.StageActiveWrite, w.lease, wire.StageCall{
		InstanceID: w.request.InstanceID, TransactionID: w.request.TransactionID, Path: f.Path,
		Size: int64(len(f.Content)), Digest: digestOf(f.Content), Executable: f.Executable, Symlink: f.Symlink,
	}, f.Content)
	if err != nil {
		return err
	}
	_, err = w.journal(ctx, k)
	return err
}

// Dispatch publishes. The marker stands on this side before dispatch is sent:
// any end but a typed answer is indeterminate then, and redelivered. So a
// transaction that is open no more is refused before the marker, by asking.
func (w *activeWrite) Dispatch(ctx context.Context, marker func()) error {
	k, err := w.c.newCall(wire.DispatchActiveWrite, w.lease, w.request)
	if err != nil {
		return err
	}
	switch state, err := w.Inspect(ctx); {
	case err != nil:
		return err
	case state != sandbox.JournalOpen:
		return sandbox.Conflict(k.op, string(sandbox.JournalOpen), string(state))
	}
	if marker != nil {
		marker()
	}
	state, err := w.journal(ctx, k)
	if err == nil && state != sandbox.JournalDispatched && state != sandbox.JournalCommitted {
		return sandbox.Conflict(k.op, string(sandbox.JournalDispatched), string(state))
	}
	return err
}

// Abort drops an open transaction.
func (w *activeWrite) Abort(ctx context.Context) error {
	k, err := w.c.newCall(wire.AbortActiveWrite, w.lease, w.request)
	if err != nil {
		return err
	}
	state, err := w.journal(ctx, k)
	if err == nil && state != sandbox.JournalRolledBack {
		return sandbox.Conflict(k.op, string(sandbox.JournalRolledBack), string(state))
	}
	return err
}

// Inspect asks for the journal's state.
func (w *activeWrite) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	k, err := w.c.newCall(wire.InspectActiveWrite, w.lease, w.request)
	if err != nil {
		return "", err
	}
	return w.journal(ctx, k)
}

func (w *activeWrite) journal(ctx context.Context, k call) (sandbox.JournalState, error) {
	var j wire.Journal
	err := w.c.do(ctx, k, into(&j))
	return j.Journal, err
}
