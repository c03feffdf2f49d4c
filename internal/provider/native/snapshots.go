package native

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
)

// Snapshot captures the home of an active durable instance: mounts, output tree,
// home directory and control root. Its processes stand still while it is copied, and
// what is asked of it meanwhile waits.
// Errors: InstanceNotFound, LifecycleConflict, SnapshotForbidden (zero retention),
// OperationFailed.
// Source: contract "The operations", row snapshot.
func (p *Provider) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	const op = sandbox.OpSnapshot
	var none sandbox.Handoff[sandbox.Snapshot]
	in, err := p.find(op, id)
	if err != nil {
		return none, err
	}
	if !in.durable() {
		return none, sandbox.Forbidden(op, id)
	}
	if err := r.Validate(); err != nil {
		return none, sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
	}
	leave, err := turn(ctx, in.capturing)
	if err != nil {
		return none, translated(op, "", err)
	}
	defer leave()
	ref, err := in.capture(ctx, op, r.ExpiresAt, capturing{})
	if err != nil {
		return none, translated(op, ref.SnapshotID, err)
	}
	return p.handOver(op, ref), nil
}

// handOver is the handoff of a snapshot; the rollback keeps the id to itself.
func (p *Provider) handOver(op sandbox.Operation, ref sandbox.Snapshot) sandbox.Handoff[sandbox.Snapshot] {
	return sandbox.Handoff[sandbox.Snapshot]{Value: ref, Rollback: p.forget(op, ref.SnapshotID)}
}

func (p *Provider) forget(op sandbox.Operation, id sandbox.SnapshotID) func(context.Context) error {
	return func(ctx context.Context) error { return translated(op, id, p.snapshots.Destroy(ctx, id)) }
}

// translated says in the contract's words what the store says in its own.
func translated(op sandbox.Operation, id sandbox.SnapshotID, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		named := *e
		named.Operation = op
		return &named
	}
	if e, ok := errors.AsType[*snapshot.Error](err); ok {
		switch {
		case errors.Is(err, snapshot.ErrNotFound):
			return sandbox.NoSnapshot(op, id)
		case errors.Is(err, snapshot.ErrExpired) && (op == sandbox.OpResume || op == sandbox.OpCloneSnapshot):
			return sandbox.NoSnapshot(op, id)
		case errors.Is(err, snapshot.ErrExpired):
			return sandbox.Conflict(op, "expires_at "+e.Expected, e.Got)
		case errors.Is(err, snapshot.ErrMismatch):
			return sandbox.Conflict(op, e.Field+" "+e.Expected, e.Got)
		case errors.Is(err, snapshot.ErrDamaged):
			return sandbox.Failed(op, "snapshot_damaged", err)
		}
	}
	return sandbox.Failed(op, sandbox.ReasonProviderError, err)
}

// CloneSnapshot copies a snapshot into another Session; the copy depends on
// nothing of its source.
// Errors: SnapshotNotFound, LifecycleConflict (the reference disagrees),
// OperationFailed.
// Source: contract "The operations", row cloneSnapshot.
func (p *Provider) CloneSnapshot(ctx context.Context, r sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	const op = sandbox.OpCloneSnapshot
	var none sandbox.Handoff[sandbox.Snapshot]
	if p.Durable() != nil {
		return none, sandbox.Unavailable(op, sandbox.RequireSnapshots, "true", "false")
	}
	if err := r.Validate(); err != nil {
		return none, sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
	}
	ref, err := p.snapshots.Clone(ctx, r.Snapshot, r.TargetSessionID)
	if err != nil {
		return none, translated(op, r.Snapshot.SnapshotID, err)
	}
	return p.handOver(op, ref), nil
}

// DestroySnapshot removes a snapshot; one that does not exist is gone. It needs
// nothing that keeping sessions needs.
// Errors: OperationFailed, also where the store cannot be looked into: nobody may
// believe then that what is in it is gone.
// Source: contract "The operations", row destroySnapshot.
func (p *Provider) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	if p.storeFault != nil {
		return translated(sandbox.OpDestroySnapshot, id, p.storeFault)
	}
	if p.snapshots == nil {
		return nil
	}
	return translated(sandbox.OpDestroySnapshot, id, p.snapshots.Destroy(ctx, id))
}

// Release ends an instance. A durable one settles a snapshot of its present state
// first, and where that cannot be it stays active: nothing is lost. From the moment
// of that snapshot it stands still until it has ended, so that it keeps all that
// anybody was told was written. Of any other every trace is destroyed.
//
// What is asked of the instance meanwhile waits, and finds it going on, or none. Of
// two releases one wins; the other finds no instance. Who gives up before the
// snapshot has released nothing; after it the end is carried out all the same, within
// 30 s, and the snapshot returned. The rollback of a settled snapshot removes it; the
// instance does not return.
// Errors: InstanceNotFound, LifecycleConflict, OperationFailed. A durable instance
// that was captured and could not be removed is OperationFailed (not_removed), which
// names the snapshot: a release again, with the same expiry, goes on with the removal
// and returns it; else it stays until a sweep takes it.
// Source: contract "The operations", row release.
func (p *Provider) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	return p.release(ctx, id, r, false)
}

