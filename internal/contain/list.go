//go:build linux

package contain

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Type is what kind of thing a name is, one of a closed set.
type Type string

// The types of an Entry.
const (
	Regular   Type = "regular"
	Symlink   Type = "symlink"
	Device    Type = "device" // block or character
	Socket    Type = "socket"
	FIFO      Type = "fifo"
	Directory Type = "directory" // only an empty one, and only if asked for
	Other     Type = "other"
)

// Entry is one leaf of a tree.
type Entry struct {
	Path   string // from the root of the Root, raw bytes
	Type   Type
	Size   int64  // bytes of a regular file, else 0
	Mode   uint32 // permission, set-id and sticky bits: at most 07777
	Digest string // "sha256:" and 64 hex digits, for a regular file if asked for
	Target string // what a symbolic link holds, raw bytes
}

// ListOptions bound and shape a List.
type ListOptions struct {
	// MaximumEntries is the most entries of the answer. 0 admits an empty tree.
	MaximumEntries int
	// MaximumDirectories is the most directories that are walked, below the
	// one asked for; 0 is 100,000, or MaximumEntries if that is more.
	MaximumDirectories int
	// Digests asks for the SHA-256 of every regular file.
	Digests bool
	// MaximumBytes is the most bytes that Digests reads, in all; 0 is no
	// bound. A sparse file of a guest costs nothing and may be exabytes long.
	MaximumBytes int64
	// EmptyDirectories asks for these as entries too.
	EmptyDirectories bool
	// Workers is how many files are read at once; 0 is 2.
	Workers int
}

// List names every leaf beneath a directory ("." is the root), sorted by the
// bytes of its path. Nothing is left out: a tree that cannot be told whole is
// an error.
//
// The names are those of one moment: every directory is looked at once more
// when all have been read, and none had changed, so nothing can hide by moving
// while the walk passes. Each file's size, mode and digest are of one moment
// of that file's own. Linux before 6.13 stamps changes by the clock tick, and
// there two changes within one tick (4 ms) look like one; stores through a
// shared mapping are stamped late on any version. So pause the writers where
// the listing is evidence.
//
// Bounds: ListOptions; paths of MaximumPath bytes.
// Errors: ErrChanged when the tree kept changing (the walk is repeated once),
// ErrTooMany, ErrTooLarge, ErrDenied (a directory or file that this process
// cannot read), ErrInvalidPath (a path grew too long), ErrOutsideRoot (a link
// in the path, a mount in the tree), ErrNotFound, ErrNotDirectory.
// Source: contract "The operations" (listDir, listProjectDir).
func (r *Root) List(ctx context.Context, unsafePath string, options ListOptions) ([]Entry, error) {
	const op = "list"
	rel, err := r.enterTree(op, unsafePath)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	// Asked first, so that a name that was never there is not one that changed.
	fd, err := r.resolve(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, failure(op, rel, err)
	}
	unix.Close(fd)
	if options.MaximumDirectories <= 0 {
		options.MaximumDirectories = max(options.MaximumEntries, 100_000)
	}
	if options.Workers <= 0 {
		options.Workers = 2
	}

	entries, err := r.walk(ctx, rel, options)
	if errors.Is(err, ErrChanged) {
		entries, err = r.walk(ctx, rel, options)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return entries, nil
}
