// Package lock holds locks on open files (flock): between processes as well as
// within one, and gone with whoever held them, however that died.
//
// Trusts: the directories in which the files lie. Shapes: an open file is held
// until it, and every copy of its descriptor, is closed.
// Errors: host errors with the path; the context's own.
// Bounds: nothing waits longer than its context.
// Concurrency: all functions may be called by many goroutines, with files of
// their own.
package lock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How a file is locked.
const (
	Shared    = unix.LOCK_SH // with others who share it
	Exclusive = unix.LOCK_EX // alone
)

// How soon a lock that somebody else holds is tried again, at first and at most: most
// are held for a moment. flock cannot be awaited together with a context.
const (
	soonest = 50 * time.Microsecond
	latest  = 5 * time.Millisecond
)

// Wait locks an open file. It waits until ctx is done.
func Wait(ctx context.Context, f *os.File, how int) error {
	for wait := soonest; ; wait = min(2*wait, latest) {
		got, err := Try(f, how)
		if got || err != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Try locks an open file if nobody is in the way, and reports whether it did.
func Try(f *os.File, how int) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
		case nil:
			return true, nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// Open opens path with flags, locks it, and makes sure that path still names what
// was locked: whoever removes or replaces a locked file does so under Exclusive,
// so a lock got afterwards is a lock on nothing.
func Open(ctx context.Context, path string, flags, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := Wait(ctx, f, how); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if Names(path, f) {
			return f, nil
		}
		f.Close()
	}
}

// Names reports whether path is a name of the open file.
func Names(path string, f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}
