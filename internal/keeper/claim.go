package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unbornPrefix begins the name of a session's directory before it is in place.
// No id begins so.
const unbornPrefix = ".new-"

// claim makes the directory of a session, with its lock held and its record in
// place, in one step that others see whole or not at all.
// Errors: *Error with Exists.
func claim(dir string, r Record) (place, *os.File, error) {
	root := sessionsDir(dir)
	if err := errors.Join(os.MkdirAll(root, 0o700), os.Chmod(root, 0o700)); err != nil {
		return place{}, nil, err
	}
	temporary, err := os.MkdirTemp(root, unbornPrefix) // mode 0700
	if err != nil {
		return place{}, nil, err
	}
	unborn, born := place{temporary}, placeOf(dir, r.SessionID)
	lock, err := lockFile(unborn.file(lockName), os.O_CREATE|os.O_EXCL, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unborn.write(r)
	}
	if err == nil {
		// What is there already always has something in it, and is not replaced.
		err = os.Rename(unborn.dir, born.dir)
	}
	if err == nil {
		if err = errors.Join(syncDir(root), syncDir(dir)); err == nil {
			return born, lock, nil
		}
		// A power loss could take it from who is told of it.
		unborn = born
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
		err = &Error{Kind: Exists, SessionID: r.SessionID}
	}
	err = errors.Join(err, os.RemoveAll(unborn.dir))
	if lock != nil {
		lock.Close()
	}
	return place{}, nil, err
}

var errOwned = errors.New("its keeper lives")

// seize takes the lock of a session whose keeper is gone.
// Errors: errOwned; fs.ErrNotExist where there is no such session.
func (p place) seize(how int) (*os.File, error) {
	lock, err := lockFile(p.file(lockName), 0, how|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	// What was removed while it was opened is another's lock, or nobody's.
	var mine, there unix.Stat_t
	if unix.Fstat(int(lock.Fd()), &mine) != nil || unix.Stat(p.file(lockName), &there) != nil || mine.Ino != there.Ino || mine.Dev != there.Dev {
		lock.Close()
		return nil, os.ErrNotExist
	}
	return lock, nil
}

func lockFile(path string, flag, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|flag, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errOwned
	}
	return nil, &os.PathError{Op: "flock", Path: path, Err: err}
}

// sweepUnborn removes what keepers left that died before they had a session.
func sweepUnborn(dir string) error {
	entries, err := os.ReadDir(sessionsDir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unbornPrefix) {
			continue
		}
		at := place{filepath.Join(sessionsDir(dir), e.Name())}
		lock, lockErr := at.seize(unix.LOCK_EX)
		if errors.Is(lockErr, os.ErrNotExist) {
			// Dead in its first moment, or being made right now. A minute is longer
			// than that moment can be.
			if info, statErr := os.Stat(at.dir); statErr != nil || time.Since(info.ModTime()) < time.Minute {
				continue
			}
		} else if lockErr != nil {
			continue
		}
		err = errors.Join(err, os.RemoveAll(at.dir))
		if lock != nil {
			lock.Close()
		}
	}
	return err
}
