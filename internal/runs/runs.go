// Package runs keeps the history of the Runs of a state directory: what ran on
// which tree, how it ended, and the change that came back, so that it can be looked
// at and merged later.
//
//	DIR/runs/ID/lock         flock: exclusive by a Run that is under way, shared by
//	                         who reads it
//	DIR/runs/ID/entry.json   Entry; written first, and again at the end
//	DIR/runs/ID/record.json  the Run's record
//	DIR/runs/ID/patch        the change, as git apply takes it; none where nothing changed
//	DIR/runs/ID/base         what the changed files were before, for a merge
//
// Directories have mode 0700 and files 0600: a patch is the user's source. Values of
// an environment are nowhere; arguments of commands are.
//
// An entry appears whole, by rename. Its end is written behind everything else and
// after that is on the disk, so an entry that has ended is complete, whatever
// crashed; one that has not, and whose lock nobody holds, is of a Run that was lost.
//
// Trusts: the directory, which only its owner and root can enter. Does not trust:
// the contents of a patch or base.
// Bounds: MaxRuns entries and MaxBytes in all, of which the oldest go first; MaxPart
// for each patch and base.
// Errors: *Error; the operating system's.
// Ownership: a Run belongs to the process that began it, until Close.
// Concurrency: everything may be called by any number of processes at once.
package runs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Schema names the form of Entry.
const Schema = "checkfu.run.v1"

// Bounds of a history. MaxPart is that of one patch, and of one base.
const (
	MaxRuns  = 200
	MaxBytes = 1 << 30
	MaxPart  = 64 << 20
)

const maxDocument = 64 << 20 // of an entry or record; a record can name every file of a tree

// State is where a Run is, one of a closed set.
type State string

// The states. Lost is a Run whose process ended before it did; of a damaged one the
// entry cannot be read.
const (
	Running State = "running"
	Ended   State = "ended"
	Lost    State = "lost"
	Damaged State = "damaged"
)

// Entry is one Run in the history. Text that was not UTF-8 is in a readable form.
type Entry struct {
	Schema     string            `json:"schema"`
	RunID      string            `json:"run_id"`
	Provider   string            `json:"provider"`
	Command    []string          `json:"argv"`
	Repo       *Repo             `json:"repo,omitzero"`
	StartedAt  sandbox.Timestamp `json:"started_at"`
	FinishedAt sandbox.Timestamp `json:"finished_at,omitzero"` // with it the Run has ended
	ExitCode   *int64            `json:"exit_code,omitzero"`   // of checkfu run
	Cause      string            `json:"cause,omitzero"`       // as in the record
	OutDir     string            `json:"out,omitzero"`         // absolute
	PatchPath  string            `json:"patch_path,omitzero"`  // absolute; "-" is standard output
	PatchBytes int64             `json:"patch_bytes,omitzero"` // of the one that is kept here
	BaseBytes  int64             `json:"base_bytes,omitzero"`
	NotKept    string            `json:"not_kept,omitzero"` // why patch or base is not here, whole
}

// Repo is the tree that a Run began with.
type Repo struct {
	Dir        string         `json:"dir"` // absolute
	Revision   string         `json:"revision,omitzero"`
	Commit     string         `json:"commit,omitzero"`
	Dirty      bool           `json:"dirty,omitzero"`
	TreeDigest sandbox.Digest `json:"tree_digest,omitzero"` // of every file that was staged
}

// Kind says what is wrong with a Run, one of a closed set.
type Kind string

// The kinds of an Error.
const (
	NotFound   Kind = "there is no such run"
	UnderWay   Kind = "it is still under way"
	Unreadable Kind = "its entry cannot be read"
	InUse      Kind = "it is in use"
)

// Error is about one Run of the history.
type Error struct {
	Kind  Kind
	RunID string
	Err   error // cause, or nil
}

// Error is one line.
func (e *Error) Error() string {
	s := fmt.Sprintf("run %s: %s", e.RunID, string(e.Kind))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is an Error of this kind.
func (k Kind) Is(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == k
}

// CheckID holds an id to its form, "run_" and 24 hexadecimal digits, which no path
// can misuse.
// Errors: *sandbox.Invalid.
func CheckID(id string) error {
	digits, ok := strings.CutPrefix(id, "run_")
	if !ok || len(digits) != 24 || strings.Trim(digits, "0123456789abcdef") != "" {
		return &sandbox.Invalid{Field: "run_id", Expected: "run_ and 24 hexadecimal digits", Got: id[:min(len(id), 100)]}
	}
	return nil
}

const (
	lockName   = "lock"
	entryName  = "entry.json"
	recordName = "record.json"
	patchName  = "patch"
	baseName   = "base"

	unbornPrefix = ".new-" // an entry that is being made
	gonePrefix   = ".gone-"
)

func root(dir string) string        { return filepath.Join(dir, "runs") }
func placeOf(dir, id string) string { return filepath.Join(root(dir), id) }

// read reads a document of an entry.
func read(at, name string) ([]byte, error) {
	f, err := os.OpenFile(filepath.Join(at, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxDocument)
	}
	return data, err
}

// parse reads an entry, which is to be that of id.
func parse(data []byte, id string) (e Entry, err error) {
	if err := canonical.Decode(data, &e); err != nil {
		return Entry{}, err
	}
	if e.Schema != Schema || e.RunID != id || CheckID(id) != nil || !e.StartedAt.Valid() || len(e.Command) == 0 ||
		e.FinishedAt != "" && !e.FinishedAt.Valid() || e.PatchBytes < 0 || e.BaseBytes < 0 {
		return Entry{}, fmt.Errorf("not a %s entry of this run", Schema)
	}
	return e, nil
}

// replace writes a file so that a reader sees the old one or the new one; it is on
// the disk when replace returns.
func replace(at, name string, data []byte) error {
	f, err := os.CreateTemp(at, "."+name+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(at, name))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// lock takes the lock of an entry without waiting.
// Errors: unix.EWOULDBLOCK where another holds it, fs.ErrNotExist.
func lock(at string, flag, how int) (*os.File, error) {
	path := filepath.Join(at, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|flag, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	// What was removed while it was opened is a lock on nothing.
	mine, err := f.Stat()
	there, gone := os.Lstat(path)
	if err != nil || gone != nil || !os.SameFile(mine, there) {
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// text is s with what is not UTF-8 replaced.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func (e Entry) readable() Entry {
	e.Command = slices.Clone(e.Command)
	for i, a := range e.Command {
		e.Command[i] = text(a)
	}
	if e.Repo != nil {
		r := *e.Repo
		r.Dir, r.Revision = text(r.Dir), text(r.Revision)
		e.Repo = &r
	}
	e.OutDir, e.PatchPath, e.NotKept = text(e.OutDir), text(e.PatchPath), text(e.NotKept)
	return e
}
