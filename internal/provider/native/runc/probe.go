package runc

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Probe implements machine.Driver.
func (d *driver) Probe(ctx context.Context) []machine.Lack {
	var lacks []machine.Lack
	lack := func(axis, what, remedy string) {
		lacks = append(lacks, machine.Lack{Axis: axis, What: what, Remedy: remedy})
	}
	if os.Geteuid() != 0 {
		lack("", "the runc driver needs root", "run as root")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "runc", "--version").Output(); err != nil {
		lack("", "runc was not found or does not run: "+err.Error(), "install runc 1.1 or newer (Debian, Ubuntu: apt install runc)")
	} else {
		major, minor, ok := runcVersion(string(out))
		if !ok || major < 1 || major == 1 && minor < 1 {
			lack("", "runc is older than 1.1: "+firstLine(string(out)), "install runc 1.1 or newer (Debian 12, Ubuntu 22.04: apt install runc)")
		}
		if !strings.Contains(string(out), "libseccomp") {
			lack("network_policy", "this runc was built without seccomp, so AF_VSOCK cannot be refused", "install a runc with seccomp (Debian, Ubuntu: apt install runc)")
		}
	}
	if major, minor, ok := kernelVersion(); ok && (major < 5 || major == 5 && minor < 14) {
		lack("", "the kernel is older than 5.14 and cannot kill a cgroup as one", "boot Linux 5.14 or newer")
	}
	if err := unix.Unshare(0); err != nil {
		lack("sandbox_isolation", "runc cannot make namespaces: unshare: "+err.Error(), "allow unshare where this program runs")
	}
	all, err := hierarchies()
	if err != nil {
		lack("", "the cgroup mounts cannot be read: "+err.Error(), "mount /proc")
	} else {
		if _, err := unified(all); err != nil {
			lack("", err.Error(), "mount -t cgroup2 none /sys/fs/cgroup/unified (systemd does it)")
		}
		for _, c := range []string{"memory", "cpu", "pids"} {
			if _, ok := with(all, c); !ok {
				lack("resource_limits", "no cgroup hierarchy has the "+c+" controller", "mount it, or boot without cgroup_disable="+c)
			}
		}
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil || readInt("/proc/sys/user/max_user_namespaces") == 0 {
		lack("", "user namespaces are off", "sysctl user.max_user_namespaces=10000")
	}
	if _, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail"); err != nil {
		lack("network_policy", "the kernel has no seccomp filters, so AF_VSOCK cannot be refused", "boot a kernel with CONFIG_SECCOMP_FILTER")
	}
	return lacks
}

// runcVersion reads "runc version 1.1.5+ds1".
func runcVersion(text string) (major, minor int, ok bool) {
	rest, ok := strings.CutPrefix(firstLine(text), "runc version ")
	if !ok {
		return 0, 0, false
	}
	return twoNumbers(rest)
}

func kernelVersion() (major, minor int, ok bool) {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return 0, 0, false
	}
	return twoNumbers(unix.ByteSliceToString(u.Release[:]))
}

// twoNumbers reads the first two of "5.14.0-rc1".
func twoNumbers(text string) (first, second int, ok bool) {
	a, rest, _ := strings.Cut(text, ".")
	b := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		b = rest[:i]
	}
	first, err := strconv.Atoi(a)
	if err != nil {
		return 0, 0, false
	}
	second, err = strconv.Atoi(b)
	return first, second, err == nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
