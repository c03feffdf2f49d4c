//go:build linux

package contain

import (
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// TemporaryPrefix begins the name of a file that WriteFile has not finished. A
// crash may leave one behind.
const TemporaryPrefix = ".checkfu-tmp-"

// parentMode is the mode of directories that are made on the way to a name.
const parentMode = 0o755

// WriteFile makes the file, or replaces it whole, so that no reader sees half
// of it: it writes a new file beside the name and renames it. Missing parents
// are made. Nothing is flushed to the disk (no fsync). The new file is a new
// inode: hard links and open descriptors keep the old one.
//
// perm is the exact mode of the file, permission bits only, whatever the umask.
// Errors: ErrInvalidPath, ErrOutsideRoot (the name or a parent is a symbolic
// link), ErrNotDirectory (a parent), ErrNotRegular (the name is a directory or
// special file), ErrDenied, ErrChanged.
// Source: contract "The operations" (writeFile).
func (r *Root) WriteFile(ctx context.Context, unsafePath string, data []byte, perm fs.FileMode) error {
	return r.write(unsafePath, perm, func(w io.Writer) error {
		for len(data) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := w.Write(data[:min(len(data), chunk)])
			if err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	})
}

// WriteFrom is WriteFile of what content writes: where that fails nothing has changed.
// What is written after content has returned is fs.ErrClosed.
// Blocks: as content does.
// Errors: those of WriteFile; what content returned, as the cause of one.
func (r *Root) WriteFrom(unsafePath string, perm fs.FileMode, content func(io.Writer) error) error {
	return r.write(unsafePath, perm, content)
}

func (r *Root) write(unsafePath string, perm fs.FileMode, content func(io.Writer) error) error {
	const op = "write"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return err
	}
	defer r.leave()
	if err := admitMode(op, rel, perm); err != nil {
		return err
	}
	parent, name := split(rel)
	dir, err := r.makeDirectory(op, parent, parentMode)
	if err != nil {
		return err
	}
	defer unix.Close(dir)

	fd, temporary, err := create(dir, uint32(perm))
	if err != nil {
		return failure(op, rel, err)
	}
	to := &descriptor{fd: fd}
	err = content(to)
	to.close() // its number may be another's soon
	if err == nil {
		err = r.give(fd, uint32(perm))
	}
	// Some filesystems tell of a full disk only at close.
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err == nil {
		err = r.place(dir, temporary, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
		return failure(op, rel, err)
	}
	return nil
}

// create makes a new file of a name that nobody can guess and take first.
func create(dir int, perm uint32) (fd int, name string, err error) {
	for range attempts {
		name = TemporaryPrefix + strconv.FormatUint(rand.Uint64(), 16)
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		if err != unix.EEXIST && err != unix.EINTR {
			return fd, name, err
		}
	}
	return -1, "", err
}

// descriptor is an open file that is written to, until it is closed.
type descriptor struct {
	mu sync.Mutex
	fd int
}

func (d *descriptor) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fd = -1
}

// Write is io.Writer's.
func (d *descriptor) Write(b []byte) (written int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return 0, fs.ErrClosed
	}
	for written < len(b) {
		n, err := unix.Write(d.fd, b[written:])
		if err != nil && err != unix.EINTR {
			return written, err
		}
		written += max(n, 0)
	}
	return written, nil
}

// give sets owner and mode. The owner comes last: from then on a process of that owner
// may open the file.
func (r *Root) give(fd int, perm uint32) error {
	// One look is cheaper than setting what is mostly right already.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&0o7777 != perm {
		if err := unix.Fchmod(fd, perm); err != nil {
			return err
		}
	}
	if r.owner != nil && (st.Uid != r.owner.UID || st.Gid != r.owner.GID) {
		return unix.Fchown(fd, int(r.owner.UID), int(r.owner.GID))
	}
	return nil
}

// place gives the finished file its name. Whatever stands there is looked at
// only to refuse it with the right word: rename itself follows no link and
// replaces no directory, also when the name changes hands in between.
func (r *Root) place(dir int, temporary, name string) error {
	err := unix.Renameat2(dir, temporary, dir, name, unix.RENAME_NOREPLACE)
	if err != unix.EEXIST && err != unix.EINVAL { // EINVAL: a filesystem without that flag
		return err
	}
	var st unix.Statx_t
	switch err := r.stat(dir, name, &st); {
	case err == unix.ENOENT:
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return unix.ELOOP
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errNotRegular
	}
	return unix.Renameat(dir, temporary, dir, name)
}

