package server

import (
	"strconv"
	"time"
)

// Clock is what the server measures heartbeats, holds and retention with.
type Clock interface {
	Now() time.Time
	// NewTimer returns a channel that receives once after d, and a function
	// that stops the timer.
	NewTimer(d time.Duration) (<-chan time.Time, func() bool)
}

// System is the machine's own clock.
var System Clock = systemClock{}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }
func (systemClock) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
