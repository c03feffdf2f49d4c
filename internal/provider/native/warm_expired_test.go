package native

import (
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// What has expired by the clock of sweeps, as after a night in which the host slept, is
// given to nobody.
func TestWarm_WhatExpiredIsGivenToNobody(t *testing.T) {
	p := warmed(t, newProvider(t, "runc"), Warm{Each: 1})
	asked(t, p, request(p))
	waitFor(t, p, 1)
	done := p.pool.work() // none is started meanwhile
	defer done()
	p.mu.Lock()
	for _, s := range p.pool.shapes {
		for _, r := range s.ready {
			r.in.request.ExpiresAt = sandbox.At(time.Now().Add(-time.Second))
		}
	}
	p.mu.Unlock()
	waits := waitingIDs(t, p)[0]
	if id := provision(t, p, request(p)); id == waits {
		t.Error("it was given out")
	}
}

// A sweep that read of a machine that it waits, and is past its time, leaves it alone
// where somebody has it by then.
func TestExpire_WhatWasClaimedMeanwhile(t *testing.T) {
	p := newProvider(t, "runc")
	id := provision(t, p, request(p))
	gone, err := p.expire(t.Context(), id, p.place(id), sandbox.At(time.Now()))
	if gone || err != nil {
		t.Errorf("gone %v, %v", gone, err)
	}
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Error(err)
	}
	if gone, err = p.expire(t.Context(), id, p.place(id), later(time.Hour)); !gone || err != nil {
		t.Errorf("past its time: gone %v, %v", gone, err)
	}
}
