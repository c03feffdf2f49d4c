package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// unified reports whether the host has cgroup v2 only.
func unified() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupRoot, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// hierarchies are the directories under which a cgroup of one name can lie:
// one on v2, one for every controller on v1. Links to another are left out.
func hierarchies() []string {
	if unified() {
		return []string{cgroupRoot}
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(cgroupRoot, e.Name()))
		}
	}
	return dirs
}

// cgroupDirs are the directories of the cgroup called name that exist.
func cgroupDirs(name string) []string {
	var dirs []string
	for _, h := range hierarchies() {
		dir := filepath.Join(h, name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// cgroupPids are the processes in the cgroup called name and all below it.
func cgroupPids(name string) (map[int]bool, error) {
	pids := map[int]bool{}
	for _, dir := range cgroupDirs(name) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return ignoreAbsent(err)
			}
			text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err != nil {
				if errors.Is(err, unix.ENODEV) {
					return nil
				}
				return ignoreAbsent(err)
			}
			for f := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					pids[pid] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return pids, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// removeCgroup removes the cgroup called name everywhere, deepest first. A
// cgroup stays busy for a moment after its last process ended, and the kernel
// gives no event for that on v1, so removal is tried again until ctx is done.
func removeCgroup(ctx context.Context, name string) error {
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		var left error
		for _, dir := range cgroupDirs(name) {
			var tree []string
			err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					tree = append(tree, path)
				}
				return ignoreAbsent(err)
			})
			if err != nil {
				return err
			}
			for i := len(tree) - 1; i >= 0; i-- {
				if err := unix.Rmdir(tree[i]); err != nil && !errors.Is(err, unix.ENOENT) {
					left = &os.PathError{Op: "rmdir", Path: tree[i], Err: err}
				}
			}
		}
		if left == nil {
			return nil
		}
		if !errors.Is(left, unix.EBUSY) {
			return left
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(left, context.Cause(ctx))
		}
	}
}

// cgroupFile names a limit or counter by its v1 controller and file and by its
// v2 file.
type cgroupFile struct{ controller, v1, v2 string }

var (
	memoryMax = cgroupFile{"memory", "memory.limit_in_bytes", "memory.max"}
	pidsMax   = cgroupFile{"pids", "pids.max", "pids.max"}
	memoryOOM = cgroupFile{"memory", "memory.oom_control", "memory.events"}
)

func (f cgroupFile) read(name string) (string, error) {
	path := filepath.Join(cgroupRoot, f.controller, name, f.v1)
	if unified() {
		path = filepath.Join(cgroupRoot, name, f.v2)
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// number is the limit that f holds, 0 for none ("max", or v1's huge default).
func (f cgroupFile) number(name string) (int64, error) {
	text, err := f.read(name)
	if err != nil || text == "max" {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %s: %w", name, f.v2, err)
	}
	if n >= 1<<62 {
		return 0, nil
	}
	return n, nil
}

// oomKilled reports whether the kernel killed a process of the cgroup at its
// memory limit.
func oomKilled(name string) bool {
	text, err := memoryOOM.read(name)
	if err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return count != "0"
		}
	}
	return false
}

// cpuMillis is the cgroup's CPU quota in thousandths of a core, 0 for none.
func cpuMillis(name string) (int64, error) {
	var quota, period string
	if unified() {
		text, err := cgroupFile{v2: "cpu.max"}.read(name)
		if err != nil {
			return 0, err
		}
		quota, period, _ = strings.Cut(text, " ")
	} else {
		var err error
		if quota, err = (cgroupFile{controller: "cpu", v1: "cpu.cfs_quota_us"}).read(name); err != nil {
			return 0, err
		}
		if period, err = (cgroupFile{controller: "cpu", v1: "cpu.cfs_period_us"}).read(name); err != nil {
			return 0, err
		}
	}
	if quota == "max" || quota == "-1" {
		return 0, nil
	}
	q, err := strconv.ParseInt(quota, 10, 64)
	if err != nil {
		return 0, err
	}
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p <= 0 {
		return 0, fmt.Errorf("cgroup %s: cpu period %q", name, period)
	}
	return q * 1000 / p, nil
}
