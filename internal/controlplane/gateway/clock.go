package gateway

import "time"

// Clock is the time that leases and waits for an upstream live by. The waits for
// a connection are the kernel's.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d. stop reports whether
	// that will not happen any more; if not, f has been called or is being.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// System is the machine's own clock.
var System Clock = system{}

type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
