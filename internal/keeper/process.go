package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// startTime is when a process began, in clock ticks since boot: with its id it
// names one process, while an id alone names one after the other.
func startTime(pid int64) (int64, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The name in the second field may hold anything, so from its end on.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const at = 22 - 3 // starttime is the 22nd field, the first here is the third
	if len(fields) <= at {
		return 0, fmt.Errorf("%s: not in the form of proc(5)", path)
	}
	return strconv.ParseInt(string(fields[at]), 10, 64)
}

// signal sends to the keeper of a record, and to no other process that has its
// id by now.
// Errors: os.ErrProcessDone where it is gone.
func (r Record) signal(signals ...unix.Signal) error {
	fd, err := unix.PidfdOpen(int(r.PID), 0)
	if err != nil {
		return gone(err)
	}
	defer unix.Close(fd)
	// Looked at after the descriptor was had: from then on it is the same.
	began, err := startTime(r.PID)
	if err != nil || began != r.StartTime {
		return os.ErrProcessDone
	}
	for _, s := range signals {
		if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil {
			return gone(err)
		}
	}
	return nil
}

func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// closeInherited closes what came with this process and is not its own: all that
// this program opens itself is closed at the next exec, so what is open without
// that mark came over the last one. Descriptors 0 to 2, and keep, stay.
func closeInherited(keep int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || fd == keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
