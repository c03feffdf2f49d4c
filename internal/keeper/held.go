package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// Held is a session without a keeper, in the hands of one command: nobody else
// resumes, forks or removes it meanwhile, and no sweep takes it.
type Held struct {
	Record Record

	at   place
	lock *os.File
}

// holdBound is how long a session is waited for that somebody else has: who only
// looks at it has it for moments.
const holdBound = time.Second

// Hold takes a session in hand whose keeper is gone, paused or lost. Close gives
// it back.
//
// Blocks: for a second at most.
// Errors: *Error with NotFound or Busy; *sandbox.Invalid for an id that is none; a
// record that cannot be read; ctx's.
func Hold(ctx context.Context, dir, id string) (*Held, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	at := placeOf(dir, id)
	bound, cancel := context.WithTimeout(ctx, holdBound)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		lock, err := at.seize(unix.LOCK_EX)
		if err == nil {
			return hold(at, lock)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil, &Error{Kind: NotFound, SessionID: id}
		}
		if !errors.Is(err, errOwned) {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-bound.Done():
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, &Error{Kind: Busy, SessionID: id}
		}
	}
}

func hold(at place, lock *os.File) (*Held, error) {
	r, err := at.record()
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Held{Record: r, at: at, lock: lock}, nil
}

// Reserve makes a session that has neither machine nor snapshot yet, in the hands
// of this process. Of r it takes what its machines are made by: id, provider, expiry,
// Model, Registries, KeepMillis and Live. Where this process dies before Pause, a sweep
// removes it: nobody was told of it.
// Errors: *Error with Exists; *sandbox.Invalid; the operating system's.
func Reserve(dir string, r Record) (*Held, error) {
	if err := CheckID(r.SessionID); err != nil {
		return nil, err
	}
	if !r.Keeps() || r.KeepMillis > MaxKeep.Milliseconds() {
		return nil, &sandbox.Invalid{Field: "keep_ms", Expected: "a time to keep it, at most " + MaxKeep.String(), Got: fmt.Sprint(r.KeepMillis)}
	}
	r, err := begun(r, time.Now())
	if err != nil {
		return nil, err
	}
	at, lock, err := claim(dir, r)
	if err != nil {
		return nil, err
	}
	return &Held{Record: r, at: at, lock: lock}, nil
}

// begun is the record of a session of this process that has nothing yet.
func begun(r Record, now time.Time) (Record, error) {
	pid := int64(os.Getpid())
	began, err := startTime(pid)
	if err != nil {
		return Record{}, err
	}
	if r.LeaseID == "" {
		r.LeaseID = mint("lea_")
	}
	r.Schema, r.State, r.PID, r.StartTime, r.CreatedAt = RecordSchema, StateStarting, pid, began, sandbox.At(now)
	return r, nil
}

// Pause makes s what the session is, with the machine that it was taken of. It is
// on the disk when Pause returns.
func (h *Held) Pause(in sandbox.Instance, s sandbox.Snapshot) error {
	r := h.Record
	r.State, r.Instance, r.Snapshot, r.Leaving = StatePaused, &in, &s, ""
	if err := h.at.write(r); err != nil {
		return err
	}
	h.Record = r
	return nil
}

// Close gives the session back as it is.
func (h *Held) Close() error { return h.lock.Close() }

// Discard removes the record. What it names is the caller's to destroy before.
func (h *Held) Discard() error { return errors.Join(os.RemoveAll(h.at.dir), h.lock.Close()) }
