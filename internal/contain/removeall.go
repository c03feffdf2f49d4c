//go:build linux

package contain

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// levels is how deep RemoveAll goes by holding one descriptor a level. A
	// guest can nest directories without end, so what lies deeper is moved up
	// to the top of the tree that is being removed, and removed from there.
	levels = 64
	// passes is how often a directory that someone keeps filling is emptied.
	passes = 64
)

// RemoveAll removes a name and all beneath it, whatever the modes, names,
// depth and (as root) immutable flags; "." empties the root and leaves it.
// Nothing there is success. Links are removed, never followed, and it stays
// on the root's mount. What can be removed is removed, also after an error;
// the first error is returned.
//
// After a crash the tree may hold deep directories under names of the form
// TemporaryPrefix*, at its top; calling again removes them.
// Errors: ErrInvalidPath, ErrOutsideRoot (a link in the path), ErrBusy (a
// mount in the tree, named), ErrChanged (someone keeps adding), ErrDenied.
func (r *Root) RemoveAll(ctx context.Context, unsafePath string) error {
	const op = "remove all"
	rel, err := r.enterTree(op, unsafePath)
	if err != nil {
		return err
	}
	defer r.leave()
	m := remover{root: r, ctx: ctx, top: -1, buffer: make([]byte, 32<<10)}
	if rel == "." {
		fd, err := openat2(r.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return failure(op, rel, err)
		}
		defer unix.Close(fd)
		m.top = fd
		return m.empty(fd, ".", 0)
	}
	parent, name := split(rel)
	dir, err := r.resolve(parent, unix.O_RDONLY|unix.O_DIRECTORY)
	switch err {
	case nil:
		defer unix.Close(dir)
		return m.remove(dir, dirent{name: []byte(name)}, rel, 0)
	case unix.ENOENT, unix.ENOTDIR:
		return nil
	default:
		return failure(op, rel, err)
	}
}

// remover is one RemoveAll.
type remover struct {
	root   *Root
	ctx    context.Context
	top    int // the directory that deep ones are moved to, or -1
	moved  int
	buffer []byte
}

func (m *remover) failure(path string, err error) error {
	e := failure("remove all", path, err)
	if err == unix.EXDEV { // of all that is resolved here only a mount answers so
		e.Refusal, e.Actual = ErrBusy, "a mount point"
	}
	return e
}

// remove removes one name of an open directory.
func (m *remover) remove(dir int, entry dirent, path string, level int) error {
	name := string(entry.name)
	if entry.kind != unix.DT_DIR {
		err := m.insist(dir, name, func() error { return unix.Unlinkat(dir, name, 0) })
		if err != unix.EISDIR {
			return m.done(path, err)
		}
	}
	if level >= levels {
		return m.done(path, m.insist(dir, name, func() error { return m.lift(dir, name) }))
	}
	fd, err := m.openDirectory(dir, name)
	if err == unix.ENOTDIR || err == unix.ELOOP { // it was replaced by a file or link
		return m.done(path, unix.Unlinkat(dir, name, 0))
	}
	if err != nil {
		return m.done(path, err)
	}
	defer unix.Close(fd)
	if level == 0 && m.top < 0 {
		m.top = fd
	}
	for pass := 0; ; pass++ {
		if err := m.drain(fd, path, level); err != nil {
			return err
		}
		err := m.insist(dir, name, func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
		if err != unix.ENOTEMPTY {
			return m.done(path, err)
		}
		if pass > passes+m.moved {
			return m.failure(path, unix.EAGAIN)
		}
	}
}

func (m *remover) done(path string, err error) error {
	if err == nil || err == unix.ENOENT {
		return nil
	}
	return m.failure(path, err)
}

// empty drains a directory that itself stays.
func (m *remover) empty(fd int, path string, level int) error {
	for pass := 0; ; pass++ {
		if err := m.drain(fd, path, level); err != nil {
			return err
		}
		errSome := errors.New("not empty")
		err := eachDirent(fd, m.buffer, func(dirent) error { return errSome })
		if err != errSome {
			return m.done(path, err)
		}
		if pass > passes+m.moved {
			return m.failure(path, unix.EAGAIN)
		}
	}
}

// drain goes once through a directory and removes what it finds. It returns
// the first error but tries all.
func (m *remover) drain(fd int, path string, level int) (first error) {
	// Deeper levels use the buffer too, so the names are copied out of it.
	var names []byte
	var entries []dirent
	err := eachDirent(fd, m.buffer, func(d dirent) error {
		names = append(names, d.name...)
		entries = append(entries, dirent{name: names[len(names)-len(d.name):], kind: d.kind})
		return m.ctx.Err()
	})
	if err != nil {
		return m.failure(path, err)
	}
	for _, entry := range entries {
		if err := m.ctx.Err(); err != nil {
			return m.failure(path, err)
		}
		if err := m.remove(fd, entry, join(path, string(entry.name)), level+1); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// lift moves a directory that lies too deep to the top.
func (m *remover) lift(dir int, name string) error {
	for range attempts {
		up := TemporaryPrefix + strconv.FormatUint(rand.Uint64(), 16)
		err := unix.Renameat2(dir, name, m.top, up, unix.RENAME_NOREPLACE)
		if err == nil {
			m.moved++
		}
		if err != unix.EEXIST {
			return err
		}
	}
	return unix.EAGAIN
}

// openDirectory opens a directory for reading, also one whose mode forbids it.
func (m *remover) openDirectory(dir int, name string) (int, error) {
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES {
		m.permit(dir, name)
		fd, err = openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return fd, err
}

// permit lets the owner into a directory. The mode is set on the descriptor
// that was resolved: chmod by name would follow a link put there meanwhile.
func (m *remover) permit(dir int, name string) {
	held, err := openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	_ = unix.Fchmodat(m.root.proc, strconv.Itoa(held), 0o700, 0)
	unix.Close(held)
}

// insist does something to a name, and where that is denied, takes away what
// may deny it and does it again: the mode of the directory and of the thing
// (moving a directory writes to it), and the immutable and append-only flags
// of both.
func (m *remover) insist(dir int, name string, do func() error) error {
	err := do()
	if err != unix.EACCES && err != unix.EPERM {
		return err
	}
	if m.top >= 0 { // else dir is the parent of the tree, which is not ours to change
		_ = unix.Fchmod(dir, 0o700)
		thaw(dir)
	}
	m.permit(dir, name)
	if fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
		thaw(fd)
		_ = unix.Fchmod(fd, 0o700)
		unix.Close(fd)
	} else if fd, _, err := m.root.openRegular(openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW)); err == nil {
		thaw(fd)
		unix.Close(fd)
	}
	return do()
}

// thaw clears the flags that keep an inode from being removed. The ioctl is
// asked only of directories and regular files: that of a device is its
// driver's.
func thaw(fd int) {
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	const frozen = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND // the same bits as FS_IMMUTABLE_FL and FS_APPEND_FL
	if err == nil && flags&frozen != 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^frozen)
	}
}
