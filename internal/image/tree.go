package image

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links one path may lead through, as in Linux.
const maxLinks = 40

// tree is a directory that layers are unpacked into, one after the other.
//
// Every step is a system call on the descriptor of a directory and one name in
// it, and no step follows a link: where an entry's path leads through a
// symbolic link, walk reads the link and goes on from the tree's own root, as
// a process would whose root that is. So no path, however it was made up and
// whatever earlier entries left there, ends outside.
//
// A tree belongs to one goroutine, and nobody else may change the directory.
type tree struct {
	root int
	base uint32
	left int64 // entries that may still be made

	// made are the places that the current layer filled: whiteouts hide what
	// lower layers left, never what their own layer brings.
	made map[place]bool
	// hidden are whiteouts that are done; a layer of a million repeats of one
	// must not walk a million times.
	hidden map[place]bool

	lastPath string // the path that last was found for
	last     *dir
}

// place is one name in one directory. Paths would not do: links give one place
// many paths. The inode number of a removed directory can come back, but only
// for one that this layer makes, and then all below it is this layer's.
type place struct {
	dir  uint64
	name string
}

// dir is an open directory of the tree.
type dir struct {
	fd    int
	inode uint64
	own   bool // fd is ours to close
}

func (d *dir) close() {
	if d != nil && d.own {
		unix.Close(d.fd)
	}
}

func newTree(root int, base uint32, entries int64) *tree {
	return &tree{root: root, base: base, left: entries, made: map[place]bool{}, hidden: map[place]bool{}}
}

// nextLayer forgets what the layer before it made.
func (t *tree) nextLayer() {
	clear(t.made)
	clear(t.hidden)
	t.forget()
}

// forget drops the remembered directory. It must be called whenever something
// is removed, for then the path may lead elsewhere.
func (t *tree) forget() {
	t.last.close()
	t.last, t.lastPath = nil, ""
}

// distrust makes the next walk find its directory anew, and leaves the one
// found last open for who is still using it.
func (t *tree) distrust() { t.lastPath = "\x00" } // no path holds a NUL

func (t *tree) count() error {
	if t.left--; t.left < 0 {
		return &Error{Kind: ErrTooLarge, Reason: "too many entries"}
	}
	return nil
}

// errAbsent says that a directory is not there and was not to be made.
var errAbsent = errors.New("no such directory")

// walk opens the directory that parts name, links followed inside the tree.
// The result is remembered, and is closed by the tree.
func (t *tree) walk(parts []string, create bool) (*dir, error) {
	path := strings.Join(parts, "/")
	if t.last != nil && t.lastPath == path {
		return t.last, nil
	}
	d, err := t.find(parts, create)
	if err != nil {
		return nil, err
	}
	t.forget()
	t.last, t.lastPath = d, path
	return d, nil
}

// find is walk without memory.
func (t *tree) find(parts []string, create bool) (_ *dir, err error) {
	// above holds the directories from the root to where we are, so ".." needs
	// no trust in what the name ".." is in a directory, and len(above) is the
	// true depth.
	above := []int{t.root}
	pop := func() {
		unix.Close(above[len(above)-1])
		above = above[:len(above)-1]
	}
	defer func() {
		for len(above) > 1 {
			pop()
		}
	}()
	links := 0
	for len(parts) > 0 {
		name, here := parts[0], above[len(above)-1]
		parts = parts[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(above) > 1 {
				pop()
			}
			continue
		}
		if len(above) > MaxDepth {
			return nil, &Error{Kind: ErrTooLarge, Reason: "too deep", Expected: fmt.Sprint("at most ", MaxDepth, " directories")}
		}
		fd, err := t.enter(here, name)
		switch {
		case err == nil:
			above = append(above, fd)
		case errors.Is(err, unix.ENOENT) && create:
			fd, err := t.imply(here, name)
			if err != nil {
				return nil, err
			}
			above = append(above, fd)
		case errors.Is(err, unix.ENOENT):
			return nil, errAbsent
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			target, err := readlink(here, name)
			if errors.Is(err, unix.EINVAL) {
				if !create {
					return nil, errAbsent
				}
				return nil, hostile("", "a parent is not a directory: "+name, nil)
			}
			if err != nil {
				return nil, err
			}
			if links++; links > maxLinks {
				return nil, hostile("", "too many symbolic links", nil)
			}
			if strings.HasPrefix(target, "/") {
				for len(above) > 1 {
					pop()
				}
			}
			parts = append(strings.Split(target, "/"), parts...)
		default:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
	d := &dir{fd: above[len(above)-1], own: len(above) > 1}
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return nil, err
	}
	d.inode = st.Ino
	if d.own {
		above = above[:len(above)-1] // it stays open
	}
	return d, nil
}

// enter opens one directory by name and does not follow a link.
func (t *tree) enter(at int, name string) (int, error) {
	return ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// imply makes a directory that an entry's path needs and no entry described.
func (t *tree) imply(at int, name string) (int, error) {
	if err := t.count(); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(at, name, 0o755); err != nil {
		return -1, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	t.made[place{st.Ino, name}] = true
	meta := attributes{mode: 0o755}
	if err := t.describe(at, name, unix.S_IFDIR, meta); err != nil {
		return -1, err
	}
	return t.enter(at, name)
}

// attributes are what an entry says of itself beside its content.
type attributes struct {
	uid, gid int
	mode     uint32 // permission bits with setuid, setgid and sticky
	modified time.Time
}

// describe gives attributes to what was just made. Owner first: changing it
// clears the setuid bits. A new name cannot have become a link since, for
// nobody else writes here; fchmodat without flags would follow one, so links,
// which have no mode, are left out.
func (t *tree) describe(at int, name string, kind uint32, a attributes) error {
	if err := unix.Fchownat(at, name, int(t.base)+a.uid, int(t.base)+a.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	if kind != unix.S_IFLNK {
		if err := unix.Fchmodat(at, name, a.mode&0o7777, 0); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	if a.modified.IsZero() {
		return nil
	}
	// Times far outside of what any file system holds are the kernel's to cut.
	s := unix.Timespec{Sec: a.modified.Unix(), Nsec: int64(a.modified.Nanosecond())}
	if err := unix.UtimesNanoAt(at, name, []unix.Timespec{s, s}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimes", Path: name, Err: err}
	}
	return nil
}

// kindOf is the type of what lies at name (unix.S_IF…), 0 if nothing does.
func kindOf(at int, name string) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return st.Mode & unix.S_IFMT, nil
}

func readlink(at int, name string) (string, error) {
	buf := make([]byte, MaxPathBytes+2)
	n, err := unix.Readlinkat(at, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
