package cli

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// scratch is the directory of one Run's staging: it can hold copies of files
// of the repository, so a crash must not leave it in the system's temporary
// directory for ever. Its lock says that its Run lives.
type scratch struct {
	dir  string
	lock *os.File
}

func scratchRoot(state string) string { return filepath.Join(state, "staging") }

// makeScratch makes the directory of a Run.
func makeScratch(state, runID string) (*scratch, error) {
	root := scratchRoot(state)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	// A sweep may not see the directory before it is locked.
	gate, err := locked(filepath.Join(root, "lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	dir := filepath.Join(root, runID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := locked(filepath.Join(dir, "lock"), unix.LOCK_EX)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &scratch{dir, lock}, nil
}

// remove removes the directory with all in it.
func (s *scratch) remove() error { return errors.Join(os.RemoveAll(s.dir), s.lock.Close()) }

// sweepScratch removes the directories whose Run is gone, and names the Runs.
func sweepScratch(state string) (runs []string, err error) {
	return eachIdleScratch(state, (*scratch).remove)
}

// idleScratch names the Runs whose directories a sweep would remove.
func idleScratch(state string) (runs []string, err error) {
	return eachIdleScratch(state, func(s *scratch) error { return s.lock.Close() })
}

func eachIdleScratch(state string, do func(*scratch) error) (runs []string, err error) {
	root := scratchRoot(state)
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	gate, err := locked(filepath.Join(root, "lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() {
			continue
		}
		lock, err := locked(filepath.Join(dir, "lock"), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
			continue // just gone, or alive
		}
		if err != nil {
			return runs, err
		}
		if err := do(&scratch{dir, lock}); err != nil {
			return runs, err
		}
		runs = append(runs, e.Name())
	}
	return runs, nil
}

func locked(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return f, nil
}
