// Package mount says which bytes go into one mount of a sandbox and turns a
// changed tree back into a patch.
//
// Trusts: the paths and options that the caller gives, the git program on the
// host and the user's own global ignore file. Does not trust: the repository
// (its configuration, attributes, hooks, refs, objects, names and links) or
// anything that comes back from the sandbox.
// Shapes: a Plan lists files by path relative to the mount, in byte order; it
// holds no contents. Paths are raw bytes, slash-separated, never absolute,
// without empty, "." or ".." elements.
// Units: sizes are int64 bytes.
// Bounds: MaxFile a file, MaxEntries files and links in a Plan.
// Ownership: the caller closes a Plan; a Plan owns a temporary directory, one
// directory descriptor and at most one git process.
// Concurrency: a Plan may be read by many goroutines; Close it once, last.
// Errors: *Error for everything that the caller or the repository did wrong.
// Source: contract "The mount plan", "Staging"; design "Where the documents
// are silent" 6 and 9.
package mount

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"
)

// MaxFile is the largest file that is staged or read back, in bytes.
const MaxFile = 16 << 20

// MaxEntries is the largest number of files and links in a Plan.
const MaxEntries = 100_000

// maxListed bounds the names that a Plan lists for one of the reasons that
// can hold whole build trees (Ignored, Untracked); Plan.Counts has them all.
const maxListed = 100

// ErrTooMany is the cause when a source holds more than MaxEntries entries.
var ErrTooMany = errors.New("too many entries")

// ErrChanged is the cause when bytes are not those that were digested.
var ErrChanged = errors.New("bytes changed since they were digested")

// Error says what could not be mounted, in one line that is safe to print.
type Error struct {
	Op     string // "git", "directory", "stage", "diff", "patch"
	Path   string // what was asked for, or the path inside it
	Reason string
	Err    error // cause, or nil
}

func (e *Error) Error() string {
	s := e.Op + " " + printable(e.Path) + ": " + e.Reason
	if e.Err != nil {
		s += ": " + printable(e.Err.Error())
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reason says why a path was left out of a mount.
type Reason string

// The closed set of reasons.
const (
	Symlink       Reason = "symlink"           // the caller does not stage links
	Submodule     Reason = "submodule"         // a commit of another repository
	LFSPointer    Reason = "lfs_pointer"       // staged as the pointer; the content is not here
	TooLarge      Reason = "too_large"         // over MaxFile
	Special       Reason = "special"           // neither file, link nor directory
	Ignored       Reason = "ignored"           // by the ignore rules
	Untracked     Reason = "untracked"         // not in the index, and not asked for
	EmptyDir      Reason = "empty_directory"   // bytes at paths cannot say it
	Nested        Reason = "nested_repository" // a .git of its own
	Unreadable    Reason = "unreadable"        // the user may not read it
	UnsafePath    Reason = "unsafe_path"       // a name that git or a mount refuses
	NotCheckedOut Reason = "not_checked_out"   // outside a sparse checkout
	Missing       Reason = "missing_object"    // a partial clone without it
	NoHistory     Reason = "history_too_large" // staged; its blob is absent from the .git inside
)

// Reasons returns the closed set, in order.
func Reasons() []Reason {
	return []Reason{Symlink, Submodule, LFSPointer, TooLarge, Special, Ignored, Untracked, EmptyDir,
		Nested, Unreadable, UnsafePath, NotCheckedOut, Missing, NoHistory}
}

// Staged reports whether a path with this reason is in Plan.Files all the same.
func (r Reason) Staged() bool { return r == LFSPointer || r == NoHistory }

// Skip is one path that was left out, or staged with a reservation. A path
// that ends in a slash stands for the directory and all that is below it.
type Skip struct {
	Path   string
	Reason Reason
}

// Link is one symbolic link. Its target is data and was never followed.
type Link struct {
	Path, Target string
}

// File is one file of a mount.
type File struct {
	Path       string
	Executable bool
	Size       int64
	Digest     string // "sha256:<hex>" of the content

	open func() (io.ReadCloser, error)
}

// Open returns the content. The reader fails with ErrChanged, at the latest
// where the content should end, unless size and digest are those of f.
func (f File) Open() (io.ReadCloser, error) {
	if f.open == nil {
		return nil, &Error{Op: "stage", Path: f.Path, Reason: "file does not belong to a plan"}
	}
	r, err := f.open()
	if err != nil {
		return nil, &Error{Op: "stage", Path: f.Path, Reason: "cannot open", Err: err}
	}
	return &checked{r: r, file: f, sum: sha256.New()}, nil
}

// Bytes returns the whole content, checked.
func (f File) Bytes() ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data := make([]byte, f.Size)
	if _, err := io.ReadFull(r, data); err != nil && err != io.EOF {
		return nil, err
	}
	// The end is where the digest is judged.
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, errors.Join(err, &Error{Op: "stage", Path: f.Path, Reason: "not as planned", Err: ErrChanged})
	}
	return data, nil
}

