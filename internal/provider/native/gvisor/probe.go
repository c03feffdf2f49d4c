package gvisor

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

// Probe says what this host lacks, without starting anything.
func (d *Driver) Probe(context.Context) []machine.Lack {
	var lacks []machine.Lack
	lack := func(axis, what, remedy string) {
		lacks = append(lacks, machine.Lack{Axis: axis, What: what, Remedy: remedy})
	}
	if d.rootless {
		lacks = append(lacks, outside()...)
	} else if os.Geteuid() != 0 || userns.Inside() {
		lack("", "it is not run as root", "run it as root, or name the provider native:rootless; either way sandboxes run as ids of their own")
	}
	if needsLoader() {
		lack("", "this program is linked dynamically, and a sandbox's processes find no loader where they start again", "build it with CGO_ENABLED=0")
	}
	if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
		lack("sandbox_isolation", "the kernel does not allow user namespaces", "set the sysctl user.max_user_namespaces above 0")
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
		if _, err := os.Lstat(filepath.Join("/proc/self/ns", ns)); err != nil {
			lack("sandbox_isolation", "the kernel has no "+ns+" namespaces", "use a kernel that has them")
		}
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		lack("sandbox_isolation", "the kernel has no seccomp filters", "use a kernel built with CONFIG_SECCOMP_FILTER")
	}
	for _, controller := range []string{"memory", "cpu", "pids"} {
		if !d.rootless && !hasController(controller) {
			lack("resource_limits", "the cgroup controller "+controller+" is not there",
				"mount it at /sys/fs/cgroup/"+controller+", or enable it in the root's cgroup.subtree_control on cgroup v2")
		}
	}
	if text, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(text), "\toverlay\n") {
		lack("root_read_only", "the kernel has no overlay file system", "load the module overlay")
	}
	return lacks
}

// needsLoader reports whether the kernel starts this program through a loader
// of the host's. The sentry and the gofer start it again from inside an empty
// root, where the answer is that the file does not exist.
func needsLoader() bool {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func hasController(name string) bool {
	if !unified() {
		_, err := os.Stat(filepath.Join(cgroupRoot, name, "cgroup.procs"))
		return err == nil
	}
	text, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return false
	}
	for f := range strings.FieldsSeq(string(text)) {
		if f == name {
			return true
		}
	}
	return false
}
