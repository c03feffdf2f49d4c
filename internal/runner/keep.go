package runner

import (
	"context"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// Settle ends a machine that is there already and keeps what is in it until
// expires. Its processes go, and its memory.
// Errors: *Error of PhaseRelease. After one the machine is as active as before,
// unless the error says otherwise.
// Source: contract "The operations", row release.
func (r *Runner) Settle(ctx context.Context, in sandbox.Instance, expires sandbox.Timestamp) (sandbox.Snapshot, error) {
	runtime, err := r.adopted(ctx, in)
	if err != nil {
		return sandbox.Snapshot{}, &Error{PhaseSelect, err}
	}
	released, err := runtime.Release(ctx, in.InstanceID, sandbox.ReleaseRequest{ExpiresAt: expires})
	if err == nil && released.Snapshot == nil {
		err = &sandbox.Invalid{Field: "snapshot", Expected: "one, of a durable machine", Got: "none"}
	}
	if err != nil {
		return sandbox.Snapshot{}, &Error{PhaseRelease, err}
	}
	return *released.Snapshot, nil
}

// Capture keeps what is in a machine that is there already, which goes on.
// Errors: *Error of PhaseRelease.
// Source: contract "The operations", row snapshot.
func (r *Runner) Capture(ctx context.Context, in sandbox.Instance, expires sandbox.Timestamp) (sandbox.Snapshot, error) {
	runtime, err := r.adopted(ctx, in)
	if err != nil {
		return sandbox.Snapshot{}, &Error{PhaseSelect, err}
	}
	s, err := runtime.Snapshot(ctx, in.InstanceID, sandbox.SnapshotRequest{ExpiresAt: expires})
	if err != nil {
		return sandbox.Snapshot{}, &Error{PhaseRelease, err}
	}
	return s, nil
}

// Resume makes a machine for its holder out of what was kept of another one, which
// stays as it is. from is the machine that was kept: mount plan, limits, network
// and image are those of it.
// Errors: *Error. After one there is no machine, or the error says that this is
// not known.
// Source: contract "The operations", row resume.
func (r *Runner) Resume(ctx context.Context, from sandbox.Instance, kept sandbox.Snapshot, h Holder) (sandbox.Instance, error) {
	clock := r.Clock
	if clock == nil {
		clock = sandboxruntime.System
	}
	q := requestOf(from)
	q.SessionID, q.LeaseID, q.LeaseEpoch, q.ExpiresAt = h.SessionID, h.LeaseID, 1, h.ExpiresAt
	q.RunID, q.AttemptID = NewRunID(), mint("att_")
	until, err := h.ExpiresAt.Time()
	if err != nil {
		return sandbox.Instance{}, &Error{PhaseSelect, err}
	}
	// The longest command is as long as the machine lasts, which is asked for anew.
	q.Profile.ResourceLimits.MaxDurationSeconds = max(1, wholeSeconds(until.Sub(clock.Now())))
	selector := sandboxruntime.Selector{Adapters: r.Adapters, Clock: clock, Report: r.Report}
	runtime, err := selector.Select(ctx, sandboxruntime.Wanted{
		Target: r.Target, Profile: q.Profile, Platform: q.Platform, RootImage: q.RootImage, Mounts: q.Mounts,
	})
	if err != nil {
		return sandbox.Instance{}, &Error{PhaseSelect, err}
	}
	in, err := runtime.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: kept})
	if err != nil {
		return sandbox.Instance{}, &Error{PhaseProvision, err}
	}
	return in, nil
}