type checked struct {
	r    io.ReadCloser
	file File
	sum  hash.Hash
	n    int64
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.sum.Write(p[:n])
	c.n += int64(n)
	if c.n > c.file.Size || err == io.EOF && (c.n != c.file.Size || digestOf(c.sum) != c.file.Digest) {
		return 0, &Error{Op: "stage", Path: c.file.Path, Reason: "not as planned", Err: ErrChanged}
	}
	if err != nil && err != io.EOF {
		err = &Error{Op: "stage", Path: c.file.Path, Reason: "cannot read", Err: err}
	}
	return n, err
}

func (c *checked) Close() error { return c.r.Close() }

func digestOf(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// Digest returns the form in which contents are named: "sha256:<hex>".
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Plan is what one mount holds.
type Plan struct {
	Files []File // in path order, those of the .git inside included
	// Links are in path order. They are not to be staged, and have a Skip
	// each, unless the options said that the caller stages links.
	Links  []Link
	Skips  []Skip         // in path order; at most 100 for Ignored and for Untracked
	Counts map[Reason]int // every skip, listed or not
	Bytes  int64          // sum of the sizes of Files
	Commit string         // full id, or "" where there is none
	Dirty  bool           // the files differ from Commit, by bytes, mode or presence
	// Summary says in one printable line what is in the mount and what is not.
	Summary string

	linksStaged bool
	leftOut     map[string]Reason // paths, or "directory/", that the source holds and the mount does not
	format      string            // object format for the patch
	exclude     []byte            // ignore rules that are not in the tree
	isGit       bool
	git         *git
	temp        string
	close       []io.Closer
	once        sync.Once
}

// Digest names what is staged, the .git inside not included: the same names, modes
// and bytes give the same "sha256:<hex>", whatever history they are of.
func (p *Plan) Digest() string {
	h := sha256.New()
	line := func(mode, digest, path string) { fmt.Fprintf(h, "%s %s %s\x00", mode, digest, path) }
	for _, f := range p.Files {
		if !inGit(f.Path) {
			line(fileMode(f.Executable), f.Digest, f.Path)
		}
	}
	for _, l := range p.Links {
		if p.linksStaged {
			line(modeLink, Digest([]byte(l.Target)), l.Path)
		}
	}
	return digestOf(h)
}

// Close removes what the plan keeps on disk. Files cannot be opened after it.
func (p *Plan) Close() error {
	var err error
	p.once.Do(func() {
		for _, c := range p.close {
			err = errors.Join(err, c.Close())
		}
		if p.temp != "" {
			err = errors.Join(err, os.RemoveAll(p.temp))
		}
	})
	return err
}

// skip records a path that was left out. The index of left-out paths is
// complete; what is listed is bounded.
func (p *Plan) skip(path string, reason Reason) {
	p.Counts[reason]++
	if (reason != Ignored && reason != Untracked) || p.Counts[reason] <= maxListed {
		p.Skips = append(p.Skips, Skip{path, reason})
	}
	if !reason.Staged() && reason != EmptyDir {
		p.leftOut[path] = reason
	}
}

func (p *Plan) link(l Link) {
	p.Links = append(p.Links, l)
	if !p.linksStaged {
		p.skip(l.Path, Symlink)
	}
}

func (p *Plan) admitCount(op, path string) error {
	if len(p.Files)+len(p.Links) > MaxEntries || len(p.Skips) > MaxEntries {
		return tooMany(op, path)
	}
	return nil
}

func tooMany(op, path string) error {
	return &Error{Op: op, Path: path, Reason: fmt.Sprintf("more than %d entries", MaxEntries), Err: ErrTooMany}
}
