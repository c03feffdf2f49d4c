package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupDirs returns a cgroup in every hierarchy that has it.
func cgroupDirs(name string) []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		dirs, _ := filepath.Glob(pattern)
		found = append(found, dirs...)
	}
	return found
}

// processes returns the pids that belong to a machine, or with "" to anything
// of this bench: members of its cgroup, and what its command line names.
func (w *world) processes(id string) []int { return w.processesAmong(id, commandLines()) }

// processesAmong is processes for who has the command lines already.
func (w *world) processesAmong(id string, lines map[int][]byte) []int {
	pids := map[int]bool{}
	for _, top := range cgroupDirs(filepath.Join(w.parent, id)) {
		filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Name() == "cgroup.procs" {
				text, _ := os.ReadFile(path)
				for field := range strings.FieldsSeq(string(text)) {
					if pid, err := strconv.Atoi(field); err == nil {
						pids[pid] = true
					}
				}
			}
			return nil
		})
	}
	mark := id
	if id == "" {
		mark = w.dir
	}
	for pid, text := range lines {
		if pid != os.Getpid() && bytes.Contains(text, []byte(mark)) {
			pids[pid] = true
		}
	}
	list := make([]int, 0, len(pids))
	for pid := range pids {
		list = append(list, pid)
	}
	slices.Sort(list)
	return list
}

// commandLines reads how every process of the host was started.
func commandLines() map[int][]byte {
	lines := map[int][]byte{}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if text, err := os.ReadFile(path); err == nil {
			lines[pid] = text
		}
	}
	return lines
}

// mountsBelow returns the mount points in a directory, the last mounted first.
func mountsBelow(dir string) []string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []string
	for l := range strings.Lines(string(text)) {
		if fields := strings.Fields(l); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	slices.Reverse(found)
	return found
}

// removeCgroups removes a cgroup and all below it, in every hierarchy. The
// kernel lets go of a dead process a moment after its end.
func removeCgroups(name string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var errs []error
		for _, top := range cgroupDirs(name) {
			var dirs []string
			filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for i := len(dirs) - 1; i >= 0; i-- {
				if err := unix.Rmdir(dirs[i]); err != nil && !errors.Is(err, unix.ENOENT) {
					errs = append(errs, fmt.Errorf("rmdir %s: %w", dirs[i], err))
				}
			}
		}
		if len(errs) == 0 || time.Now().After(deadline) {
			return errors.Join(errs...)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reapOrphans waits for ended children that nobody here waits for: the drivers
// make this process a subreaper, and so it inherits what raw commands leave.
// Called only while no command of ours is under way.
func reapOrphans() {
	for _, pid := range zombies() {
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

func zombies() (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(strings.Split(stat, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// census names everything of this bench that is still on the host.
func (w *world) census() (left []string) {
	for _, pid := range w.processes("") {
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		left = append(left, fmt.Sprintf("process %d %q", pid, text))
	}
	for _, pid := range zombies() {
		left = append(left, fmt.Sprintf("zombie %d", pid))
	}
	for _, m := range mountsBelow(w.dir) {
		left = append(left, "mount "+m)
	}
	for _, dir := range cgroupDirs(w.parent) {
		left = append(left, "cgroup "+dir)
	}
	if _, err := os.Lstat(w.dir); err == nil {
		left = append(left, "directory "+w.dir)
	}
	// A named network namespace is a mount; one without a name lives only as
	// long as the processes counted above.
	return left
}
