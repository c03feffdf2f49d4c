package sandboxruntime

import (
	"context"
	"errors"

	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// Provision allocates an instance in provisioning, cross-checked against q.
// Errors: CapabilityUnavailable for what the envelope does not meet;
// AdapterUnavailable if q is for another target; LifecycleConflict if q has
// expired; ProtocolInvalid{instance_identity} naming the field.
// Source: contract "The operations", row provision.
func (r *Runtime) Provision(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Instance, error) {
	i, err := r.admit(sandbox.OpProvision, q)
	if err != nil {
		return sandbox.Instance{}, err
	}
	return r.allocate(ctx, sandbox.OpProvision, i, sandbox.StateProvisioning, func(ctx context.Context) (sandbox.Handoff[sandbox.Instance], error) {
		return r.provider.Provision(ctx, cloneRequest(q))
	})
}

// Resume rehydrates a snapshot into a fresh active instance. There is no
// provisioning step on this path.
// Errors: as Provision; LifecycleConflict naming the field in which request
// and snapshot disagree.
// Source: contract "The operations", row resume.
func (r *Runtime) Resume(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Instance, error) {
	const op = sandbox.OpResume
	i, err := r.admit(op, q.Request)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if err := r.admitSnapshot(op, "snapshot", q.Snapshot); err != nil {
		return sandbox.Instance{}, err
	}
	// The instance that the snapshot was taken of is another one, and its
	// expiry is governed on its own.
	want := i.snapshotOf(q.Snapshot.ExpiresAt)
	want.SourceInstanceID = q.Snapshot.SourceInstanceID
	if d, differs := crosscheck.First(crosscheck.Snapshot(&want, &q.Snapshot)); differs {
		return sandbox.Instance{}, sandbox.Conflict(op, d.Field+" "+d.Expected, d.Field+" "+d.Got)
	}
	return r.allocate(ctx, op, i, sandbox.StateActive, func(ctx context.Context) (sandbox.Handoff[sandbox.Instance], error) {
		return r.provider.Resume(ctx, sandbox.ResumeRequest{Request: cloneRequest(q.Request), Snapshot: q.Snapshot})
	})
}

// admit checks a request for an instance before the provider hears of it.
func (r *Runtime) admit(op sandbox.Operation, q sandbox.ProvisionRequest) (*instance, error) {
	if target := r.capabilities.Target(); q.Target != target {
		return nil, &Error{Kind: AdapterUnavailable, Operation: op, Field: "target", Expected: spell(q.Target), Got: spell(target)}
	}
	want := Wanted{Target: q.Target, Profile: q.Profile, Platform: q.Platform, RootImage: q.RootImage, Mounts: q.Mounts}
	// A capability that is missing is named before a form that is wrong; only
	// of a request of good form its parts need not be looked at again for that.
	form := q.Validate()
	if err := unmet(op, r.capabilities, want, form == nil); err != nil {
		return nil, err
	}
	if form != nil {
		return nil, refused(op, form)
	}
	if err := r.passed(op, "expires_at", q.ExpiresAt); err != nil {
		return nil, err
	}
	expires, _ := q.ExpiresAt.Time() // valid, as just checked
	return newInstance(q, expires), nil
}

// allocate acquires a new instance.
func (r *Runtime) allocate(ctx context.Context, op sandbox.Operation, i *instance, state sandbox.State, call func(context.Context) (sandbox.Handoff[sandbox.Instance], error)) (sandbox.Instance, error) {
	want := i.value(state)
	_, err := acquire(ctx, r, acquisition[sandbox.Instance]{
		op: op, call: call,
		check: func(got sandbox.Instance) error { return checkInstance(want, got, "") },
		own: func(got sandbox.Instance) error {
			i.id, i.phase = got.InstanceID, phase(state)
			return r.keep(i)
		},
	})
	if err != nil {
		return sandbox.Instance{}, err
	}
	want.InstanceID = i.id
	return want, nil
}

// Adopt registers an instance that this Runner owned before it was restarted:
// its own record of the request, the id and the state. Nothing is asked of the
// provider and the profile is not admitted again; that is what activate,
// execute and openProcess do each time.
// Errors: AdapterUnavailable for another target; OperationFailed
// {invalid_request}; ProtocolInvalid if the id is owned already.
// Source: contract "Errors", third condition of network_policy ("retained").
func (r *Runtime) Adopt(q sandbox.ProvisionRequest, id sandbox.InstanceID, state sandbox.State) error {
	const op = OpAdopt
	if target := r.capabilities.Target(); q.Target != target {
		return &Error{Kind: AdapterUnavailable, Operation: op, Field: "target", Expected: spell(q.Target), Got: spell(target)}
	}
	expires, err := q.ExpiresAt.Time()
	if err == nil {
		err = sandbox.CheckInstanceID("instance_id", id)
	}
	if err == nil && !state.Valid() {
		err = &sandbox.Invalid{Field: "state", Expected: "provisioning or active", Got: excerpt(string(state))}
	}
	if err != nil {
		return refused(op, err)
	}
	i := newInstance(q, expires)
	i.id, i.phase = id, phase(state)
	return r.keep(i)
}

// Activate seals the staged mounts and makes an instance runnable.
// Errors: LifecycleConflict (busy while a write is in flight);
// CapabilityUnavailable{network_policy}; ProtocolInvalid{instance_identity},
// after which the instance is gone, or accepts destroy only if its rollback
// failed.
// Source: contract "The operations", row activate.
func (r *Runtime) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Instance, error) {
	const op = sandbox.OpActivate
	i, err := r.begin(op, id, provisioning, activating)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if err := r.runnable(op, i); err != nil {
		_ = r.end(op, i, activating, provisioning)
		return sandbox.Instance{}, err
	}
	_, err = acquire(ctx, r, acquisition[sandbox.Instance]{
		op: op,
		call: func(ctx context.Context) (sandbox.Handoff[sandbox.Instance], error) {
			return r.provider.Activate(ctx, id)
		},
		check:   func(got sandbox.Instance) error { return checkInstance(i.value(sandbox.StateActive), got, id) },
		own:     func(sandbox.Instance) error { return r.end(op, i, activating, active) },
		kept:    func(err error) { r.restore(op, i, activating, provisioning, err) },
		unwound: func(err error) { r.discard(op, i, activating, err) },
	})
	if err != nil {
		return sandbox.Instance{}, err
	}
	return i.value(sandbox.StateActive), nil
}

