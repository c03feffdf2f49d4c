package sandboxruntime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// patience is how long the runtime waits for a provider that does not come
// back although its context is done, and how long it gives a compensation.
// Source: contract "Allocation handoff", third rule.
const patience = sandbox.RollbackSeconds * time.Second

// link is the way to a provider: the clock that bounds its calls, and whether
// there is a wire in between.
type link struct {
	Clock
	remote bool
}

// call is one call into the provider. It runs on a goroutine of its own, so
// that a provider that never returns costs a goroutine and not the Run.
type call[T any] struct {
	op sandbox.Operation
	// limit bounds the call by the clock; 0 leaves it to ctx alone.
	limit time.Duration
	run   func(ctx context.Context) (T, error)
	// late is called, on the call's goroutine, with an answer that came after
	// the runtime had left.
	late func(T, error)
}

type answer[T any] struct {
	value T
	err   error
}

// do runs c and returns its answer. It leaves when the limit has passed, or
// patience after ctx is done; left is then true and late gets the answer.
// Errors: whatever authored makes of the provider's; timed_out when the limit
// passed; indeterminate when ctx is done and the provider did not return.
func do[T any](ctx context.Context, l link, c call[T]) (value T, left bool, err error) {
	var gone atomic.Bool
	answered := make(chan answer[T], 1)
	inner := ctx
	var limit <-chan time.Time
	if c.limit > 0 {
		bounded, cancel := context.WithCancel(ctx)
		defer cancel()
		timer := l.NewTimer(c.limit)
		defer timer.Stop()
		inner, limit = bounded, timer.C()
	}
	go func() {
		// Stands if the provider ends the goroutine instead of returning.
		a := answer[T]{err: &Defect{c.op, errors.New("the provider ended its goroutine")}}
		defer func() {
			if p := recover(); p != nil {
				a = answer[T]{err: &Defect{c.op, fmt.Errorf("panic: %v\n%s", p, debug.Stack())}}
			}
			if gone.CompareAndSwap(false, true) {
				answered <- a
			} else if c.late != nil {
				c.late(a.value, a.err)
			}
		}()
		widen()
		a.value, a.err = c.run(inner)
	}()
	leave := func(reason string) (T, bool, error) {
		if gone.CompareAndSwap(false, true) {
			var none T
			return none, true, sandbox.Failed(c.op, reason, ctx.Err())
		}
		a := <-answered
		return a.value, false, authored(ctx, l, c.op, a.err)
	}
	select {
	case a := <-answered:
		return a.value, false, authored(ctx, l, c.op, a.err)
	case <-limit:
		return leave(sandbox.ReasonTimedOut)
	case <-ctx.Done():
	}
	timer := l.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answered:
		return a.value, false, authored(ctx, l, c.op, a.err)
	case <-limit:
		return leave(sandbox.ReasonTimedOut)
	case <-timer.C():
		return leave(sandbox.ReasonIndeterminate)
	}
}

// widen gives a new goroutine in one step the stack that a call needs. Grown by
// doubling, and copied each time, it would cost a third of the whole call.
//
//go:noinline
func widen() {
	var frame [6 << 10]byte
	hold(&frame)
}

//go:noinline
func hold(*[6 << 10]byte) {}

// none is the value of a call that only fails or succeeds.
type none = struct{}

// settle runs fn for at most patience, detached from ctx's cancellation: the
// form of every compensation. Exceeding it is timed_out and fn is left behind.
// Source: contract "Allocation handoff", third rule.
func settle(ctx context.Context, l link, op sandbox.Operation, fn func(context.Context) error) error {
	_, _, err := do(context.WithoutCancel(ctx), l, call[none]{
		op: op, limit: patience,
		run: func(ctx context.Context) (none, error) { return none{}, fn(ctx) },
	})
	return err
}
