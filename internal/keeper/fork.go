package keeper

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// Fork marks a session that is being forked while it is active: the snapshot that the
// forks are copies of is no session's own, and a sweep must not take it for a leftover.
// The kernel gives the mark up with the process that made it, however that ends; what
// the mark names is a leftover then.
type Fork struct {
	path string
	mark *os.File // locked
}

// markPrefix begins the name of a mark in a session's directory.
const markPrefix = "fork-"

// BeginFork marks a session. It comes before the snapshot: there is no moment then in
// which that is there and looks like nobody's.
// Errors: *Error with NotFound; *sandbox.Invalid for an id that is none; the operating
// system's.
func BeginFork(dir, id string) (*Fork, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	at, name := placeOf(dir, id), mint(markPrefix)
	// Under another name until it is locked: nobody takes it before.
	mark, err := lockFile(at.file("."+name), os.O_CREATE|os.O_EXCL, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, os.ErrNotExist) {
		err = &Error{Kind: NotFound, SessionID: id}
	}
	if err != nil {
		return nil, err
	}
	if err := os.Rename(at.file("."+name), at.file(name)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(at.file("."+name)), mark.Close())
	}
	return &Fork{path: at.file(name), mark: mark}, nil
}

// From notes the snapshot that the forks are copies of.
func (f *Fork) From(id sandbox.SnapshotID) error {
	_, err := f.mark.WriteString(string(id))
	return err
}

// Close takes the mark away. The snapshot is the caller's to destroy before.
func (f *Fork) Close() error { return errors.Join(os.RemoveAll(f.path), f.mark.Close()) }

// Leave gives the mark up where that could not be done: a sweep does it.
func (f *Fork) Leave() error { return f.mark.Close() }

// Forks are the marks of a session. Those whose fork was cut off are in the hands of
// this process, so that nobody else sweeps what they name, or makes it the session's
// own.
type Forks struct {
	Running bool                 // one is under way, or its mark in other hands
	CutOff  []sandbox.SnapshotID // what those that were cut off were copies of

	held []*os.File
}

// TakeForks takes the marks of a session in hand. Close or Remove gives them back.
// Errors: *sandbox.Invalid for an id that is none; the operating system's.
func TakeForks(dir, id string) (*Forks, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	forks := &Forks{}
	entries, err := os.ReadDir(placeOf(dir, id).dir)
	if errors.Is(err, os.ErrNotExist) {
		return forks, nil // with the session
	}
	for _, e := range entries {
		if ok, _ := filepath.Match(markPrefix+"*", e.Name()); !ok {
			continue
		}
		mark, lockErr := lockFile(placeOf(dir, id).file(e.Name()), 0, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(lockErr, errOwned):
			forks.Running = true
			continue
		case errors.Is(lockErr, os.ErrNotExist):
			continue // it has come to its end
		case lockErr != nil:
			err = errors.Join(err, lockErr)
			continue
		}
		forks.held = append(forks.held, mark)
		text, readErr := io.ReadAll(io.LimitReader(mark, 256)) // an id is shorter
		if err = errors.Join(err, readErr); len(text) > 0 {
			forks.CutOff = append(forks.CutOff, sandbox.SnapshotID(text))
		}
	}
	if err != nil {
		return nil, errors.Join(err, forks.Close())
	}
	return forks, nil
}

// Remove takes the marks away: what they name is destroyed, or a session's own.
func (f *Forks) Remove() (err error) {
	for _, mark := range f.held {
		err = errors.Join(err, os.RemoveAll(mark.Name()))
	}
	return errors.Join(err, f.Close())
}

// Close gives the marks back as they are.
func (f *Forks) Close() (err error) {
	for _, mark := range f.held {
		err = errors.Join(err, mark.Close())
	}
	f.held = nil
	return err
}
