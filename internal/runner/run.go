package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// Runner does Runs on one execution target.
type Runner struct {
	Adapters []sandboxruntime.Adapter
	Target   sandbox.Target
	Platform sandbox.Platform
	Versions map[string]string // of what this program is made of, for the Record
	// Clock is nil for the machine's own.
	Clock sandboxruntime.Clock
	// Report is told of failures that nobody is left to be told of; nil drops
	// them.
	Report func(error)
	// Egress tells what the guard of a live instance decided; nil is nobody.
	Egress func(context.Context, sandbox.InstanceID) (Egress, error)
	// Model tells what the Run used of its model route, once the machine is gone;
	// nil is no route.
	Model func(context.Context) (Model, error)
}

// Bounds of the parts of a Run that have none of their own.
const (
	releaseBound = 60 * time.Second // ending the machine
	keepBound    = 10 * time.Minute // the same, where what is in it is kept: a full home is copied
	killBound    = 10 * time.Second // from SIGKILL to the end of the streams
	grace        = 5 * time.Second  // from a person's interrupt to SIGKILL
)

// Run does one Run. The Record is never nil and holds what is known, also
// beside an error.
//
// Blocks: until the command ended or its Timeout passed, and the machine is
// gone. When ctx is done the machine is destroyed without collecting.
// Errors: *Error; a command that fails, is killed or does not start is none.
func (r *Runner) Run(ctx context.Context, spec Spec) (*Record, error) {
	s, ctx, end := r.begin(ctx, spec)
	defer end()
	err := s.run(ctx)
	return s.record, err
}

// session is one Run under way.
type session struct {
	*Runner
	spec    Spec
	stop    *stop
	runtime *sandboxruntime.Runtime
	plans   []planned
	id      sandbox.InstanceID
	active  sandbox.Instance // once it is
	record  *Record
}

// begin starts the record, and makes interruptions end the context; end says
// when the Run did.
func (r *Runner) begin(ctx context.Context, spec Spec) (s *session, inner context.Context, end func()) {
	if r.Clock == nil {
		own := *r
		own.Clock = sandboxruntime.System
		r = &own
	}
	inner, cancel := context.WithCancel(ctx)
	s = &session{Runner: r, spec: spec, stop: newStop(spec.Stop, cancel)}
	s.describe()
	return s, inner, func() {
		s.record.FinishedAt = sandbox.At(r.Clock.Now())
		s.stop.end()
		cancel()
	}
}

// describe fills the record with what the Spec says.
func (s *session) describe() {
	profile := s.spec.profile()
	keys := slices.Sorted(maps.Keys(s.spec.Environment))
	if s.spec.RunID == "" {
		s.spec.RunID = NewRunID()
	}
	if s.spec.SessionID == "" {
		s.spec.SessionID = mint("ses_")
	}
	s.record = &Record{
		Schema: RecordSchema, Versions: s.Versions,
		RunID: s.spec.RunID, SessionID: s.spec.SessionID, AttemptID: mint("att_"), LeaseID: mint("lea_"),
		StartedAt: sandbox.At(s.Clock.Now()), Profile: profile, Platform: s.Platform, RootImage: s.spec.Image,
		ImageDigest:        sandbox.ImageDigest(s.spec.Image),
		MachineMemoryBytes: memoryOf(profile),
		Command: Command{
			WorkingDirectory: s.spec.directory(), EnvironmentKeys: keys, TimeoutMillis: s.spec.Timeout.Milliseconds(),
		},
	}
	plain := true
	for _, a := range s.spec.Command {
		s.record.Command.Arguments = append(s.record.Command.Arguments, text(a))
		plain = plain && asHex(a) == ""
	}
	for i := 0; !plain && i < len(s.spec.Command); i++ {
		s.record.Command.ArgumentsHex = append(s.record.Command.ArgumentsHex, hex.EncodeToString([]byte(s.spec.Command[i])))
	}
}

// memoryOf is what a machine can cost the host: zero retention keeps what it writes
// in memory.
func memoryOf(p sandbox.Profile) int64 {
	if p.RetentionMode == sandbox.RetentionDurable {
		return p.ResourceLimits.MemoryBytes
	}
	return p.ResourceLimits.MemoryBytes + p.ResourceLimits.DiskBytes
}

// NewRunID mints the name of one Run.
func NewRunID() string { return mint("run_") }