// Mkdir makes a directory, and its missing parents (mode 0755). One that is
// there already is left as it is. perm is exact, as for WriteFile.
// Errors: ErrInvalidPath, ErrOutsideRoot, ErrNotDirectory, ErrDenied.
func (r *Root) Mkdir(unsafePath string, perm fs.FileMode) error {
	const op = "mkdir"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return err
	}
	defer r.leave()
	if err := admitMode(op, rel, perm); err != nil {
		return err
	}
	fd, err := r.makeDirectory(op, rel, uint32(perm))
	if err != nil {
		return err
	}
	unix.Close(fd)
	return nil
}

// makeDirectory opens (O_PATH) the directory of an admitted path, making what
// is missing one component at a time, each beneath the descriptor of the last.
// perm is the mode of the last one.
func (r *Root) makeDirectory(op, rel string, perm uint32) (int, error) {
	fd, err := r.resolve(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		return fd, nil
	}
	if err != unix.ENOENT {
		return -1, failure(op, rel, err)
	}
	dir, done := r.fd, 0
	for rest, more := rel, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		done += len(name)
		mode := uint32(parentMode)
		if !more {
			mode = perm
		}
		fd, err := r.step(dir, name, mode)
		if dir != r.fd {
			unix.Close(dir)
		}
		if err != nil {
			return -1, failure(op, rel[:done], err)
		}
		dir = fd
		done++
	}
	return dir, nil
}

// step opens one directory of an open directory, or makes it.
func (r *Root) step(dir int, name string, perm uint32) (int, error) {
	fd, err := openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != unix.ENOENT {
		return fd, err
	}
	made := unix.Mkdirat(dir, name, perm)
	if made != nil && made != unix.EEXIST {
		return -1, made
	}
	fd, err = openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil || made != nil {
		return fd, err
	}
	if err := r.settle(fd, perm); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// settle sets mode and owner of a directory just made, held by O_PATH. A
// directory that inherits its group keeps the bit that says so.
func (r *Root) settle(fd int, perm uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&0o777 != perm {
		if err := unix.Fchmodat(r.proc, strconv.Itoa(fd), perm|st.Mode&unix.S_ISGID, 0); err != nil {
			return err
		}
	}
	if r.owner != nil && (st.Uid != r.owner.UID || st.Gid != r.owner.GID) {
		return unix.Fchownat(fd, "", int(r.owner.UID), int(r.owner.GID), unix.AT_EMPTY_PATH)
	}
	return nil
}

// Symlink makes a symbolic link that holds target, which may be anything: this
// package never follows it. Missing parents are made.
// Errors: ErrInvalidPath (also for an empty target, one with NUL, or one above
// 4095 bytes), ErrOutsideRoot, ErrNotDirectory, ErrExists, ErrDenied.
func (r *Root) Symlink(target, unsafePath string) error {
	const op = "symlink"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return err
	}
	defer r.leave()
	if target == "" || len(target) >= unix.PathMax || strings.IndexByte(target, 0) >= 0 {
		return &Error{Op: op, Path: clip(rel), Refusal: ErrInvalidPath, Expected: "a target of 1 to 4095 bytes without NUL", Actual: strconv.Quote(clip(target))}
	}
	parent, name := split(rel)
	dir, err := r.makeDirectory(op, parent, parentMode)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Symlinkat(target, dir, name); err != nil {
		return failure(op, rel, err)
	}
	if r.owner != nil {
		err := unix.Fchownat(dir, name, int(r.owner.UID), int(r.owner.GID), unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return failure(op, rel, err)
		}
	}
	return nil
}

// Remove removes one name: a file, a link (never what it points to), a special
// file or an empty directory.
// Errors: ErrInvalidPath, ErrOutsideRoot, ErrNotFound, ErrNotEmpty, ErrBusy,
// ErrDenied.
func (r *Root) Remove(unsafePath string) error {
	const op = "remove"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return err
	}
	defer r.leave()
	parent, name := split(rel)
	dir, err := r.resolve(parent, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		defer unix.Close(dir)
		if err = unix.Unlinkat(dir, name, 0); err == unix.EISDIR {
			err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	}
	if err != nil {
		return failure(op, rel, err)
	}
	return nil
}

// admitMode refuses set-id and type bits: nothing that the host stages may run
// as someone else.
func admitMode(op, rel string, perm fs.FileMode) error {
	if perm&^fs.ModePerm != 0 {
		return &Error{Op: op, Path: clip(rel), Refusal: ErrDenied, Expected: "permission bits only", Actual: perm.String()}
	}
	return nil
}
