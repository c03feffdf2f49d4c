package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// scratchPrefix is before the process id in the name of a lab's directory.
const scratchPrefix = "checkfu-egress-lab-"

// Scratch makes a directory that Sweep finds if this process is killed.
// Ownership: the caller removes it.
// Errors: *Error.
func Scratch() (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", scratchPrefix, os.Getpid()))
	if err != nil {
		return "", &Error{"make a directory", err}
	}
	return dir, nil
}

// Sweep removes the directories of Scratch whose process is gone, and returns them.
// Everything else of a lab went with its process.
func Sweep() (removed []string) {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	for _, dir := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), scratchPrefix), "-")
		n, err := strconv.Atoi(pid)
		if err != nil || unix.Kill(n, 0) != unix.ESRCH {
			continue // not ours, or alive
		}
		if os.RemoveAll(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed
}

// Inodes identifies the lab's namespaces.
// Errors: *Error.
func (l *Lab) Inodes() ([]uint64, error) {
	var out []uint64
	for _, n := range l.namespaces() {
		inode, err := n.Inode()
		if err != nil {
			return nil, err
		}
		out = append(out, inode)
	}
	return out, nil
}

// Census names what on this host still holds one of these namespaces: threads
// that are in it, descriptors and mounts that keep it. What goes within a moment
// is not named. It needs root.
func Census(inodes []uint64) (found []string) {
	for range lookAgain {
		if found = census(inodes); len(found) == 0 {
			return nil
		}
		time.Sleep(lookPause)
	}
	return found
}

func census(inodes []uint64) []string {
	var found []string
	ours := func(path string) bool {
		link, err := os.Readlink(path)
		if err != nil {
			return false
		}
		text, is := strings.CutPrefix(link, "net:[")
		inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
		return is && err == nil && slices.Contains(inodes, inode)
	}
	for _, pattern := range []string{"/proc/[0-9]*/task/[0-9]*/ns/net", "/proc/[0-9]*/fd/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if ours(path) {
				found = append(found, path)
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		for _, inode := range inodes {
			if strings.Contains(line, fmt.Sprintf(" net:[%d] ", inode)) {
				found = append(found, "mount "+strings.TrimSpace(line))
			}
		}
	}
	return found
}