func mint(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// run is the whole flow: everything before the machine exists, then the
// machine, which is gone when run returns.
func (s *session) run(ctx context.Context) error {
	defer s.closePlans()
	if err := s.phase(PhaseSelect, func() error {
		if err := s.spec.validate(); err != nil {
			return err
		}
		return s.choose(ctx)
	}); err != nil {
		return err
	}
	if err := s.allocate(ctx); err != nil {
		return err
	}
	return s.drive(ctx)
}

// allocate makes the machine, once it is known that all fits into it.
func (s *session) allocate(ctx context.Context) error {
	if err := s.phase(PhasePlan, func() error { return s.plan(ctx) }); err != nil {
		return err
	}
	return s.phase(PhaseProvision, func() error { return s.provision(ctx) })
}

func (s *session) closePlans() {
	for _, p := range s.plans {
		if err := p.plan.Close(); err != nil {
			s.record.fail(PhasePlan, err)
		}
	}
}

// phase runs one phase, times it, and records its failure.
func (s *session) phase(phase Phase, do func() error) error {
	start := s.Clock.Now()
	err := do()
	s.record.Phases = append(s.record.Phases, Timing{phase, s.Clock.Now().Sub(start).Milliseconds()})
	if err == nil {
		return nil
	}
	err = s.spec.hide(err)
	if sig := s.stop.first(); sig != "" && s.record.Cause == "" {
		s.record.Cause, s.record.StopSignal = CauseInterrupted, string(sig)
	}
	s.record.fail(phase, err)
	return &Error{phase, err}
}

func (s *session) choose(ctx context.Context) error {
	selector := sandboxruntime.Selector{Adapters: s.Adapters, Clock: s.Clock, Report: s.Report}
	runtime, err := selector.Select(ctx, sandboxruntime.Wanted{
		Target: s.Target, Profile: s.spec.profile(), Platform: s.Platform, RootImage: s.spec.Image, Mounts: s.spec.declared(),
	})
	if err != nil {
		return err
	}
	s.selected(runtime)
	return nil
}

// selected records what the provider says of itself.
func (s *session) selected(runtime *sandboxruntime.Runtime) {
	s.runtime = runtime
	s.record.Envelope = runtime.Capabilities()
	for _, axis := range sandbox.Axes() {
		s.record.Enforcement = append(s.record.Enforcement, Enforced{axis, s.record.Envelope.Enforcement.On(axis)})
	}
	s.record.Narrowings = append(s.record.Narrowings, runtime.Narrowings()...)
}

func (s *session) provision(ctx context.Context) error {
	if s.record.ExpiresAt == "" {
		s.record.ExpiresAt = sandbox.At(s.Clock.Now().Add(s.spec.Timeout + Margin))
	}
	mounts := s.spec.declared()
	if mounts == nil {
		mounts = []sandbox.Mount{}
	}
	instance, err := s.runtime.Provision(ctx, sandbox.ProvisionRequest{
		WorkspaceID: "local", SessionID: s.record.SessionID, RunID: s.record.RunID, AttemptID: s.record.AttemptID,
		LeaseID: s.record.LeaseID, LeaseEpoch: 1, Target: s.Target, Profile: s.spec.profile(), Platform: s.Platform,
		RootImage: s.spec.Image, Mounts: mounts, ExpiresAt: s.record.ExpiresAt,
	})
	if err != nil {
		return err
	}
	s.id = instance.InstanceID
	s.record.InstanceID = string(s.id)
	return nil
}

// drive does what needs the machine and then ends it, whatever happened: by
// release where all went well, else by force.
func (s *session) drive(ctx context.Context) error {
	err := s.work(ctx)
	s.egress(ctx)
	err = errors.Join(err, s.release(ctx, err == nil && ctx.Err() == nil))
	s.model(ctx)
	return err
}

// release ends the machine: in order, or by force. One whose state was to be kept
// and is not is a failure.
func (s *session) release(ctx context.Context, orderly bool) error {
	return s.phase(PhaseRelease, func() error {
		var lost error
		if orderly {
			var q sandbox.ReleaseRequest
			bound := releaseBound
			if s.spec.Keep > 0 {
				q.ExpiresAt, bound = sandbox.At(s.Clock.Now().Add(s.spec.Keep)), keepBound
			}
			releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
			defer cancel()
			released, releaseErr := s.runtime.Release(releasing, s.id, q)
			if releaseErr == nil {
				s.record.Disposition = released.Disposition
				return s.keep(ctx, released.Snapshot)
			}
			if s.spec.Keep > 0 {
				lost = fmt.Errorf("what is in the machine could not be kept: %w", releaseErr)
			} else {
				s.record.fail(PhaseRelease, s.spec.hide(releaseErr))
			}
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
		defer cancel()
		if destroyErr := s.runtime.Destroy(ending, s.id); destroyErr != nil {
			return errors.Join(lost, fmt.Errorf("machine %s may still be there, see checkfu sweep: %w", s.id, destroyErr))
		}
		s.record.Disposition = sandbox.DispositionDestroyed
		return lost
	})
}

// keep hands over what was kept. nil is nothing.
func (s *session) keep(ctx context.Context, kept *sandbox.Snapshot) error {
	if kept != nil && s.spec.Kept != nil {
		if err := s.spec.Kept(s.active, *kept); err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
			defer cancel()
			return errors.Join(fmt.Errorf("what is in the machine could not be kept: %w", err), s.runtime.DestroySnapshot(undo, kept.SnapshotID))
		}
	}
	s.record.Snapshot = kept
	return nil
}

// work stages, starts and follows the command, and collects.
func (s *session) work(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	process, err := s.open(ctx)
	if err != nil || process == nil {
		return err
	}
	if err := s.phase(PhaseCommand, func() error { return s.follow(ctx, process) }); err != nil {
		return err
	}
	return s.phase(PhaseCollect, func() error { return s.collect(ctx) })
}

// ready stages the mounts and starts the machine.
func (s *session) ready(ctx context.Context) error {
	if err := s.phase(PhaseStage, func() error { return s.stage(ctx) }); err != nil {
		return err
	}
	return s.phase(PhaseActivate, func() (err error) {
		s.active, err = s.runtime.Activate(ctx, s.id)
		return err
	})
}

// open starts the command. A command that is itself at fault is no error and no
// process: the record says why.
func (s *session) open(ctx context.Context) (process sandbox.Process, err error) {
	err = s.phase(PhaseOpen, func() (err error) {
		process, err = s.runtime.OpenProcess(ctx, s.id, s.spec.request())
		if cause := startFailure(err); cause != "" {
			s.record.Cause = cause
			s.record.fail(PhaseOpen, s.spec.hide(err))
			err = nil // the caller's mistake, and an answer
		}
		return err
	})
	if err == nil && process != nil {
		evidence := process.Evidence()
		s.record.Evidence = &evidence
	}
	return process, err
}