// restore puts an instance back where a failed change found it, or marks it
// lost if the provider failed in a way outside the contract. A destroy that
// came in between has the last word.
func (r *Runtime) restore(op sandbox.Operation, i *instance, through, before phase, err error) {
	if _, defect := errors.AsType[*Defect](err); defect {
		before = lost
	}
	_ = r.end(op, i, through, before)
}

// discard ends an instance whose change was rolled back: it no longer exists,
// or nobody knows.
func (r *Runtime) discard(op sandbox.Operation, i *instance, through phase, err error) {
	to := gone
	if err != nil {
		to = lost
	}
	_ = r.end(op, i, through, to)
}

// Release gives an active instance back: a durable one settles a snapshot that
// lives until q.ExpiresAt, a zero-data-retention one is destroyed without
// trace. A live process gets SIGTERM, 5 s, and is then destroyed.
// Errors: LifecycleConflict (busy while a call is in flight); ProtocolInvalid
// for a disposition or a snapshot that does not fit.
// Source: contract "The operations", row release; "openProcess", wait.
func (r *Runtime) Release(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Released, error) {
	const op = sandbox.OpRelease
	if err := q.Validate(); err != nil {
		return sandbox.Released{}, refused(op, err)
	}
	i, err := r.begin(op, id, active, releasing)
	if err != nil {
		return sandbox.Released{}, err
	}
	err = r.admitRelease(i, q)
	if err == nil {
		err = r.endProcesses(ctx, i)
	}
	if err != nil {
		_ = r.end(op, i, releasing, active)
		return sandbox.Released{}, err
	}
	return acquire(ctx, r, acquisition[sandbox.Released]{
		op: op,
		call: func(ctx context.Context) (sandbox.Handoff[sandbox.Released], error) {
			h, err := r.provider.Release(ctx, id, q)
			if h.Value.Snapshot != nil { // what is checked must be what is returned
				own := *h.Value.Snapshot
				h.Value.Snapshot = &own
			}
			return h, err
		},
		check:   func(got sandbox.Released) error { return checkReleased(i, q, got) },
		own:     func(sandbox.Released) error { return r.end(op, i, releasing, gone) },
		kept:    func(err error) { r.restore(op, i, releasing, active, err) },
		unwound: func(err error) { r.discard(op, i, releasing, err) },
	})
}

