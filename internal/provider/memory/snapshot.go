package memory

import (
	"context"
	"slices"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// snapshot is retained state: the whole tree but /tmp.
type snapshot struct {
	ref    sandbox.Snapshot
	root   *node
	mounts []sandbox.Mount
	seen   sandbox.Timestamp // guarded by Provider.mu
}

// capture copies what a snapshot keeps; nil if the tree was erased.
func (t *tree) capture() *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root == nil {
		return nil
	}
	root := t.root.clone()
	tmp := root.kids["tmp"]
	tmp.erase()
	tmp.mode = 0o755
	return root
}

// retain records a snapshot of i. The caller checked the deadline.
func (p *Provider) retain(i *instance, expires sandbox.Timestamp, root *node) sandbox.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := i.value
	s := &snapshot{
		ref: sandbox.Snapshot{
			SnapshotID: sandbox.SnapshotID(p.mint("snapshot")), Provider: v.Provider, Placement: v.Placement,
			SourceInstanceID: v.InstanceID, WorkspaceID: v.WorkspaceID, SessionID: v.SessionID,
			ProfileID: v.Profile.ProfileID, ProfileVersion: v.Profile.ProfileVersion,
			ProfileDigest: v.Materialization.ProfileDigest, CreatedAt: p.now(), ExpiresAt: expires,
		},
		root: root, mounts: v.Mounts, seen: p.now(),
	}
	p.snapshots[s.ref.SnapshotID] = s
	return s.ref
}

// Snapshot captures the files of an instance: mounts, output tree, home and
// control root. Live processes go on and are not captured.
// Errors: InstanceNotFound; LifecycleConflict; SnapshotForbidden (zero data
// retention); OperationFailed.
// Source: contract "The operations", row snapshot.
func (p *Provider) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	const op = sandbox.OpSnapshot
	none := sandbox.Handoff[sandbox.Snapshot]{}
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return none, err
	}
	defer leave()
	if i.value.Profile.RetentionMode != sandbox.RetentionDurable {
		return none, sandbox.Forbidden(op, id)
	}
	if err := r.Validate(); err != nil {
		return none, invalid(op, err)
	}
	if err := p.checkDeadline(op, r.ExpiresAt); err != nil {
		return none, err
	}
	ref := p.retain(i, r.ExpiresAt, i.m.tree.capture())
	return p.handOver(ref), nil
}

// handOver is the handoff of a snapshot; the rollback keeps the id to itself.
func (p *Provider) handOver(ref sandbox.Snapshot) sandbox.Handoff[sandbox.Snapshot] {
	id := ref.SnapshotID
	return sandbox.Handoff[sandbox.Snapshot]{
		Value:    ref,
		Rollback: func(context.Context) error { p.forget(id); return nil },
	}
}

// forget erases a snapshot, if there is one.
func (p *Provider) forget(id sandbox.SnapshotID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.snapshots[id]; s != nil {
		s.root.erase()
		delete(p.snapshots, id)
	}
}

// copyOf returns a copy of the state that ref names. A ref that disagrees with
// what was retained under its id is refused: a reference is not an authority.
func (p *Provider) copyOf(op sandbox.Operation, ref sandbox.Snapshot) (root *node, mounts []sandbox.Mount, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.snapshots[ref.SnapshotID]
	if s == nil || !p.now().Before(s.ref.ExpiresAt) {
		return nil, nil, sandbox.NoSnapshot(op, ref.SnapshotID)
	}
	if field, want, got := disagree(s.ref, ref); field != "" {
		return nil, nil, sandbox.Conflict(op, field+" "+want, got)
	}
	s.seen = p.now()
	return s.root.clone(), slices.Clone(s.mounts), nil
}

// disagree names the first field on which two references differ.
func disagree(a, b sandbox.Snapshot) (field, want, got string) {
	for _, f := range []struct{ name, a, b string }{
		{"provider", a.Provider, b.Provider},
		{"placement", string(a.Placement), string(b.Placement)},
		{"source_instance_id", string(a.SourceInstanceID), string(b.SourceInstanceID)},
		{"workspace_id", a.WorkspaceID, b.WorkspaceID},
		{"session_id", a.SessionID, b.SessionID},
		{"profile_id", a.ProfileID, b.ProfileID},
		{"profile_version", strconv.FormatInt(a.ProfileVersion, 10), strconv.FormatInt(b.ProfileVersion, 10)},
		{"profile_digest", string(a.ProfileDigest), string(b.ProfileDigest)},
		{"created_at", string(a.CreatedAt), string(b.CreatedAt)},
		{"expires_at", string(a.ExpiresAt), string(b.ExpiresAt)},
	} {
		if f.a != f.b {
			return "snapshot." + f.name, f.a, f.b
		}
	}
	return "", "", ""
}

