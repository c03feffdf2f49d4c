package client

import (
	"context"
	"errors"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// patience bounds a compensation.
// Source: contract "Allocation handoff", third rule.
const patience = sandbox.RollbackSeconds * time.Second

// compensationHold leaves room for a second delivery within patience.
const compensationHold = 4 * time.Second

// allocate makes a call that allocates. read gives the value and the id under
// which it can be undone.
//
// Whoever stops waiting for the answer cannot say what there is; so whatever
// there may be is undone by the id before allocate returns, for at most 30 s.
// That is within the time for which a Runner waits for a provider that it has
// interrupted. Only a typed answer, which says that the provider kept
// everything itself, needs no undoing.
func allocate[T any](ctx context.Context, c *Client, k call, read func(*body) (T, wire.Rollback, error)) (sandbox.Handoff[T], error) {
	var none sandbox.Handoff[T]
	if err := c.enter(k.op); err != nil {
		return none, err
	}
	defer c.leave()
	var value T
	err := c.exchange(ctx, k, func(b *body) error {
		v, undo, err := read(b)
		if err != nil {
			return err
		}
		if err := undo.Echo(k.id); err != nil {
			return violation(b.endpoint, err)
		}
		value = v
		return nil
	})
	if err != nil {
		return none, c.abandon(ctx, k, err, func(ctx context.Context) error { return c.rollback(ctx, k) })
	}
	return sandbox.Handoff[T]{Value: value, Rollback: func(ctx context.Context) error {
		if err := c.enter(k.op + wire.OperationSuffixRollback); err != nil {
			return err
		}
		defer c.leave()
		return c.rollback(ctx, k)
	}}, nil
}

// abandon ends a call that made something or not: undo says that it is gone.
func (c *Client) abandon(ctx context.Context, k call, err error, undo func(context.Context) error) error {
	switch e := err.(type) {
	case *sandbox.Error:
		return e
	case *wire.Error:
		if e.Tag != wire.TagOperationUnknown {
			return c.translate(k, e)
		}
	}
	failed := undo(context.WithoutCancel(ctx))
	p, violated := err.(*ProtocolError)
	s, unheard := err.(*silence)
	switch {
	case failed != nil && violated:
		p.Err = errors.Join(p.Err, failed)
	case failed != nil:
		return sandbox.Failed(k.op, sandbox.ReasonIndeterminate, errors.Join(err, failed))
	case unheard && s.interrupted == nil:
		return s.contract(k)
	}
	return c.contract(k, err)
}

// rollback undoes k by its id, and by nothing that came back: what came back
// may be a neighbour's. One decision, delivered as often as it takes within
// 30 s, also while the client closes.
// Source: contract "Allocation handoff".
func (c *Client) rollback(ctx context.Context, k call) error {
	undo, err := c.newCall(wire.RollbackOperation, k.lease, wire.RollbackRequest{OperationID: k.id, Member: k.endpoint})
	if err != nil {
		return err
	}
	undo.op, undo.hold = k.op+wire.OperationSuffixRollback, compensationHold
	return c.compensate(ctx, undo, func(b *body) error {
		_, err := decode[wire.Settled](b)
		return err
	})
}

// compensate is do under 30 s that Close waits for and does not cut short.
func (c *Client) compensate(ctx context.Context, k call, read func(*body) error) error {
	bound, cancel := context.WithTimeoutCause(ctx, patience, errBudget)
	defer cancel()
	if err := c.repeat(ctx, bound, k, read); err != nil {
		return c.contract(k, err)
	}
	return nil
}

func instanceOf(b *body) (sandbox.Instance, wire.Rollback, error) {
	h, err := decode[wire.InstanceHandoff](b)
	return h.Value, h.Rollback, err
}

func snapshotOf(b *body) (sandbox.Snapshot, wire.Rollback, error) {
	h, err := decode[wire.SnapshotHandoff](b)
	return h.Value, h.Rollback, err
}

func releasedOf(b *body) (sandbox.Released, wire.Rollback, error) {
	h, err := decode[wire.ReleasedHandoff](b)
	return h.Value, h.Rollback, err
}

// held remembers the lease of an instance that was just made, until it is
// undone.
func (c *Client) held(h sandbox.Handoff[sandbox.Instance], lease wire.Lease) sandbox.Handoff[sandbox.Instance] {
	id, undo := h.Value.InstanceID, h.Rollback
	if !c.leases.keep(id, lease) {
		return h
	}
	h.Rollback = func(ctx context.Context) error {
		err := undo(ctx)
		if err == nil {
			c.leases.drop(id)
		}
		return err
	}
	return h
}

// Provision allocates an instance under the lease of r, which fences every
// later call of that instance.
func (c *Client) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return c.fresh(ctx, wire.Provision, r, wire.ProvisionRequest(r))
}

// Resume rehydrates a snapshot under the lease of r.Request.
func (c *Client) Resume(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return c.fresh(ctx, wire.Resume, r.Request, wire.ResumeRequest(r))
}

// fresh makes an instance under the lease of its request.
func (c *Client) fresh(ctx context.Context, e wire.Endpoint, r sandbox.ProvisionRequest, m wire.Message) (sandbox.Handoff[sandbox.Instance], error) {
	lease := wire.Lease{ID: r.LeaseID, Epoch: r.LeaseEpoch}
	k, err := c.newCall(e, lease, m)
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	h, err := allocate(ctx, c, k, instanceOf)
	if err != nil {
		return h, err
	}
	return c.held(h, lease), nil
}

// Activate seals the mounts of an instance.
func (c *Client) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	k, err := c.newCall(wire.Activate, c.leases.of(id), wire.InstanceRequest{InstanceID: id})
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return allocate(ctx, c, k, instanceOf)
}

// Snapshot captures an instance.
func (c *Client) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	k, err := c.newCall(wire.Snapshot, c.leases.of(id), wire.SnapshotRequest{InstanceID: id, ExpiresAt: r.ExpiresAt})
	if err != nil {
		return sandbox.Handoff[sandbox.Snapshot]{}, err
	}
	return allocate(ctx, c, k, snapshotOf)
}

// CloneSnapshot copies a snapshot into another Session.
func (c *Client) CloneSnapshot(ctx context.Context, r sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	k, err := c.newCall(wire.CloneSnapshot, c.leases.otherwise, wire.CloneRequest(r))
	if err != nil {
		return sandbox.Handoff[sandbox.Snapshot]{}, err
	}
	return allocate(ctx, c, k, snapshotOf)
}

// Release gives an instance back.
func (c *Client) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	k, err := c.newCall(wire.Release, c.leases.of(id), wire.ReleaseRequest{InstanceID: id, ExpiresAt: r.ExpiresAt})
	if err != nil {
		return sandbox.Handoff[sandbox.Released]{}, err
	}
	return allocate(ctx, c, k, releasedOf)
}
