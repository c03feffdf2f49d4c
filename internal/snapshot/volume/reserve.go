package volume

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Reserve takes from the filesystem of f the space for the first so many bytes, so
// that a full disk is an error now and no lost write later. They stay holes to
// whoever reads or copies them.
//
// In memory (tmpfs), where all that is reserved would be taken from everybody, and
// where the filesystem cannot reserve, Reserve is Room.
// Errors: unix.ENOSPC; host errors.
func Reserve(f *os.File, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return Room(f, bytes)
	}
	for {
		switch err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, bytes); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return Room(f, bytes)
		default:
			return os.NewSyscallError(fmt.Sprintf("fallocate %d bytes", bytes), err)
		}
	}
}

// Room refuses what the filesystem of f has no space for at this moment. It keeps
// nothing: of a file that shares its blocks with another nothing can be reserved.
// Errors: unix.ENOSPC; host errors.
func Room(f *os.File, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if st.Blocks == 0 { // a tmpfs without a bound
		return nil
	}
	if have := st.Bavail * uint64(st.Frsize); have < uint64(bytes) {
		return fmt.Errorf("%w: %d bytes wanted, %d free", unix.ENOSPC, bytes, have)
	}
	return nil
}