func (r *Runtime) admitRelease(i *instance, q sandbox.ReleaseRequest) error {
	const op = sandbox.OpRelease
	if i.request.Profile.RetentionMode == sandbox.RetentionDurable {
		return r.passed(op, "expires_at", q.ExpiresAt)
	}
	if q.ExpiresAt != "" {
		return refused(op, &sandbox.Invalid{Field: "expires_at", Expected: "absent on an ephemeral_zdr profile", Got: string(q.ExpiresAt)})
	}
	return nil
}

func checkReleased(i *instance, q sandbox.ReleaseRequest, got sandbox.Released) error {
	want := sandbox.DispositionDestroyed
	if i.request.Profile.RetentionMode == sandbox.RetentionDurable {
		want = sandbox.DispositionReleased
	}
	if got.Disposition != want {
		return protocolInvalid(sandbox.OpRelease, "disposition", string(want), string(got.Disposition))
	}
	if got.Snapshot != nil && want == sandbox.DispositionReleased {
		return checkSnapshot(i.snapshotOf(q.ExpiresAt), *got.Snapshot)
	}
	return rejected(sandbox.OpRelease, got.Validate())
}

// Destroy tears one instance down. It is idempotent, accepts any state and any
// id, waits for no other call on the instance and makes later ones fail. If it
// fails the instance accepts only another Destroy.
// Source: contract "The operations", row destroy.
func (r *Runtime) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	const op = sandbox.OpDestroy
	if err := sandbox.CheckInstanceID("instance_id", id); err != nil {
		return refused(op, err)
	}
	i := r.find(id)
	if i != nil {
		i.mu.Lock()
		i.phase = destroying
		i.mu.Unlock()
	}
	done := func(err error) {
		if i != nil {
			r.discard(op, i, destroying, err)
		}
	}
	_, left, err := do(ctx, r.link, call[none]{
		op:   op,
		run:  func(ctx context.Context) (none, error) { return none{}, r.provider.Destroy(ctx, id) },
		late: func(_ none, err error) { done(err) },
	})
	if !left {
		done(err)
	}
	return err
}

// Cleanup sweeps what was orphaned before the cutoff and returns the swept
// ids. Instances among them that this runtime owned are gone for it.
// Errors: ProtocolInvalid for anything but two lists of distinct ids.
// Source: contract "Cleanup and pinning".
func (r *Runtime) Cleanup(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	const op = sandbox.OpCleanup
	if err := q.Validate(); err != nil {
		return sandbox.Swept{}, refused(op, err)
	}
	swept, _, err := do(ctx, r.link, call[sandbox.Swept]{op: op, run: func(ctx context.Context) (sandbox.Swept, error) {
		return r.provider.Cleanup(ctx, q)
	}})
	if err != nil {
		return sandbox.Swept{}, err
	}
	if err := swept.Validate(); err != nil {
		return sandbox.Swept{}, rejected(op, err)
	}
	for _, id := range swept.InstanceIDs {
		if i := r.find(id); i != nil {
			i.mu.Lock()
			i.phase = gone
			r.forget(i)
			i.mu.Unlock()
		}
	}
	return swept, nil
}