// release is Release, or ReleaseLive.
func (p *Provider) release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest, live bool) (sandbox.Handoff[sandbox.Released], error) {
	const op = sandbox.OpRelease
	var none sandbox.Handoff[sandbox.Released]
	in, err := p.find(op, id)
	if err != nil {
		return none, err
	}
	leave, err := turn(ctx, in.releasing)
	if err != nil {
		return none, translated(op, "", err)
	}
	defer leave()
	if _, err := p.find(op, id); err != nil { // another release was faster
		return none, err
	}
	if state := in.currentState(); state != sandbox.StateActive {
		return none, sandbox.Conflict(op, string(sandbox.StateActive), string(state))
	}
	out := sandbox.Handoff[sandbox.Released]{
		Value:    sandbox.Released{Disposition: sandbox.DispositionDestroyed},
		Rollback: func(context.Context) error { return nil },
	}
	if live && !in.lives() { // of which nothing would be kept
		return none, refusedLive(op, &machine.CheckpointError{Cause: machine.CauseNotLive})
	}
	if in.durable() {
		captured, err := turn(ctx, in.capturing) // to the end: nothing more can be captured
		if err != nil {
			return none, translated(op, "", err)
		}
		defer captured()
		ref, err := in.settle(ctx, r, live)
		if err != nil {
			return none, err
		}
		out.Value = sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &ref}
		out.Rollback = p.forget(op, ref.SnapshotID)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownBound)
	defer cancel()
	if err := p.destroy(ctx, op, id); err != nil {
		if s := out.Value.Snapshot; s != nil {
			err = sandbox.Failed(op, sandbox.ReasonNotRemoved, errors.Join(errors.New("snapshot "+string(s.SnapshotID)+" stays"), err))
		}
		return none, err
	}
	return out, nil
}

// settle takes the last snapshot of an instance, or finds the one that an earlier
// release took. The caller has both tokens.
func (in *instance) settle(ctx context.Context, r sandbox.ReleaseRequest, live bool) (sandbox.Snapshot, error) {
	const op = sandbox.OpRelease
	err := r.Validate()
	if err == nil && r.ExpiresAt == "" {
		err = &sandbox.Invalid{Field: "expires_at", Expected: "a deadline for the settled snapshot", Got: "none"}
	}
	if err != nil {
		return sandbox.Snapshot{}, sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
	}
	if s := in.released; s != nil {
		if s.ExpiresAt != r.ExpiresAt {
			return sandbox.Snapshot{}, sandbox.Conflict(op, "expires_at "+string(s.ExpiresAt), string(r.ExpiresAt))
		}
		return *s, nil
	}
	ref, err := in.capture(ctx, op, r.ExpiresAt, capturing{last: true, live: live})
	if err != nil {
		return sandbox.Snapshot{}, translated(op, ref.SnapshotID, err)
	}
	in.released = &ref
	return ref, nil
}

// Resume makes an active instance out of a snapshot, which stays as it was. The
// bytes of its mounts come from there, so the mount plan must be the one that was
// captured.
// Errors: those of Provision and Activate; SnapshotNotFound; LifecycleConflict
// with the field on which request and snapshot disagree; CapabilityUnavailable
// (mounts, resources); OperationFailed (snapshot_damaged).
// Source: contract "The operations", row resume; design 3, point 14.
func (p *Provider) Resume(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	const op = sandbox.OpResume
	var none sandbox.Handoff[sandbox.Instance]
	if p.Durable() != nil {
		return none, sandbox.Unavailable(op, sandbox.RequireSnapshots, "true", "false")
	}
	if err := r.Validate(); err != nil {
		return none, sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
	}
	kept, err := p.snapshots.Hold(ctx, r.Snapshot)
	if err != nil {
		return none, translated(op, r.Snapshot.SnapshotID, err)
	}
	defer kept.Close()
	if err := fits(r, kept.Manifest); err != nil {
		return none, err
	}
	in, err := p.create(ctx, r.Request, kept)
	if err != nil {
		return none, translated(op, r.Snapshot.SnapshotID, err)
	}
	if in.goingOn {
		in.checkpoint, err = p.checkpointOf(ctx, kept)
	}
	if err == nil {
		err = in.activate(ctx)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.RollbackSeconds*time.Second)
		defer cancel()
		return none, translated(op, r.Snapshot.SnapshotID, errors.Join(err, p.destroy(undo, op, in.id)))
	}
	return sandbox.Handoff[sandbox.Instance]{Value: in.describe(), Rollback: p.rollback(op, in.id)}, nil
}

// fits refuses a request for anything but what was captured.
func fits(r sandbox.ResumeRequest, m snapshot.Manifest) error {
	const op = sandbox.OpResume
	q, s := r.Request, m.Snapshot
	for _, f := range []struct{ name, kept, asked string }{
		{"provider", s.Provider, q.Target.Provider},
		{"placement", string(s.Placement), string(q.Target.Placement)},
		{"workspace_id", s.WorkspaceID, q.WorkspaceID},
		{"session_id", s.SessionID, q.SessionID},
		{"profile_id", s.ProfileID, q.Profile.ProfileID},
		{"profile_version", strconv.FormatInt(s.ProfileVersion, 10), strconv.FormatInt(q.Profile.ProfileVersion, 10)},
		{"profile_digest", string(s.ProfileDigest), string(profileDigest(q.Profile))},
	} {
		if f.kept != f.asked {
			return sandbox.Conflict(op, "snapshot."+f.name+" "+f.kept, f.asked)
		}
	}
	switch want := imageBytes(q.Profile.ResourceLimits.DiskBytes); {
	case q.Profile.RetentionMode != sandbox.RetentionDurable:
		return sandbox.Unavailable(op, sandbox.RequireRetention, string(q.Profile.RetentionMode), string(sandbox.RetentionDurable))
	case !slices.Equal(q.Mounts, m.Mounts):
		return sandbox.Unavailable(op, sandbox.RequireMounts, "another mount plan", "the plan of the snapshot")
	case m.Form != snapshot.FormImage || m.ContentBytes != want:
		return sandbox.Unavailable(op, sandbox.RequireResources, "disk_bytes of another size", strconv.FormatInt(m.ContentBytes, 10)+" bytes of image")
	}
	return nil
}
