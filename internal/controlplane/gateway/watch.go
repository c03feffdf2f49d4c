package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// watch ends a request when its lease is over, or is another's, or nothing has
// moved for too long. It looks at all three every leaseTime, and at the lease's
// own end.
type watch struct {
	gateway *Gateway
	digest  string
	runID   string
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	lease Lease
	moved time.Time
	stop  func() bool
	over  bool
}

// Why requests are ended.
var (
	errLease = &route.Refusal{Status: 401, Reason: route.ReasonLease, Message: "the lease of this run is over, or held by another"}
	errIdle  = &route.Refusal{Status: 504, Reason: route.ReasonLate, Message: "the upstream is silent"}
)

// start begins with a look: the lease may have ended since it was looked up, and
// whoever ended it may have looked already for what runs.
func (w *watch) start() {
	w.gateway.mu.Lock()
	w.gateway.watches[w] = true
	w.gateway.mu.Unlock()
	w.mu.Lock()
	w.moved = w.gateway.clock.Now()
	w.mu.Unlock()
	w.look()
}

func (w *watch) again() {
	left := w.lease.ExpiresAt.Sub(w.gateway.clock.Now())
	w.stop = w.gateway.clock.AfterFunc(max(0, min(left, leaseTime)), w.look)
}

func (w *watch) look() {
	lease, err := w.gateway.leases.Lookup(w.digest)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if w.stop != nil {
		w.stop() // looked at out of turn
	}
	if err == nil {
		w.lease = lease // it may have been made longer
	}
	now := w.gateway.clock.Now()
	switch {
	// A store that fails ends nothing that it let begin, before its time.
	case errors.Is(err, ErrNoLease), !now.Before(w.lease.ExpiresAt):
		w.cancel(errLease)
	case now.Sub(w.moved) >= w.gateway.limits.Idle:
		w.cancel(errIdle)
	default:
		w.again()
	}
}

func (w *watch) move() {
	w.mu.Lock()
	w.moved = w.gateway.clock.Now()
	w.mu.Unlock()
}

func (w *watch) end() {
	w.gateway.mu.Lock()
	delete(w.gateway.watches, w)
	w.gateway.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.stop != nil {
		w.stop()
	}
}
