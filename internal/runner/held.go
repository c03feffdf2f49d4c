package runner

import (
	"context"
	"errors"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// Holder is who a machine belongs to that outlives the Runs in it. The epoch of
// its lease is 1.
type Holder struct {
	SessionID string
	LeaseID   string
	ExpiresAt sandbox.Timestamp
}

// Prepare does the first half of a Run and leaves the machine running for its
// holder: select, plan, provision, stage, activate. Of the Spec it looks at what
// makes the machine, not at the command.
//
// Errors: *Error. After one the machine is gone, or the error says that this is
// not known. The Record is never nil.
func (r *Runner) Prepare(ctx context.Context, spec Spec, h Holder) (*Record, sandbox.Instance, error) {
	s, ctx, end := r.begin(ctx, spec)
	defer end()
	defer s.closePlans()
	s.record.SessionID, s.record.LeaseID, s.record.ExpiresAt = h.SessionID, h.LeaseID, h.ExpiresAt
	if err := s.phase(PhaseSelect, func() error {
		if err := sandbox.ValidateMounts(spec.declared()); err != nil {
			return err
		}
		return s.choose(ctx)
	}); err != nil {
		return s.record, sandbox.Instance{}, err
	}
	if err := s.allocate(ctx); err != nil {
		return s.record, sandbox.Instance{}, err
	}
	err := s.ready(ctx)
	if err != nil {
		return s.record, sandbox.Instance{}, errors.Join(err, s.release(ctx, false))
	}
	return s.record, s.active, nil
}

// Execute runs the Spec's command in a machine that is there already, as a live
// process, and leaves the machine. Nothing is collected.
//
// Blocks: until the command ended or its Timeout passed. When ctx is done, and
// after every error, the command is destroyed.
// Errors: *Error; a command that fails, is killed or does not start is none.
func (r *Runner) Execute(ctx context.Context, spec Spec, in sandbox.Instance) (*Record, error) {
	s, ctx, end := r.begin(ctx, spec)
	defer end()
	s.id = in.InstanceID
	rec := s.record
	rec.SessionID, rec.LeaseID, rec.ExpiresAt, rec.InstanceID = in.SessionID, in.LeaseID, in.ExpiresAt, string(in.InstanceID)
	rec.MachineMemoryBytes = memoryOf(in.Profile)
	rec.Profile, rec.Platform, rec.RootImage, rec.ImageDigest = in.Profile, in.Platform, in.RootImage, in.Materialization.ImageDigest
	if err := s.phase(PhaseSelect, func() error { return s.adopt(ctx, in) }); err != nil {
		return rec, err
	}
	process, err := s.open(ctx)
	if err != nil || process == nil {
		return rec, err
	}
	err = s.phase(PhaseCommand, func() error {
		err := s.follow(ctx, process)
		if err != nil { // somebody else's command comes next: nothing of this one may stay
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.RollbackSeconds*time.Second)
			defer cancel()
			destroyed := process.Destroy(ending)
			if destroyed == nil && rec.Cause == CauseInterrupted && errors.Is(err, context.Canceled) {
				return nil // a person who asked twice has what was asked for
			}
			err = errors.Join(err, destroyed)
		}
		return err
	})
	s.egress(ctx)
	return rec, err
}

// adopt takes up a machine that another Run made.
func (s *session) adopt(ctx context.Context, in sandbox.Instance) error {
	if err := s.spec.validate(); err != nil {
		return err
	}
	runtime, err := s.Runner.adopted(ctx, in)
	if err != nil {
		return err
	}
	s.selected(runtime)
	return nil
}

// adopted is a runtime that has taken over in.
func (r *Runner) adopted(ctx context.Context, in sandbox.Instance) (*sandboxruntime.Runtime, error) {
	selector := sandboxruntime.Selector{Adapters: r.Adapters, Clock: r.Clock, Report: r.Report}
	runtime, err := selector.Attach(ctx, r.Target)
	if err != nil {
		return nil, err
	}
	return runtime, runtime.Adopt(requestOf(in), in.InstanceID, in.State)
}

// requestOf is the request that made in.
func requestOf(in sandbox.Instance) sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: in.WorkspaceID, SessionID: in.SessionID, RunID: in.RunID, AttemptID: in.AttemptID,
		LeaseID: in.LeaseID, LeaseEpoch: in.LeaseEpoch, Target: in.Target, Profile: in.Profile, Platform: in.Platform,
		RootImage: in.RootImage, Mounts: in.Mounts, ExpiresAt: in.ExpiresAt,
	}
}
