package gvisor

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cgroup"
)

// join makes the machine's cgroup with its limits and moves this process into
// it, every thread by itself. cgroup v1 only; on v2 runsc starts its children
// right in the cgroup.
//
// runsc would move the process as a whole, and back again. For each of the two
// the kernel stops every fork and exit on the host until a grace period is
// over: 6 ms on a quiet host. A thread that moves itself holds up nobody.
func join(spec *specs.Spec) error {
	cg, err := cgroup.NewFromPath(spec.Linux.CgroupsPath, false)
	if err != nil {
		return err
	}
	if err := cg.Install(spec.Linux.Resources); err != nil {
		return fmt.Errorf("make the cgroup: %w", err)
	}
	dirs := cgroupDirs(strings.TrimPrefix(spec.Linux.CgroupsPath, "/"))
	if len(dirs) == 0 {
		return fmt.Errorf("the cgroup %s is not there", spec.Linux.CgroupsPath)
	}
	for _, dir := range dirs {
		if err := joinOne(dir); err != nil {
			return fmt.Errorf("join the cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func joinOne(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	self := []byte("0")
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_WRITE, f.Fd(), uintptr(unsafe.Pointer(&self[0])), uintptr(len(self)))
	switch errno {
	case 0:
		return nil
	case unix.ENOTSUP: // a build with cgo, as for the race detector, knows not all its threads
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), self, 0)
	default:
		return errno
	}
}

// sentryArgs adds to a sentry's arguments what runsc says in them of a cgroup
// that it made itself: how many CPUs and how much memory the guest is shown.
// The limits themselves are the cgroup's; it is the one that this process is in.
func sentryArgs(args []string) ([]string, error) {
	if slices.Contains(args, "--cpu-num-from-quota=false") {
		return args, nil // no cgroup was made, see flags
	}
	total := slices.Index(args, "--total-memory") + 1
	if slices.Contains(args, "--cpu-num") || total == 0 || total >= len(args)-1 {
		return args, nil // runsc has said it
	}
	cg, err := cgroup.NewFromPath(".", false)
	if err != nil {
		return nil, err
	}
	cpus, err := cg.NumCPU()
	if err != nil {
		return nil, err
	}
	quota, err := cg.CPUQuota()
	if err != nil {
		return nil, err
	}
	period, err := cg.CPUPeriod()
	if err != nil {
		return nil, err
	}
	limit, err := cg.MemoryLimit()
	if err != nil {
		return nil, err
	}
	told := slices.Clone(args)
	if memory, err := strconv.ParseUint(args[total], 10, 64); err != nil || limit < memory {
		told[total] = strconv.FormatUint(limit, 10)
	}
	more := []string{}
	if quota > 0 && period > 0 {
		// At least two: programs leave locks out where they see one CPU.
		cpus = min(cpus, max(2, int(math.Ceil(float64(quota)/float64(period)))))
		more = append(more, "--cpu-quota", strconv.FormatInt(quota, 10), "--cpu-period", strconv.FormatInt(period, 10))
	}
	more = append(more, "--cpu-num", strconv.Itoa(cpus))
	return slices.Insert(told, len(told)-1, more...), nil // the last one is the id
}
