package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// endHolders ends the attendant of an instance whose owner did not: whatever
// process has its log open, but this one and the owner. An owner that lives has it
// open only while it starts the attendant.
func endHolders(ctx context.Context, log string, owner int) error {
	if _, err := os.Lstat(log); err != nil {
		return ignoreMissing(err)
	}
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		left, err := holders(log, owner)
		if err != nil || len(left) == 0 {
			tick.Stop()
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("who writes %s, %v, does not end: %w", log, left, ctx.Err())
		}
	}
}

// holders kills every process that has path open and names them. A process is
// held before it is looked at, so that its number cannot become another's.
func holders(path string, owner int) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || pid == owner {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it ended
		}
		if opened(dir, path) {
			found = append(found, pid)
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return found, os.NewSyscallError("pidfd_send_signal", err)
		}
	}
	return found, nil
}

// opened reports whether a process, by its directory in /proc, has path open.
func opened(process, path string) bool {
	fds, err := os.ReadDir(process + "/fd")
	if err != nil {
		return false // it ended
	}
	for _, fd := range fds {
		if to, err := os.Readlink(process + "/fd/" + fd.Name()); err == nil && to == path {
			return true
		}
	}
	return false
}

// isOpen reports whether a process but this one has path open.
func isOpen(path string) bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if filepath.Base(dir) != strconv.Itoa(os.Getpid()) && opened(dir, path) {
			return true
		}
	}
	return false
}
