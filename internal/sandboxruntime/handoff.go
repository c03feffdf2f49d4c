package sandboxruntime

import (
	"context"
	"errors"

	"github.com/checkfu/checkfu/sandbox"
)

// acquisition is one call that returns a handoff, and what becomes of it.
//
// Exactly one of own (with a nil error), kept and unwound is the last to be
// called, each at most once; the last two possibly long after acquire returned.
// Source: contract "Allocation handoff".
type acquisition[T any] struct {
	op   sandbox.Operation
	call func(context.Context) (sandbox.Handoff[T], error)
	// check disbelieves the value. It is pure.
	check func(T) error
	// own takes ownership in one step that either happens or not.
	own func(T) error
	// kept: the provider failed, and so kept every partial allocation itself.
	kept func(err error)
	// unwound: the allocation was rolled back; err is nil if that succeeded.
	unwound func(err error)
}

// acquire drives one acquisition: call, check, then own or unwind.
//
// Interruption: while the provider works, ctx is its to obey. From the moment
// it returns, the transfer is masked: the checks and the change of ownership
// are one uninterrupted step, before which a done ctx rolls back and after
// which the caller owns. A provider that does not come back is left behind,
// and whatever it allocates later is rolled back by the goroutine that is
// still waiting for it.
func acquire[T any](ctx context.Context, r *Runtime, a acquisition[T]) (T, error) {
	var zero T
	unwind := func(h sandbox.Handoff[T]) error {
		err := rollback(ctx, r.link, a.op, h)
		if a.unwound != nil {
			a.unwound(err)
		}
		return err
	}
	h, left, err := do(ctx, r.link, call[sandbox.Handoff[T]]{op: a.op, run: a.call, late: func(h sandbox.Handoff[T], err error) {
		if err == nil {
			r.report(unwind(h))
		} else if a.kept != nil {
			a.kept(authored(ctx, r.link, a.op, err))
		}
	}})
	if err != nil {
		if !left && a.kept != nil {
			a.kept(err)
		}
		return zero, err
	}
	switch {
	case h.Rollback == nil:
		err = protocolInvalid(a.op, "rollback", "a compensation", "none")
	default:
		err = a.check(h.Value)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = a.own(h.Value)
	}
	if err != nil {
		return zero, join(err, unwind(h))
	}
	return h.Value, nil
}

// rollback calls the compensation, cold and once: it passes nothing of the
// value, which was rejected because it cannot be trusted. A handoff without
// one leaves the allocation to the sweep.
// Source: contract "Allocation handoff".
func rollback[T any](ctx context.Context, l link, op sandbox.Operation, h sandbox.Handoff[T]) error {
	if h.Rollback == nil {
		return errNoCompensation
	}
	return settle(ctx, l, rollbackOf(op), h.Rollback)
}

// errNoCompensation is never returned: the rejection already says it.
var errNoCompensation = errors.New("no compensation")

// join is errors.Join that leaves a single error as it is.
func join(rejection, compensation error) error {
	if compensation == nil || compensation == errNoCompensation {
		return rejection
	}
	return errors.Join(rejection, compensation)
}
