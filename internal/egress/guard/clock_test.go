package guard_test

import (
	"sync"
	"time"
)

// fakeClock moves when it is told.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[*fakeTimer]bool
	armed  *sync.Cond
}

type fakeTimer struct {
	at time.Time
	f  func()
}

func newFakeClock() *fakeClock {
	c := &fakeClock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), timers: map[*fakeTimer]bool{}}
	c.armed = sync.NewCond(&c.mu)
	return c
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c.now.Add(d), f}
	c.timers[t] = true
	c.armed.Broadcast()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		held := c.timers[t]
		delete(c.timers, t)
		return held
	}
}

// advance moves the clock and calls what is due, also what that arms.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		var next *fakeTimer
		for t := range c.timers {
			if !t.at.After(end) && (next == nil || t.at.Before(next.at)) {
				next = t
			}
		}
		if next == nil {
			break
		}
		delete(c.timers, next)
		c.now = next.at
		c.mu.Unlock()
		next.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// await waits until a timer is set that fires in d.
func (c *fakeClock) await(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for t := range c.timers {
			if t.at.Equal(c.now.Add(d)) {
				return
			}
		}
		c.armed.Wait()
	}
}
