package sandboxruntime

import (
	"context"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Execute runs one bounded command to completion. Any number may run in one
// instance at once.
//
// Blocks: until the command settles, at most its own timeout and 30 s.
// Errors: CapabilityUnavailable{resources} for a timeout above the profile's
// max_duration_seconds, {network_policy} for a policy that no longer fits;
// LifecycleConflict; OutputLimitExceeded as the provider's honest answer;
// ProtocolInvalid for a settlement with two causes or none, an interval that
// runs backwards, or a stream over its limit; OperationFailed{timed_out} for a
// provider that does not settle in time.
// Source: contract "The operations", row execute; "Bounds".
func (r *Runtime) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	const op = sandbox.OpExecute
	if err := c.Validate(); err != nil {
		return sandbox.Settlement{}, refused(op, err)
	}
	i, err := r.enter(op, id, active)
	if err != nil {
		return sandbox.Settlement{}, err
	}
	if err := r.admitCommand(i, c); err != nil {
		i.leave()
		return sandbox.Settlement{}, err
	}
	s, err := use(ctx, r, i, call[sandbox.Settlement]{
		op:    op,
		limit: time.Duration(min(c.TimeoutSeconds, 1<<32))*time.Second + patience, // no overflow
		run:   func(ctx context.Context) (sandbox.Settlement, error) { return r.provider.Execute(ctx, id, c) },
	})
	if err != nil {
		return sandbox.Settlement{}, err
	}
	s.Exit = own(s.Exit)
	if err := s.Validate(c.OutputLimitBytes); err != nil {
		return sandbox.Settlement{}, rejected(op, err)
	}
	return s, nil
}

func (r *Runtime) admitCommand(i *instance, c sandbox.Command) error {
	const op = sandbox.OpExecute
	if most := i.request.Profile.ResourceLimits.MaxDurationSeconds; c.TimeoutSeconds > most {
		return sandbox.Unavailable(op, sandbox.RequireResources,
			"timeout_seconds "+strconv.FormatInt(c.TimeoutSeconds, 10), "max_duration_seconds "+strconv.FormatInt(most, 10))
	}
	return r.runnable(op, i)
}

// own copies what an exit points at: what is checked must be what is returned.
func own(e sandbox.Exit) sandbox.Exit {
	if e.ExitCode != nil {
		code := *e.ExitCode
		e.ExitCode = &code
	}
	return e
}
