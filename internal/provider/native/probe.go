package native

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
)

// probeHost says what this package itself needs and the host lacks. dir is the
// provider's directory; rootless is whether its driver is the ordinary user's.
func probeHost(dir string, rootless bool) []machine.Lack {
	var lacks []machine.Lack
	lack := func(axis, what, remedy string) {
		lacks = append(lacks, machine.Lack{Axis: axis, What: what, Remedy: remedy})
	}
	switch {
	case rootless && !userns.Inside():
		return nil // the driver says it, and nothing else can be seen from here
	case !rootless && (os.Geteuid() != 0 || userns.Inside()):
		lack("", "not running as root", "run it with sudo, or name the provider native:rootless, whose resource limits are not enforced")
	}
	if blocked := blockedAbove(dir); blocked != "" {
		lack("", "a machine's runtime, host user "+strconv.Itoa(IDBase)+", cannot pass through "+blocked,
			"choose a state directory elsewhere, or chmod o+x "+blocked)
	}
	known, _ := os.ReadFile("/proc/filesystems")
	names := strings.Fields(string(known))
	if !slices.Contains(names, "overlay") {
		lack("root_read_only", "the kernel has no overlay filesystem", "modprobe overlay")
	}
	if !slices.Contains(names, "tmpfs") {
		lack("disk_limit", "the kernel has no tmpfs", "use a kernel with CONFIG_TMPFS")
	}
	for _, n := range []struct {
		flag uintptr
		name string
	}{{0, "user"}, {unix.CLONE_NEWPID, "pid"}, {unix.CLONE_NEWNS, "mnt"}, {unix.CLONE_NEWNET, "net"}, {unix.CLONE_NEWIPC, "ipc"}, {unix.CLONE_NEWUTS, "uts"}} {
		if err := namespace(n.flag); err != nil {
			axis := "sandbox_isolation"
			if n.flag == unix.CLONE_NEWNET {
				axis = "network_policy"
			}
			lack(axis, "a "+n.name+" namespace cannot be made: "+err.Error(), "allow clone with namespace flags where this program runs, and raise user.max_"+n.name+"_namespaces")
			break // without the first none of the others
		}
	}
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		lack("", "processes cannot be held by pidfd_open: "+err.Error(), "use Linux 5.3 or later and allow pidfd_open")
	} else {
		unix.Close(fd)
	}
	root, err := contain.Open("/", contain.Options{})
	if err != nil {
		lack("", "files cannot be read with physical containment: "+err.Error(), "use Linux 5.6 or later and allow openat2")
	} else {
		root.Close()
	}
	return lacks
}

// namespace makes a child in a new user namespace and one more, and says why
// that cannot be. The child ends at once: there is no such program.
func namespace(flag uintptr) error {
	_, err := syscall.ForkExec("/proc/self/no-such-program", []string{"probe"}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | flag},
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// blockedAbove returns the first directory on the way to dir that a stranger
// may not pass through, or "". Machines run under host ids of their own and
// have to reach their mounts.
func blockedAbove(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.Mode()&0o001 == 0 {
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// onlyLoopback reports whether lo is the only interface: a network namespace
// cannot be without it.
func onlyLoopback(interfaces []string) bool {
	for _, name := range interfaces {
		if name != "lo" {
			return false
		}
	}
	return true
}

// readOnlyMount reads back the flags of a mount.
func readOnlyMount(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Flags&unix.ST_RDONLY != 0
}
