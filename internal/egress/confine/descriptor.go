package confine

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// descriptors closes what was inherited and not named. Whatever this program
// opens itself, the runtime's poller among it, is marked to be closed at an exec;
// so what lacks the mark came over the last one.
func descriptors(n Needs) error {
	for _, fd := range n.Descriptors {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return &Error{"descriptors", "descriptor " + strconv.Itoa(fd) + " open", err.Error()}
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return &Error{"descriptors", "a list of what is open", err.Error()}
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(n.Descriptors, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // it is gone from the table even where this fails
		}
	}
	return nil
}
