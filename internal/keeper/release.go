package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// notRemoved is what a release says that has kept all and could not remove the machine.
var notRemoved = &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpRelease, Reason: sandbox.ReasonNotRemoved}

// Release is the provider's, and the end of the machine. Of a session that keeps
// what is in it it is a pause: the snapshot is the session's from then on, and on
// its record before anybody hears of it.
//
// One is done after the other: the second finds what the first has left, and what
// the first has kept is on the record then.
func (g *guard) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	return g.release(ctx, id, r, func(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
		if g.in.KeepMillis > 0 {
			g.quiet(ctx)
		}
		return g.Provider.Release(ctx, id, r)
	}, func() {})
}

// release is Release by one of the provider's ways. told is called where the session is
// paused, before it ends.
func (g *guard) release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest, do LiveReleaser, told func()) (sandbox.Handoff[sandbox.Released], error) {
	var none sandbox.Handoff[sandbox.Released]
	select {
	case g.releasing <- struct{}{}:
		defer func() { <-g.releasing }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	// Now: who destroys it meanwhile makes the guard forget it, and a record needs it.
	in := g.instance()
	if in != nil && in.InstanceID != id {
		in = nil
	}
	h, err := do(ctx, id, r)
	if err != nil {
		g.log(err)
		if in != nil && g.in.KeepMillis > 0 && errors.Is(err, notRemoved) {
			g.leaving(r.ExpiresAt)
		}
		return h, err
	}
	defer g.went(id)
	if s := h.Value.Snapshot; s != nil && g.in.KeepMillis > 0 {
		if err := g.settled(ctx, in, *s); err != nil {
			g.log(err)
			return none, sandbox.Failed(sandbox.OpRelease, sandbox.ReasonProviderError, err)
		}
		// It is all that there is of the session, and goes with that alone.
		h.Rollback = func(context.Context) error {
			return sandbox.Conflict(sandbox.OpRelease+"_rollback", "a snapshot of nobody", "that of session "+g.in.SessionID)
		}
	}
	told()
	return h, nil
}

// quietBound is how long the live process has to end by itself before a pause.
const quietBound = 5 * time.Second

// quiet asks the live process to end, as a host does that goes down. One that does
// not goes with its machine.
func (g *guard) quiet(ctx context.Context) {
	l := g.process()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(quietBound, g.left()/2))
	defer cancel()
	if l.Signal(ctx, sandbox.SignalTerminate) == nil {
		_, _ = l.Wait(ctx)
	}
}

// pause keeps what is in the machine of a session that ends by itself. There is
// nobody to be told: where it cannot be done, the log says why.
func (k *keeper) pause(ctx context.Context) (err error) {
	for range teardownTries {
		k.mu.Lock()
		wanted, until := k.kept && k.record.Keeps() && !k.paused, k.record.PauseUntil(k.clock.Now())
		k.mu.Unlock()
		if !wanted { // or not any more: a pause under way was faster
			return nil
		}
		in := k.guard.instance()
		if in == nil {
			break
		}
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseBound)
		_, err = k.guard.Release(bound, in.InstanceID, sandbox.ReleaseRequest{ExpiresAt: until})
		cancel()
		if err == nil {
			break
		}
	}
	return err
}

// settled makes s, taken of in, all that there is of the session. What was kept before
// is destroyed then, and not earlier.
func (k *keeper) settled(ctx context.Context, in *sandbox.Instance, s sandbox.Snapshot) error {
	if in == nil { // no reader takes such a record, and with it all would be lost
		return errors.New("snapshot " + string(s.SnapshotID) + " is of no machine of this session")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.record
	last := r.Snapshot
	r.State, r.Instance, r.Snapshot, r.Leaving = StatePaused, in, &s, ""
	if err := k.at.write(r); err != nil {
		return err
	}
	k.record, k.paused = r, true
	if last != nil {
		k.log.note(k.guard.DestroySnapshot(ctx, last.SnapshotID))
	}
	return nil
}

// leaving notes until when that is kept what the next pause goes on with. This keeper
// knows it from then on, also where the disk takes nothing.
func (k *keeper) leaving(until sandbox.Timestamp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.record.State != StateActive { // nobody's yet: it goes with its starter
		return
	}
	k.record.Leaving = until
	k.log.note(k.at.write(k.record))
}