// CloneSnapshot copies a snapshot into another Session. No byte is shared with
// the source, which may go at any time.
// Errors: SnapshotNotFound; LifecycleConflict (the reference disagrees);
// OperationFailed.
// Source: contract "The operations", row cloneSnapshot.
func (p *Provider) CloneSnapshot(ctx context.Context, r sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	const op = sandbox.OpCloneSnapshot
	none := sandbox.Handoff[sandbox.Snapshot]{}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := r.Validate(); err != nil {
		return none, invalid(op, err)
	}
	root, mounts, err := p.copyOf(op, r.Snapshot)
	if err != nil {
		return none, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &snapshot{ref: r.Snapshot, root: root, mounts: mounts, seen: p.now()}
	s.ref.SnapshotID = sandbox.SnapshotID(p.mint("snapshot"))
	s.ref.SessionID = r.TargetSessionID
	// Never before the source, also if somebody turned the clock back.
	s.ref.CreatedAt = max(p.now(), r.Snapshot.CreatedAt)
	p.snapshots[s.ref.SnapshotID] = s
	return p.handOver(s.ref), nil
}

// DestroySnapshot erases a snapshot. An unknown id is success.
// Source: contract "The operations", row destroySnapshot.
func (p *Provider) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.forget(id)
	return nil
}

// Release ends an instance: a durable one settles a snapshot with exactly the
// deadline given, the other leaves nothing. A live process is killed. The
// rollback of its handoff erases the snapshot; the instance does not return.
// Errors: InstanceNotFound; LifecycleConflict; OperationFailed.
// Source: contract "The operations", row release.
func (p *Provider) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	const op = sandbox.OpRelease
	none := sandbox.Handoff[sandbox.Released]{}
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return none, err
	}
	durable := i.value.Profile.RetentionMode == sandbox.RetentionDurable
	err = r.Validate()
	switch {
	case err != nil:
	case durable && r.ExpiresAt == "":
		err = &sandbox.Invalid{Field: "expires_at", Expected: "a deadline for the settled snapshot", Got: "none"}
	case !durable && r.ExpiresAt != "":
		err = &sandbox.Invalid{Field: "expires_at", Expected: "none: zero data retention settles no snapshot", Got: string(r.ExpiresAt)}
	}
	if err != nil {
		err = invalid(op, err)
	} else if durable {
		err = p.checkDeadline(op, r.ExpiresAt)
	}
	// Of two releases one wins; the other finds no instance.
	if err == nil && !i.claim() {
		err = sandbox.NoInstance(op, id)
	}
	leave()
	if err != nil {
		return none, err
	}
	if err := i.close(ctx); err != nil {
		// Something in the machine did not end in time. What it holds stays for
		// another release.
		i.reopen()
		return none, err
	}
	out := sandbox.Handoff[sandbox.Released]{
		Value:    sandbox.Released{Disposition: sandbox.DispositionDestroyed},
		Rollback: func(context.Context) error { return nil },
	}
	if durable {
		root := i.m.tree.capture()
		if root == nil { // a destroy that began meanwhile was faster
			return none, sandbox.NoInstance(op, id)
		}
		ref := p.retain(i, r.ExpiresAt, root)
		kept := ref.SnapshotID
		out.Value = sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &ref}
		out.Rollback = func(context.Context) error { p.forget(kept); return nil }
	}
	return out, p.discard(context.WithoutCancel(ctx), i)
}

// Resume makes a fresh active instance from a snapshot, which stays. Its mount
// bytes come from there, so the mount plan must be the one that was captured.
// Errors: as Provision; SnapshotNotFound; LifecycleConflict naming the field
// on which request and snapshot disagree; CapabilityUnavailable (mounts).
// Source: contract "The operations", row resume.
func (p *Provider) Resume(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	const op = sandbox.OpResume
	none := sandbox.Handoff[sandbox.Instance]{}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := r.Snapshot.Validate(); err != nil {
		return none, invalid(op, err)
	}
	if err := p.admit(op, r.Request); err != nil {
		return none, err
	}
	root, mounts, err := p.copyOf(op, r.Snapshot)
	if err != nil {
		return none, err
	}
	q := r.Request
	asked := r.Snapshot
	asked.Provider, asked.Placement = q.Target.Provider, q.Target.Placement
	asked.WorkspaceID, asked.SessionID = q.WorkspaceID, q.SessionID
	asked.ProfileID, asked.ProfileVersion = q.Profile.ProfileID, q.Profile.ProfileVersion
	asked.ProfileDigest = digestOf(q.Profile.ImageIdentity())
	if field, want, got := disagree(r.Snapshot, asked); field != "" {
		return none, sandbox.Conflict(op, field+" "+want, got)
	}
	switch {
	case q.Profile.RetentionMode != sandbox.RetentionDurable:
		return none, sandbox.Unavailable(op, sandbox.RequireRetention, string(q.Profile.RetentionMode), string(sandbox.RetentionDurable))
	case !slices.Equal(q.Mounts, mounts):
		return none, sandbox.Unavailable(op, sandbox.RequireMounts, "another mount plan", "the plan of the snapshot")
	case root.size() > q.Profile.ResourceLimits.DiskBytes+newTree(mounts, 0, p.names).root.size():
		return none, sandbox.Unavailable(op, sandbox.RequireResources, "disk_bytes "+strconv.FormatInt(q.Profile.ResourceLimits.DiskBytes, 10), "")
	}
	return p.allocate(copyRequest(q), sandbox.StateActive, root), nil
}
