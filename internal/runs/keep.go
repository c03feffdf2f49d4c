package runs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Run is the entry of a Run that is under way.
type Run struct {
	at          string
	entry       Entry
	lock        *os.File
	patch, base part
}

// Begin makes the entry of a Run that begins now, and makes room for it. Of e it
// takes what is known by now; Schema and StartedAt are set here.
// Errors: the operating system's; *sandbox.Invalid for an id that is none.
func Begin(dir string, e Entry) (*Run, error) {
	if err := CheckID(e.RunID); err != nil {
		return nil, err
	}
	top := root(dir)
	if err := errors.Join(os.MkdirAll(top, 0o700), os.Chmod(top, 0o700)); err != nil {
		return nil, err
	}
	// A Run does not fail for what others left.
	roomErr := makeRoom(dir)
	e.Schema, e.StartedAt = Schema, sandbox.At(time.Now())
	unborn, err := os.MkdirTemp(top, unbornPrefix) // mode 0700
	if err != nil {
		return nil, errors.Join(err, roomErr)
	}
	r := &Run{at: placeOf(dir, e.RunID), entry: e.readable()}
	r.lock, err = lock(unborn, os.O_CREATE|os.O_EXCL, unix.LOCK_EX)
	if err == nil {
		err = writeEntry(unborn, r.entry)
	}
	if err == nil {
		err = os.Rename(unborn, r.at)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close(), os.RemoveAll(unborn))
	}
	r.patch, r.base = part{path: filepath.Join(r.at, patchName)}, part{path: filepath.Join(r.at, baseName)}
	return r, nil
}

func writeEntry(at string, e Entry) error {
	data, err := canonical.Encode(e)
	if err != nil {
		return err
	}
	return replace(at, entryName, data)
}

// Patch takes the change of the Run, and Base what it began with. Their writers
// never fail, so that what becomes of a Run does not depend on its history: End
// says what could not be kept.
func (r *Run) Patch() io.Writer { return &r.patch }

// Base takes what the changed files were before.
func (r *Run) Base() io.Writer { return &r.base }

// End completes the entry: change fills in how the Run ended, record is the Run's.
// Everything is on the disk when it returns. Without whole a change is not kept, and
// of a Run with a repository the entry says so: half of a change is not none.
// Errors: the operating system's; the entry then stays without an end.
func (r *Run) End(record []byte, whole bool, change func(*Entry)) error {
	e := r.entry
	change(&e)
	lost := errors.Join(r.patch.end(whole), r.base.end(whole && r.patch.err == nil))
	e.PatchBytes, e.BaseBytes = r.patch.size, r.base.size
	switch {
	case !whole && e.Repo != nil: // a machine can bring this about
		e.NotKept = "its changes were not collected in full"
	case lost != nil:
		e.NotKept = lost.Error()
	}
	e.FinishedAt = sandbox.At(time.Now())
	if err := errors.Join(replace(r.at, recordName, record), syncDir(r.at)); err != nil {
		return err
	}
	return errors.Join(writeEntry(r.at, e.readable()), syncDir(r.at), syncDir(filepath.Dir(r.at)))
}

// Discard takes the entry out of the history, of a Run that never began.
func (r *Run) Discard() error {
	return errors.Join(os.RemoveAll(r.at), r.Close())
}

// Close lets go of the entry. One without an end is that of a lost Run from now on.
func (r *Run) Close() error {
	if r.lock == nil {
		return nil
	}
	err := errors.Join(r.patch.close(), r.base.close(), r.lock.Close())
	r.lock = nil
	return err
}

// part is a file of an entry while it is written; it is made by the first byte.
type part struct {
	path string
	file *os.File
	size int64
	err  error // why it is not kept
}

// Write never fails.
func (p *part) Write(b []byte) (int, error) {
	if p.err == nil {
		p.err = p.write(b)
	}
	return len(b), nil
}

func (p *part) write(b []byte) (err error) {
	if p.size+int64(len(b)) > MaxPart {
		return fmt.Errorf("%s: larger than %d MiB", filepath.Base(p.path), MaxPart>>20)
	}
	if p.file == nil {
		if p.file, err = os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600); err != nil {
			return err
		}
	}
	n, err := p.file.Write(b)
	p.size += int64(n)
	return err
}

// end puts the file onto the disk, or removes it.
func (p *part) end(keep bool) error {
	if p.file == nil {
		p.size = 0
		return p.err
	}
	if keep && p.err == nil {
		p.err = p.file.Sync()
	}
	err := errors.Join(p.err, p.close())
	if keep && err == nil {
		return nil
	}
	p.size = 0
	return errors.Join(err, os.Remove(p.path))
}

func (p *part) close() error {
	if p.file == nil {
		return nil
	}
	err := p.file.Close()
	p.file = nil
	return err
}
