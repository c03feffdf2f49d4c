package client

import (
	"context"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// backoff is full jitter: each pause is anything up to a bound that doubles.
type backoff struct {
	random func() float64
	bound  time.Duration
}

// next returns how long to pause. floor is what the other side asked for.
func (b *backoff) next(floor time.Duration) time.Duration {
	b.bound = min(max(2*b.bound, firstPause), lastPause)
	return floor + time.Duration(b.random()*float64(b.bound))
}

// pause waits, or says why not.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
