package sandboxruntime

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
)

// Snapshot captures an active instance with a durable profile.
// Errors: SnapshotForbidden on zero data retention; CapabilityUnavailable;
// ProtocolInvalid{snapshot_identity} naming the field.
// Source: contract "The operations", row snapshot.
func (r *Runtime) Snapshot(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	const op = sandbox.OpSnapshot
	i, err := r.enter(op, id, active)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	refuse := func(err error) (sandbox.Snapshot, error) {
		i.leave()
		return sandbox.Snapshot{}, err
	}
	switch {
	case i.request.Profile.RetentionMode != sandbox.RetentionDurable:
		return refuse(sandbox.Forbidden(op, id))
	case !r.capabilities.Snapshots:
		return refuse(sandbox.Unavailable(op, sandbox.RequireSnapshots, "snapshots: true", "snapshots: false"))
	case q.Validate() != nil:
		return refuse(refused(op, q.Validate()))
	}
	if err := r.passed(op, "expires_at", q.ExpiresAt); err != nil {
		return refuse(err)
	}
	if err := r.expired(op, i); err != nil {
		return refuse(err)
	}
	return acquire(ctx, r, acquisition[sandbox.Snapshot]{
		op: op,
		call: func(ctx context.Context) (sandbox.Handoff[sandbox.Snapshot], error) {
			return r.provider.Snapshot(ctx, id, q)
		},
		check:   func(got sandbox.Snapshot) error { return checkSnapshot(i.snapshotOf(q.ExpiresAt), got) },
		own:     func(sandbox.Snapshot) error { i.leave(); return nil },
		kept:    func(error) { i.leave() },
		unwound: func(error) { i.leave() }, // the source is untouched
	})
}

// CloneSnapshot copies a snapshot into another Session.
// Errors: CapabilityUnavailable{snapshots} or {snapshot_clone};
// LifecycleConflict for a source of another provider or past its expiry;
// ProtocolInvalid{snapshot_identity} naming the field.
// Source: contract "The operations", row cloneSnapshot.
func (r *Runtime) CloneSnapshot(ctx context.Context, q sandbox.CloneRequest) (sandbox.Snapshot, error) {
	const op = sandbox.OpCloneSnapshot
	if err := r.admitSnapshot(op, "snapshot", q.Snapshot); err != nil {
		return sandbox.Snapshot{}, err
	}
	if !r.capabilities.SnapshotClone {
		return sandbox.Snapshot{}, sandbox.Unavailable(op, sandbox.RequireSnapshotClone, "snapshot_clone: true", "snapshot_clone: false")
	}
	if err := q.Validate(); err != nil {
		return sandbox.Snapshot{}, refused(op, err)
	}
	return acquire(ctx, r, acquisition[sandbox.Snapshot]{
		op: op,
		call: func(ctx context.Context) (sandbox.Handoff[sandbox.Snapshot], error) {
			return r.provider.CloneSnapshot(ctx, q)
		},
		check: func(got sandbox.Snapshot) error { return checkClone(q, got) },
		own:   func(sandbox.Snapshot) error { return nil },
	})
}

// admitSnapshot checks a snapshot that the caller brings: that this provider
// can serve it, its form, where it is from, and that it lives.
func (r *Runtime) admitSnapshot(op sandbox.Operation, field string, s sandbox.Snapshot) error {
	if !r.capabilities.Snapshots {
		return sandbox.Unavailable(op, sandbox.RequireSnapshots, "snapshots: true", "snapshots: false")
	}
	if err := s.Validate(); err != nil {
		return refused(op, err)
	}
	c := &r.capabilities
	if s.Provider != c.Provider {
		return sandbox.Conflict(op, field+".provider "+c.Provider, field+".provider "+s.Provider)
	}
	if s.Placement != c.Placement {
		return sandbox.Conflict(op, field+".placement "+string(c.Placement), field+".placement "+string(s.Placement))
	}
	return r.passed(op, field+".expires_at", s.ExpiresAt)
}

// DestroySnapshot tears one snapshot down. It is idempotent and accepts any id.
// Source: contract "The operations", row destroySnapshot.
func (r *Runtime) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	const op = sandbox.OpDestroySnapshot
	if err := sandbox.CheckSnapshotID("snapshot_id", id); err != nil {
		return refused(op, err)
	}
	_, _, err := do(ctx, r.link, call[none]{op: op, run: func(ctx context.Context) (none, error) {
		return none{}, r.provider.DestroySnapshot(ctx, id)
	}})
	return err
}
