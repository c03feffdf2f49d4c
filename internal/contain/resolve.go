//go:build linux

package contain

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// strict is how every name is resolved: never above the directory it starts
// from, through no link of any kind, into no other mount.
const strict = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// attempts bounds how often a resolution that raced with a rename is repeated.
const attempts = 64

// openat2 opens name strictly beneath dir.
func openat2(dir int, name string, flags uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: strict}
	for range attempts {
		fd, err = unix.Openat2(dir, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, err
}

// resolve opens an admitted path strictly beneath the root. A path of
// MaximumPath bytes is one too long for a single call of the kernel.
func (r *Root) resolve(rel string, flags uint64) (int, error) {
	if len(rel) < unix.PathMax {
		return openat2(r.fd, rel, flags)
	}
	cut := strings.LastIndexByte(rel[:unix.PathMax/2], '/')
	dir, err := openat2(r.fd, rel[:cut], unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return openat2(dir, rel[cut+1:], flags)
}

// errNotRegular is openRegular's answer for a thing that is not a file.
var errNotRegular = errors.New("not a regular file")

// openRegular opens for reading a file whose name was resolved by find with
// O_PATH. Nothing but a regular file is ever opened: opening a device has
// effects (a watchdog starts to count), opening a FIFO blocks or wakes its
// other end. So the inode is held first, looked at, and then that very inode
// is opened, by its descriptor. O_NONBLOCK: a guest may hold a lease on its
// file, and an open that breaks a lease waits 45 seconds for the holder.
func (r *Root) openRegular(held int, findErr error) (fd int, st unix.Stat_t, err error) {
	if findErr != nil {
		return -1, st, findErr
	}
	defer unix.Close(held)
	if err := unix.Fstat(held, &st); err != nil {
		return -1, st, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return -1, st, unix.ELOOP
	default:
		return -1, st, errNotRegular
	}
	for range attempts {
		fd, err = unix.Openat(r.proc, strconv.Itoa(held),
			unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	return fd, st, err
}

// stat looks at one name of an open directory, not following it, and refuses
// what another mount covers.
func (r *Root) stat(dir int, name string, st *unix.Statx_t) error {
	const want = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
	if err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, want, st); err != nil {
		return err
	}
	if st.Mnt_id != r.id {
		return unix.EXDEV
	}
	return nil
}

// failure makes the typed error of a system error.
func failure(op, path string, err error) *Error {
	e := &Error{Op: op, Path: clip(path), Refusal: ErrFailed, Err: err}
	if errors.Is(err, errNotRegular) {
		e.Refusal, e.Expected, e.Err = ErrNotRegular, "a regular file", nil
		return e
	}
	var number unix.Errno
	if !errors.As(err, &number) {
		return e
	}
	switch number {
	case unix.ELOOP, unix.EXDEV:
		e.Refusal = ErrOutsideRoot
	case unix.ENOENT:
		e.Refusal = ErrNotFound
	case unix.ENOTDIR:
		e.Refusal = ErrNotDirectory
	case unix.EISDIR, unix.ENXIO, unix.ENODEV:
		e.Refusal = ErrNotRegular
	case unix.EEXIST:
		e.Refusal = ErrExists
	case unix.ENOTEMPTY:
		e.Refusal = ErrNotEmpty
	case unix.EAGAIN, unix.ESTALE:
		e.Refusal = ErrChanged
	case unix.EBUSY, unix.ETXTBSY:
		e.Refusal = ErrBusy
	case unix.EACCES, unix.EPERM, unix.EROFS:
		e.Refusal = ErrDenied
	case unix.ENOSYS:
		e.Refusal = ErrUnsupported
	case unix.ENAMETOOLONG:
		e.Refusal = ErrInvalidPath
	}
	return e
}
