package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// endHolders ends the attendant of an instance whose owner did not: whatever
// process has its log open for writing, but this one and the owner. An owner that
// lives has it open only while it starts the attendant. Who only reads a log, as a
// session's command or an administrator's tail, is no attendant and goes on.
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

// holders kills every process that has path open for writing and names them. A process is
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

// opened reports whether a process, by its directory in /proc, has path open for
// writing. The path has no symbolic link in it: the kernel names files without.
func opened(process, path string) bool {
	fds, err := os.ReadDir(process + "/fd")
	if err != nil {
		return false // it ended
	}
	for _, fd := range fds {
		if to, err := os.Readlink(process + "/fd/" + fd.Name()); err == nil && to == path && writes(process+"/fdinfo/"+fd.Name()) {
			return true
		}
	}
	return false
}

// writes reports whether a descriptor, by its file in fdinfo, is open for writing:
// its flags are octal there. One that was closed meanwhile is not.
func writes(fdinfo string) bool {
	text, err := os.ReadFile(fdinfo)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if octal, found := strings.CutPrefix(line, "flags:"); found {
			flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
			mode := flags & unix.O_ACCMODE
			return err == nil && (mode == unix.O_WRONLY || mode == unix.O_RDWR)
		}
	}
	return false
}

// isOpen reports whether a process but this one has path open for writing.
func isOpen(path string) bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if filepath.Base(dir) != strconv.Itoa(os.Getpid()) && opened(dir, path) {
			return true
		}
	}
	return false
}
