package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errHung says that the target did not come back in time.
var errHung = errors.New("the target did not answer")

// Hung reports whether err is the engine's own word for a call that did not
// come back in time.
func Hung(err error) bool { return errors.Is(err, errHung) }

// panicked is what became of a call that panicked.
type panicked struct{ said string }

// Error is one line.
func (p *panicked) Error() string { return "panic: " + p.said }

// grace is how long a call that was told to end may still take, by the
// machine's clock.
const grace = 5 * time.Second

// wait is how long a call is waited for.
type wait struct {
	clock Clock
	limit time.Duration   // on clock, also when the caller has given up
	end   <-chan struct{} // closed when there is no time left but grace
}

// within is the wait for a call of this run that ends with ctx.
func (r *run) within(ctx context.Context, limit time.Duration) wait {
	return wait{r.watch, limit, ctx.Done()}
}

// answer is what a call came back with, if it did.
type answer[V any] struct {
	mu    sync.Mutex
	there bool
	left  bool // nobody waits any more
	value V
	err   error
}

// bounded makes one call into the target on a goroutine of its own, so that
// one that never returns costs a goroutine and not the run. What comes when
// nobody waits any more is given to late, on that goroutine; late may be nil.
// Errors: the call's own; *panicked; errHung after the limit, or when the end
// has come and grace has passed.
func bounded[V any](ctx context.Context, w wait, call func(context.Context) (V, error), late func(V, error)) (V, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var a answer[V]
	answered := make(chan struct{})
	timer := w.clock.NewTimer(w.limit) // before the call, which may let its time pass at once
	defer timer.Stop()
	go func() {
		value, err := survive(inner, call)
		a.mu.Lock()
		a.there, a.value, a.err = true, value, err
		left := a.left
		a.mu.Unlock()
		close(answered)
		if left && late != nil {
			late(value, err)
		}
	}()
	// leave takes an answer that is already there, however the select chose.
	leave := func(format string, d time.Duration) (V, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.there {
			return a.value, a.err
		}
		a.left = true
		return a.value, fmt.Errorf(format, errHung, d)
	}
	select {
	case <-answered:
		return a.value, a.err
	case <-timer.C():
		return leave("%w within %v", w.limit)
	case <-w.end:
	}
	last := time.NewTimer(grace)
	defer last.Stop()
	select {
	case <-answered:
		return a.value, a.err
	case <-last.C:
		return leave("%w %v after it was told to end", grace)
	}
}

// survive makes a call and lives through its panic. An error is a value of the
// target too: one whose text never comes, or that wraps itself, is found here,
// where somebody waits with a bound, and not where the engine reads it.
func survive[V any](ctx context.Context, call func(context.Context) (V, error)) (value V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{text(p)}
		}
	}()
	value, err = call(ctx)
	if err != nil {
		_, _ = err.Error(), Hung(err)
	}
	return value, err
}
