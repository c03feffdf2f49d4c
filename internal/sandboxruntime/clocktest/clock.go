// Package clocktest is a clock for tests: time moves only when the test says
// so, and a test can wait until the code under test waits.
//
// Concurrency: all methods may be called at once. Blocks: only AwaitTimers.
package clocktest

import (
	"context"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
)

// Clock is a fake sandboxruntime.Clock.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	timers  map[*timer]struct{}
	changed chan struct{} // closed and replaced when a timer starts or ends
}

// New returns a clock that stands at now.
func New(now time.Time) *Clock {
	return &Clock{now: now, timers: map[*timer]struct{}{}, changed: make(chan struct{})}
}

type timer struct {
	clock *Clock
	due   time.Time
	c     chan time.Time
}

// Now returns where the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer returns a timer that fires when the clock was advanced by d.
func (c *Clock) NewTimer(d time.Duration) sandboxruntime.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{clock: c, due: c.now.Add(d), c: make(chan time.Time, 1)}
	c.timers[t] = struct{}{}
	c.fire()
	return t
}

// Advance moves the clock by d and fires what is due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.fire()
}

// fire fires what is due and tells the waiters. The caller holds mu.
func (c *Clock) fire() {
	for t := range c.timers {
		if !t.due.After(c.now) {
			t.c <- c.now
			delete(c.timers, t)
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// AwaitTimers blocks until exactly n timers are running, or ctx is done.
func (c *Clock) AwaitTimers(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		running, changed := len(c.timers), c.changed
		c.mu.Unlock()
		if running == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Timers returns how many timers are running.
func (c *Clock) Timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

func (t *timer) C() <-chan time.Time { return t.c }

// Stop reports whether the timer was still running.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, running := t.clock.timers[t]
	delete(t.clock.timers, t)
	t.clock.fire()
	return running
}
