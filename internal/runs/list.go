package runs

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// Listed is one Run as List finds it.
type Listed struct {
	Entry
	State State
	Bytes int64 // on the disk
	Err   error // why a Damaged one cannot be read; Entry then has an id and a time
}

// List names the Runs of the state directory dir, newest first.
// Errors: the operating system's.
func List(dir string) ([]Listed, error) {
	names, err := os.ReadDir(root(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, n := range names {
		if CheckID(n.Name()) != nil {
			continue
		}
		l, err := look(dir, n.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue // gone since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(b.StartedAt, a.StartedAt), cmp.Compare(b.RunID, a.RunID))
	})
	return all, nil
}

func look(dir, id string) (Listed, error) {
	at := placeOf(dir, id)
	info, err := os.Lstat(at)
	if err != nil {
		return Listed{}, err
	}
	l := Listed{State: Ended, Bytes: size(at)}
	held, err := lock(at, 0, unix.LOCK_SH)
	if err == nil {
		held.Close()
	}
	running := errors.Is(err, unix.EWOULDBLOCK)
	data, err := read(at, entryName)
	if err == nil {
		l.Entry, err = parse(data, id)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		if _, gone := os.Lstat(at); gone != nil {
			return Listed{}, gone
		}
		fallthrough
	case err != nil:
		l.State, l.Err = Damaged, err
		l.RunID, l.StartedAt = id, sandbox.At(info.ModTime())
	case running:
		l.State = Running
	case l.FinishedAt == "":
		l.State = Lost
	}
	return l, nil
}

// size is what lies in a directory, in bytes.
func size(at string) (n int64) {
	_ = filepath.WalkDir(at, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // going
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// Kept is one Run of the history, held against its removal until Close.
type Kept struct {
	Entry
	at   string
	lock *os.File
}

// Open opens a Run that has ended, or was lost; "latest" is the newest of them.
// Errors: *Error with NotFound, UnderWay, Unreadable or InUse; *sandbox.Invalid for an id that
// is none; the operating system's.
func Open(dir, id string) (*Kept, error) {
	if id == "latest" {
		all, err := List(dir)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(l Listed) bool { return l.State == Ended })
		if i < 0 {
			return nil, &Error{Kind: NotFound, RunID: id}
		}
		id = all[i].RunID
	}
	if err := CheckID(id); err != nil {
		return nil, err
	}
	at := placeOf(dir, id)
	held, err := lock(at, 0, unix.LOCK_SH)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &Error{Kind: NotFound, RunID: id}
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, &Error{Kind: UnderWay, RunID: id}
	case err != nil:
		return nil, err
	}
	k := &Kept{at: at, lock: held}
	data, err := read(at, entryName)
	if err == nil {
		k.Entry, err = parse(data, id)
	}
	if err != nil {
		held.Close()
		return nil, &Error{Kind: Unreadable, RunID: id, Err: err}
	}
	return k, nil
}

// Close lets go of the Run.
func (k *Kept) Close() error { return k.lock.Close() }

// Record is the Run's record as it was encoded.
// Errors: fs.ErrNotExist for a lost Run.
func (k *Kept) Record() ([]byte, error) { return read(k.at, recordName) }

// Patch opens the change.
// Errors: fs.ErrNotExist where there is none, which is so for a lost Run.
func (k *Kept) Patch() (*os.File, error) { return k.part(patchName, k.PatchBytes) }

// Base opens what the change began with.
// Errors: as Patch.
func (k *Kept) Base() (*os.File, error) { return k.part(baseName, k.BaseBytes) }

// part opens a file that the entry says is kept. One of which it says nothing is half
// of what its writer, who was killed, meant to write.
func (k *Kept) part(name string, size int64) (*os.File, error) {
	if size == 0 {
		return nil, fs.ErrNotExist
	}
	return os.OpenFile(filepath.Join(k.at, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Remove takes a Run out of the history.
// Errors: *Error with NotFound, or InUse where it runs or is read.
func Remove(dir, id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	at := placeOf(dir, id)
	held, err := lock(at, 0, unix.LOCK_EX)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return &Error{Kind: InUse, RunID: id}
	case errors.Is(err, os.ErrNotExist):
		// Without a lock it is no entry of ours, or a damaged one.
		if _, err := os.Lstat(at); err != nil {
			return &Error{Kind: NotFound, RunID: id}
		}
	case err != nil:
		return err
	default:
		defer held.Close()
	}
	// Out of sight at once: a crash leaves no half of an entry.
	gone := filepath.Join(root(dir), gonePrefix+id)
	if err := errors.Join(os.RemoveAll(gone), os.Rename(at, gone)); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// Prune removes the Runs that began before a moment and are not under way; dry
// removes none. Those that somebody reads stay.
// Errors: the operating system's, beside what was removed.
func Prune(dir string, before time.Time, dry bool) (removed []Listed, err error) {
	if !dry {
		err = sweep(dir)
	}
	all, listErr := List(dir)
	err = errors.Join(err, listErr)
	for _, l := range all {
		if l.State == Running || l.StartedAt >= sandbox.At(before) {
			continue
		}
		if !dry {
			one := Remove(dir, l.RunID)
			if one != nil {
				if !InUse.Is(one) && !NotFound.Is(one) {
					err = errors.Join(err, one)
				}
				continue
			}
		}
		removed = append(removed, l)
	}
	return removed, err
}

// makeRoom removes the oldest Runs until one more has room, and what crashes left.
func makeRoom(dir string) error {
	err := sweep(dir)
	all, listErr := List(dir)
	if err = errors.Join(err, listErr); listErr != nil {
		return err
	}
	var bytes int64
	for i, l := range all {
		bytes += l.Bytes
		if (i+1 >= MaxRuns || bytes > MaxBytes) && l.State != Running {
			if one := Remove(dir, l.RunID); !InUse.Is(one) && !NotFound.Is(one) {
				err = errors.Join(err, one)
			}
		}
	}
	return err
}

// sweep removes entries that were never whole or were going when a crash came.
func sweep(dir string) error {
	names, err := os.ReadDir(root(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, n := range names {
		at := filepath.Join(root(dir), n.Name())
		switch {
		case strings.HasPrefix(n.Name(), gonePrefix):
			err = errors.Join(err, os.RemoveAll(at))
		case strings.HasPrefix(n.Name(), unbornPrefix):
			// A minute is longer than an entry is being made.
			if info, gone := os.Lstat(at); gone == nil && time.Since(info.ModTime()) > time.Minute {
				err = errors.Join(err, os.RemoveAll(at))
			}
		}
	}
	return err
}
