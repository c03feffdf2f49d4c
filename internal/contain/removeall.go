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
	m := remover{root: r, ctx: ctx, top: -1, outside: -1}
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
		m.outside = dir
		return m.remove(dir, dirent{name: []byte(name)}, rel, 0)
	case unix.ENOENT, unix.ENOTDIR:
		return nil
	default:
		return failure(op, rel, err)
	}
}

// remover is one RemoveAll.
type remover struct {
	root    *Root
	ctx     context.Context
	outside int // the parent of the tree, which is not to be changed itself, or -1
	top     int // the directory that deep ones are moved to, or -1
	moved   int
	buffers [][]byte // one a level
}

// buffer returns the level's own: a directory is emptied while it is read, so
// that a guest cannot fill the memory with names.
func (m *remover) buffer(level int) []byte {
	for len(m.buffers) <= level {
		m.buffers = append(m.buffers, make([]byte, 16<<10))
	}
	return m.buffers[level]
}

func (m *remover) failure(path string, err error) error {
	e := failure("remove all", path, err)
	if err == unix.EXDEV { // of all that is resolved here only a mount answers so
		e.Refusal, e.Actual = ErrBusy, "a mount point"
	}
	return e
}

// remove removes one name of an open directory. A guest may turn it from a
// directory into a link and back meanwhile: then it is looked at afresh.
func (m *remover) remove(dir int, entry dirent, path string, level int) error {
	name, directory := string(entry.name), entry.kind == unix.DT_DIR
	var err error
	for try := range 16 * passes {
		if directory {
			err = m.removeDirectory(dir, name, path, level)
		} else {
			err = m.insist(dir, name, func() error { return unix.Unlinkat(dir, name, 0) })
		}
		switch err {
		case unix.EISDIR:
			directory = true
		case unix.ENOTDIR, unix.ELOOP:
			directory = false
		default:
			return m.done(path, err)
		}
		// Each of these calls takes the lock of the directory in turn with the
		// guest's. In step with it, what we ask for is always what was there last.
		if try > 0 {
			directory = rand.N(2) == 0
		}
	}
	return m.failure(path, unix.EAGAIN)
}

// removeDirectory removes a directory and all beneath it.
func (m *remover) removeDirectory(dir int, name, path string, level int) error {
	if level >= levels {
		return m.insist(dir, name, func() error { return m.lift(dir, name) })
	}
	fd, err := m.openDirectory(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if level == 0 {
		m.top = fd
	}
	for pass := 0; pass <= passes+m.moved; pass++ {
		if err := m.drain(fd, path, level); err != nil {
			return err
		}
		err := m.insist(dir, name, func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
		if err != unix.ENOTEMPTY {
			return err
		}
	}
	return unix.EAGAIN
}

// done makes the error of one name, once.
func (m *remover) done(path string, err error) error {
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
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
		err := eachDirent(fd, m.buffer(level), func(dirent) error { return errSome })
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
	err := eachDirent(fd, m.buffer(level), func(entry dirent) error {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		if err := m.remove(fd, entry, join(path, string(entry.name)), level+1); err != nil && first == nil {
			first = err
		}
		return nil
	})
	if first == nil && err != nil {
		first = m.done(path, err)
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

// permit lets the owner into an open directory, and into the one of that name
// in it: without the first nothing in it can be named, without the second it
// cannot be read or moved. The mode is set on the descriptor that was
// resolved: chmod by name would follow a link put there meanwhile.
func (m *remover) permit(dir int, name string) {
	if dir != m.outside {
		_ = unix.Fchmod(dir, 0o700)
	}
	held, err := openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	_ = unix.Fchmodat(m.root.proc, strconv.Itoa(held), 0o700, 0)
	unix.Close(held)
}

// insist does something to a name, and where that is denied, takes away what
// may deny it and does it again: the mode of the directory and of the thing
// (moving a directory writes to it), or the immutable and append-only flags of
// both.
func (m *remover) insist(dir int, name string, do func() error) error {
	err := do()
	switch err {
	case unix.EACCES:
		m.permit(dir, name)
	case unix.EPERM:
		if dir != m.outside {
			thaw(dir)
		}
		fd, err := m.openDirectory(dir, name)
		if err != nil {
			fd, _, err = m.root.openRegular(openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW))
		}
		if err == nil {
			thaw(fd)
			unix.Close(fd)
		}
	default:
		return err
	}
	return do()
}

// thaw clears the flags that keep an inode from being removed. The ioctl is
// asked only of directories and regular files: that of a device is its
// driver's.
func thaw(fd int) {
	// FS_IMMUTABLE_FL and FS_APPEND_FL have the bits of these two.
	const frozen = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&frozen != 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags&^frozen))
	}
}
