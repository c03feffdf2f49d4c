package keeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Ending says how a session is ended.
type Ending struct {
	// Reclaim ends the machine of a keeper that is gone: the provider's own
	// sweep. The record stays where it fails. nil reclaims nothing.
	Reclaim func(context.Context, Listed) error
	// Kept tells a sweep whether something of a session is still kept: a snapshot
	// that has not expired. Such a session stays. nil is asked of nobody: then a
	// session that is paused stays.
	Kept func(context.Context, Listed) (bool, error)
	// Settle leaves what is kept: a session that can be paused is, and one that was
	// being resumed is paused as before.
	Settle bool
	// Patience is how long a keeper has to end by itself before it is killed; 0
	// is 90 s. One that was killed has as long again, and not less than 10 s.
	Patience time.Duration
}

// poll is how often another process's end is looked for: it has no event.
const poll = 10 * time.Millisecond

// End ends a session, whatever state it is in: its keeper is asked to, and killed
// where it does not; what it left is reclaimed, and the record removed. It
// returns when nothing is left.
//
// Blocks: until then, for two times Ending.Patience, or ctx is done. A keeper whose
// record cannot be read can be neither asked nor killed, and has the first alone.
// Errors: *Error with NotFound or Unremovable, and why; Reclaim's; ctx's;
// *sandbox.Invalid for an id that is none.
func End(ctx context.Context, dir, id string, e Ending) error {
	if err := CheckID(id); err != nil {
		return err
	}
	at := placeOf(dir, id)
	first, err := look(at)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(at.dir); err != nil {
			return &Error{Kind: NotFound, SessionID: id}
		}
	} else if err != nil {
		return err
	}
	if e.Patience == 0 {
		e.Patience = 90 * time.Second
	}
	kill := time.NewTimer(e.Patience)
	defer kill.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	asked, killed := false, false
	for {
		lock, err := at.seize(unix.LOCK_EX)
		switch {
		case err == nil:
			defer lock.Close()
			l := at.found()
			if e.Settle && l.Snapshot != nil {
				return nil
			}
			return reclaim(ctx, at, l, e)
		case errors.Is(err, os.ErrNotExist):
			if _, err := os.Lstat(at.dir); err != nil {
				return nil // by itself
			}
			return reclaim(ctx, at, at.found(), e) // without a lock it never was a session
		case !errors.Is(err, errOwned):
			return err
		}
		if r, err := at.record(); err == nil {
			if first.PID != 0 && r.LeaseID != first.LeaseID && r.CreatedAt != first.CreatedAt {
				return nil // another session has its id by now
			}
			if !asked {
				// One that was stopped takes no other signal.
				asked = r.signal(e.signal(r), unix.SIGCONT) == nil
			}
		}
		select {
		case <-tick.C:
		case <-kill.C:
			r, err := at.record()
			if unreadable := err != nil && !errors.Is(err, os.ErrNotExist); killed || unreadable {
				if err == nil {
					err = errOwned // by a process that is not the one of the record
				}
				return &Error{Kind: Unremovable, SessionID: id, Err: err}
			}
			killed = true
			if err == nil && r.signal(unix.SIGKILL) == nil {
				e.Patience = max(e.Patience, 10*time.Second)
			}
			kill.Reset(e.Patience)
		case <-ctx.Done():
			return &Error{Kind: Unremovable, SessionID: id, Err: context.Cause(ctx)}
		}
	}
}

// signal asks the keeper of r to end. A terminated one keeps what it can, so it is
// interrupted where nothing is to be kept.
func (e Ending) signal(r Record) unix.Signal {
	if r.Keeps() && !e.Settle {
		return unix.SIGINT
	}
	return unix.SIGTERM
}

// found is a session whose lock the caller holds.
func (p place) found() Listed {
	r, err := p.record()
	if err != nil {
		return Listed{Record: Record{SessionID: filepath.Base(p.dir), State: StateLost}, Damaged: err}
	}
	return unkept(r)
}

// reclaim removes what a keeper left that is gone. The caller holds the lock.
func reclaim(ctx context.Context, at place, l Listed, e Ending) error {
	if e.Reclaim != nil {
		if err := e.Reclaim(ctx, l); err != nil {
			return err
		}
	}
	return os.RemoveAll(at.dir)
}

// Sweep removes every session whose keeper is gone and of which nothing is kept,
// and names them. One that cannot be removed does not keep the others.
// Errors: those of End.
func Sweep(ctx context.Context, dir string, e Ending) (ids []string, err error) {
	err = sweepUnborn(dir)
	all, listErr := List(dir)
	err = errors.Join(err, listErr)
	for _, l := range all {
		if l.Keeping() {
			continue
		}
		one := bury(ctx, placeOf(dir, l.SessionID), e)
		switch {
		case one == nil:
			ids = append(ids, l.SessionID)
		case errors.Is(one, os.ErrNotExist) || errors.Is(one, errOwned) || errors.Is(one, errKept):
		default:
			err = errors.Join(err, one)
		}
	}
	return ids, err
}

// bury is End for a session that was dead a moment ago. One that lives now is
// left alone.
func bury(ctx context.Context, at place, e Ending) error {
	lock, err := at.seize(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	l := at.found()
	kept := l.State == StatePaused
	if e.Kept != nil {
		if kept, err = e.Kept(ctx, l); err != nil {
			return err // it may be somebody's work
		}
	}
	if kept {
		return errKept
	}
	return reclaim(ctx, at, l, e)
}

var errKept = errors.New("something of it is kept")
