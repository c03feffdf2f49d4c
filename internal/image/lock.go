package image

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a lock that somebody else holds is tried again. flock
// cannot be awaited together with a context.
const lockPoll = 10 * time.Millisecond

// lock takes a lock (unix.LOCK_SH or LOCK_EX) on an open file. It waits until
// ctx is done.
func lock(ctx context.Context, f *os.File, how int) error {
	for {
		got, err := tryLock(f, how)
		if got || err != nil {
			return err
		}
		t := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

// tryLock takes the lock if nobody holds it.
func tryLock(f *os.File, how int) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// openLocked opens path, locks it, and makes sure that path still names what
// was locked: whoever removes or replaces a locked file does so under
// LOCK_EX, so a lock got afterwards is a lock on nothing.
func openLocked(ctx context.Context, path string, flags, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(ctx, f, how); err != nil {
			f.Close()
			return nil, err
		}
		if same(f, path) {
			return f, nil
		}
		f.Close()
	}
}

func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}
