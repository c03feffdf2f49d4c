package native

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/provider/native/journal"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// dispatchBound is how long a publication may take after its marker: until the
// workload stands still, above all, for the rest is renames.
const dispatchBound = sandbox.RollbackSeconds * time.Second

// stop is one pause of a workload by a transaction, from before it was asked for
// until its end was seen. Its token is in that transaction's journal.
type stop struct {
	w      *activeWrite
	token  journal.Token
	resume func() error // nil where the pause failed, and its driver takes it back
}

// Dispatch publishes every target at once, or none: the workload stands still
// meanwhile, and so does whoever reads its mounts from the host. Every target must
// be staged. Once the marker was called ctx no longer counts. A program that has
// an old file open keeps what it has.
//
// Errors: before the marker: ctx's; InstanceNotFound; LifecycleConflict. After it,
// with the journal rolled back and the mount as it was: OperationFailed with
// changed (the workload put something in the way), instance_lost or
// provider_error; CapabilityUnavailable (disk_bytes). Otherwise OperationFailed
// with indeterminate: the files could not be put back, so the workload stands
// still, the journal says dispatched, and a Dispatch again goes on from there; or
// with instance_lost and a committed journal: the workload did not go on.
func (w *activeWrite) Dispatch(ctx context.Context, marker func()) error {
	if err := w.alive(ctx); err != nil {
		return err
	}
	in := w.in
	w.mu.Lock()
	again := w.stuck
	w.stuck = nil
	err := w.open()
	if err == nil && len(w.staged) < len(w.targets) {
		err = sandbox.Conflict(opWrite, strconv.Itoa(len(w.targets))+" targets staged", strconv.Itoa(len(w.staged)))
	}
	w.busy = w.busy || err == nil
	w.mu.Unlock()
	switch {
	case again != nil:
		return w.redeliver(ctx, again)
	case err != nil:
		return err
	}
	select { // a capture, or another publication, first comes to its end
	case in.capturing <- struct{}{}:
	case <-ctx.Done():
		w.mu.Lock()
		w.busy = false
		w.mu.Unlock()
		return ctx.Err()
	}
	held := false
	defer func() {
		if !held {
			<-in.capturing
		}
	}()
	marker()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dispatchBound)
	defer cancel()
	ctx, done, err := in.move(ctx, opWrite)
	if err != nil { // nobody is left to write for; its home takes the journal along
		w.set(sandbox.JournalRolledBack)
		return sandbox.Failed(opWrite, sandbox.ReasonInstanceLost, errors.Join(err, w.tx.Close()))
	}
	defer done()
	held, err = w.dispatch(ctx)
	return err
}

// dispatch is the publication. held says that it has to be gone on with: its
// workload stands still, and no capture may be made.
func (w *activeWrite) dispatch(ctx context.Context) (held bool, err error) {
	in := w.in
	in.mu.Lock()
	m, before := in.machine, in.stopped
	in.mu.Unlock()
	s := &stop{w: w, token: newToken()}
	var inherited journal.Token
	var earlier func() error
	if before != nil {
		inherited, earlier = before.token, before.resume
	}
	if err := w.tx.Dispatch(s.token, inherited); err != nil {
		return false, w.undone(ctx, s, sandbox.Failed(opWrite, sandbox.ReasonProviderError, err))
	}
	w.set(sandbox.JournalDispatched)
	s.resume = earlier
	in.setStopped(s)
	if before != nil { // its token is in this journal now
		before.w.remove(ctx)
	}
	if err := in.gate.close(ctx); err != nil {
		if before == nil {
			in.setStopped(nil) // no pause was asked for
		}
		return false, w.undone(ctx, s, w.lost(m, fmt.Errorf("the mounts are read all the time: %w", err)))
	}
	resume, err := m.Pause(ctx)
	in.p.opt.Step("write: paused")
	if err != nil {
		in.gate.open()
		return false, w.undone(ctx, s, w.lost(m, fmt.Errorf("the workload did not come to rest: %w", err)))
	}
	s.resume = func() error {
		err := resume()
		if earlier != nil { // both have ended, or neither counts
			err = errors.Join(err, earlier())
		}
		return err
	}
	if err = w.tx.Publish(); err == nil {
		err = w.tx.Commit()
	}
	if err != nil {
		err = w.refusal(m, err)
		if rerr := w.tx.Rollback(); rerr != nil {
			return true, w.stick(s, errors.Join(err, rerr))
		}
	}
	return false, w.finish(ctx, s, err)
}

