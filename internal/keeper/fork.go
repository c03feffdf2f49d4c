package keeper

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

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

// markPrefix begins the name of a mark in a session's directory, untilWord its first
// line, and the second is the snapshot's id.
const (
	markPrefix = "fork-"
	untilWord  = "until "
)

// BeginFork marks a session, of which a snapshot is made then that expires at until. It
// comes before the snapshot: there is no moment then in which that is there and looks
// like nobody's. Until From is called, until is what it is known by.
// Errors: *Error with NotFound; *sandbox.Invalid for an id that is none; the operating
// system's.
func BeginFork(dir, id string, until sandbox.Timestamp) (*Fork, error) {
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
	_, err = mark.WriteString(untilWord + string(until) + "\n")
	if err == nil {
		err = os.Rename(at.file("."+name), at.file(name))
	}
	if err != nil {
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
	Running bool     // one is under way, or its mark in other hands
	CutOff  []CutOff // those that were cut off

	held []*os.File
}

// CutOff is a fork whose process is gone.
type CutOff struct {
	From  sandbox.SnapshotID // what it copies; "" where it did not come to say so
	Until sandbox.Timestamp  // when that expires, whether it was made or not
	Since time.Time          // of its last word
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
		cut, readErr := readMark(mark)
		err = errors.Join(err, readErr)
		forks.CutOff = append(forks.CutOff, cut)
	}
	if err != nil {
		return nil, errors.Join(err, forks.Close())
	}
	return forks, nil
}

// readMark reads what a fork has come to say. What another version wrote is an id alone.
func readMark(mark *os.File) (cut CutOff, err error) {
	info, err := mark.Stat()
	if err != nil {
		return cut, err
	}
	text, err := io.ReadAll(io.LimitReader(mark, 512)) // a time and an id are shorter
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if until, ok := strings.CutPrefix(line, untilWord); ok {
			cut.Until = sandbox.Timestamp(until)
		} else {
			cut.From = sandbox.SnapshotID(line)
		}
	}
	cut.Since = info.ModTime()
	return cut, err
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
