package probe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errHung says that the target did not come back in time.
var errHung = errors.New("the target did not answer")

// Hung reports whether err is the engine's own word for a call that did not
// come back in time.
func Hung(err error) bool { return errors.Is(err, errHung) }

// panicked is what became of a call that panicked.
type panicked struct{ value any }

// Error is one line.
func (p *panicked) Error() string { return "panic: " + text(p.value) }

// grace is how long a call that was told to end may still take, by the
// machine's clock.
const grace = 5 * time.Second

// bounded makes one call into the target on a goroutine of its own, so that
// one that never returns costs a goroutine and not the run.
// Errors: the call's own; *panicked; errHung after limit on clock, or when ctx
// is done and grace has passed.
func bounded[V any](ctx context.Context, clock Clock, limit time.Duration, call func(context.Context) (V, error)) (V, error) {
	type answer struct {
		value V
		err   error
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan answer, 1)
	timer := clock.NewTimer(limit) // before the call, which may let its time pass at once
	defer timer.Stop()
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.err = &panicked{p}
			}
			answered <- a
		}()
		a.value, a.err = call(inner)
	}()
	var zero V
	select {
	case a := <-answered:
		return a.value, a.err
	case <-timer.C():
		// An answer that is already there counts, however the select chose.
		select {
		case a := <-answered:
			return a.value, a.err
		default:
		}
		cancel()
		return zero, fmt.Errorf("%w within %v", errHung, limit)
	case <-ctx.Done():
	}
	last := time.NewTimer(grace)
	defer last.Stop()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-last.C:
		return zero, fmt.Errorf("%w %v after it was told to end", errHung, grace)
	}
}