// stick keeps a transaction whose files could not be put back: its evidence, and
// its workload where it stands.
func (w *activeWrite) stick(s *stop, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck = s
	return sandbox.Failed(opWrite, sandbox.ReasonIndeterminate, err)
}

// redeliver goes on with a rollback that failed.
func (w *activeWrite) redeliver(ctx context.Context, s *stop) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dispatchBound)
	defer cancel()
	ctx, done, err := w.in.move(ctx, opWrite)
	if err != nil {
		return sandbox.Failed(opWrite, sandbox.ReasonInstanceLost, err)
	}
	defer done()
	if err := w.tx.Rollback(); err != nil {
		return w.stick(s, err)
	}
	<-w.in.capturing
	return w.finish(ctx, s, sandbox.Failed(opWrite, sandbox.ReasonChanged, errors.New("all was put back by this redelivery")))
}

// finish lets the workload go on after a publication whose end the journal says,
// and returns its outcome. The token stays in the journal until that has been
// seen: then all that is left of the transaction goes.
func (w *activeWrite) finish(ctx context.Context, s *stop, outcome error) error {
	w.set(w.tx.State())
	err := s.resume()
	w.in.p.opt.Step("write: resumed")
	w.in.gate.open()
	if err != nil {
		return sandbox.Failed(opWrite, sandbox.ReasonInstanceLost, errors.Join(outcome, fmt.Errorf("the workload did not go on: %w", err)))
	}
	w.in.setStopped(nil)
	w.remove(ctx)
	return outcome
}

// undone ends a dispatch that never had its workload stand still, so that nothing
// was published. Where it had asked for a pause the token is kept until a later
// one was seen to end: only one at a time can be had of a machine.
func (w *activeWrite) undone(ctx context.Context, s *stop, outcome error) error {
	err := w.tx.Rollback()
	w.set(sandbox.JournalRolledBack) // whatever the record says: nothing was published
	if err != nil {
		outcome = sandbox.Failed(opWrite, sandbox.ReasonProviderError, errors.Join(outcome, err))
	}
	w.in.mu.Lock()
	kept := w.in.stopped == s
	w.in.mu.Unlock()
	if !kept {
		w.remove(ctx)
	}
	return outcome
}

// refusal says why a publication could not be made.
func (w *activeWrite) refusal(m machine.Machine, err error) error {
	if e := (*contain.Error)(nil); errors.As(err, &e) {
		switch e.Refusal {
		case contain.ErrNotRegular, contain.ErrNotDirectory, contain.ErrOutsideRoot, contain.ErrExists, contain.ErrNotFound:
			return sandbox.Failed(opWrite, sandbox.ReasonChanged, err)
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return w.in.writeError("", err)
	}
	return w.lost(m, err)
}

// lost tells a machine that is gone, or about to be removed, from one that did not
// do as it was told.
func (w *activeWrite) lost(m machine.Machine, err error) error {
	w.in.mu.Lock()
	ending := w.in.ending
	w.in.mu.Unlock()
	if gone := m.Alive(); gone != nil || ending {
		return sandbox.Failed(opWrite, sandbox.ReasonInstanceLost, errors.Join(err, gone))
	}
	return sandbox.Failed(opWrite, sandbox.ReasonProviderError, err)
}

// remove removes what is left of a settled transaction. Where that fails it lies
// there until the home goes: it says itself that it is settled.
func (w *activeWrite) remove(ctx context.Context) {
	if w.tx.Remove(ctx) != nil {
		_ = w.tx.Close()
	}
	w.in.dropWrite(w)
}

func (in *instance) setStopped(s *stop) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stopped = s
}

func newToken() journal.Token {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	return journal.Token(hex.EncodeToString(b[:]))
}
