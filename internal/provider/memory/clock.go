package memory

import (
	"sync"
	"time"
)

// Clock is where the provider takes the time from. Nothing here looks at the
// wall clock.
type Clock interface {
	Now() time.Time
}

// Waiter is what a Clock may do besides: After gives a channel that receives
// once the clock has gone on by d. Without it a sleep in a live process ends
// only by a signal.
type Waiter interface {
	After(d time.Duration) <-chan time.Time
}

// Advancer is what a Clock may do besides: Advance moves it on. A command that
// slept has then moved it by as much; without it the command's interval merely
// says so.
type Advancer interface {
	Advance(d time.Duration)
}

// Manual is a Clock that stands still until somebody moves it. It is a Waiter
// and an Advancer. The zero value stands at the zero time; use NewManual.
//
// Concurrency: all methods may be called by many goroutines at once.
type Manual struct {
	mu      sync.Mutex
	now     time.Time
	waiters []waiter
}

type waiter struct {
	at time.Time
	ch chan time.Time
}

// NewManual returns a clock that stands at start.
func NewManual(start time.Time) *Manual { return &Manual{now: start} }

// Now returns the time at which the clock stands.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Advance moves the clock on by d and wakes who waited for less.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
	kept := m.waiters[:0]
	for _, w := range m.waiters {
		if w.at.After(m.now) {
			kept = append(kept, w)
		} else {
			w.ch <- m.now
		}
	}
	m.waiters = kept
}

// After returns a channel that receives once the clock has gone on by d.
func (m *Manual) After(d time.Duration) <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := waiter{m.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		w.ch <- m.now
	} else {
		m.waiters = append(m.waiters, w)
	}
	return w.ch
}
