//go:build linux

package contain

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Owner is the host user and group that own what a Root creates.
type Owner struct {
	UID, GID uint32
}

// Options of a Root. The zero value is usable.
type Options struct {
	// Owner is given to every file, directory and link that the Root creates.
	// Nil leaves them to the process that runs.
	Owner *Owner
}

// Root is an open directory beneath which all of its methods stay.
type Root struct {
	owner *Owner

	// A closed number may be another file's the next moment, so Close waits
	// for all running operations.
	open sync.RWMutex
	fd   int    // the directory; -1 when closed
	proc int    // /proc/self/fd, to reopen the very inode that was checked
	id   uint64 // mount id of the directory
}

// Open opens a directory that the provider owns. The directory itself may not
// be a symbolic link; the path to it is the provider's and is trusted.
//
// Errors: ErrUnsupported where the kernel, or a seccomp filter in front of it,
// has no openat2, or where /proc is not there; there is no fallback.
func Open(dir string, options Options) (*Root, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failure("open", dir, err)
	}
	return adopt(fd, dir, options)
}

// Sub opens a directory of the tree as a Root of its own, with the same owner,
// for an operation that is allowed less than the whole. Both are closed by the
// caller, in any order.
// Errors: ErrInvalidPath, ErrOutsideRoot, ErrNotFound, ErrNotDirectory,
// ErrDenied.
func (r *Root) Sub(unsafePath string) (*Root, error) {
	const op = "sub"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	fd, err := r.resolve(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, failure(op, rel, err)
	}
	return adopt(fd, rel, Options{Owner: r.owner})
}

// adopt makes a Root of a descriptor that it owns from here on.
func adopt(fd int, name string, options Options) (*Root, error) {
	r := &Root{fd: fd, proc: -1}
	if options.Owner != nil {
		owner := *options.Owner
		r.owner = &owner
	}
	if err := r.probe(); err != nil {
		_ = r.Close()
		e := failure("open", name, err)
		switch err {
		case unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.E2BIG, unix.ENOENT:
			// No such call, a filter in front of it, flags it does not know, no /proc.
			e.Refusal, e.Expected = ErrUnsupported, "openat2 with all resolve flags, /proc and statx mount ids"
		}
		return nil, e
	}
	return r, nil
}

// probe asks the kernel for exactly what every operation will ask of it.
func (r *Root) probe() error {
	probe, err := openat2(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	unix.Close(probe)
	if r.proc, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(r.proc, &fs); err != nil {
		return err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return unix.ENOSYS
	}
	var st unix.Statx_t
	if err := unix.Statx(r.fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return unix.ENOSYS
	}
	r.id = st.Mnt_id
	return nil
}

// Close releases the descriptors once no operation runs any more. It may be
// called again. Operations that come later answer ErrClosed.
func (r *Root) Close() error {
	r.open.Lock()
	defer r.open.Unlock()
	if r.fd < 0 {
		return nil
	}
	unix.Close(r.fd)
	if r.proc >= 0 {
		unix.Close(r.proc)
	}
	r.fd, r.proc = -1, -1
	return nil
}

// enter admits the path and holds the descriptors open until leave.
func (r *Root) enter(op, unsafePath string) (rel string, err error) {
	rel, err = Rel(unsafePath)
	if err != nil {
		err.(*Error).Op = op
		return "", err
	}
	return rel, r.hold(op, rel)
}

// enterTree is enter for operations that also take "." for the root itself.
func (r *Root) enterTree(op, unsafePath string) (string, error) {
	if unsafePath == "." {
		return ".", r.hold(op, ".")
	}
	return r.enter(op, unsafePath)
}

func (r *Root) hold(op, rel string) error {
	r.open.RLock()
	if r.fd < 0 {
		r.open.RUnlock()
		return &Error{Op: op, Path: rel, Refusal: ErrClosed}
	}
	return nil
}

func (r *Root) leave() { r.open.RUnlock() }
