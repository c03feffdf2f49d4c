package confine

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// everyThread makes one system call on each thread of this process. Linux keeps
// users, capabilities and privileges by thread.
func everyThread(step, expected string, number uintptr, args [3]uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(number, args[0], args[1], args[2]); errno != 0 {
		got := errno.Error()
		if errno == syscall.ENOTSUP {
			got = "a program linked with cgo, whose threads the runtime does not reach"
		}
		return &Error{step, expected, got}
	}
	return nil
}

// noNewPrivileges makes every later exec powerless, though the filter forbids
// each. An unprivileged process may install a filter only with it.
func noNewPrivileges(Needs) error {
	return everyThread("no_new_privs", "PR_SET_NO_NEW_PRIVS 1", unix.SYS_PRCTL, [3]uintptr{unix.PR_SET_NO_NEW_PRIVS, 1})
}

// identity gives up every capability and the user root.
func identity(n Needs) error {
	const name = "identity"
	root := os.Geteuid() == 0
	switch {
	case n.UID < 0 || n.GID < 0 || (n.UID == 0) != (n.GID == 0):
		return &Error{name, "a user and a group, both above 0, or neither", strconv.Itoa(n.UID) + " and " + strconv.Itoa(n.GID)}
	case root && n.UID == 0:
		return &Error{name, "a user to become", "none, as root"}
	case !root && n.UID != 0 && (n.UID != os.Geteuid() || n.GID != os.Getegid()):
		return &Error{name, "to be started as root to become user " + strconv.Itoa(n.UID), "user " + strconv.Itoa(os.Geteuid())}
	}
	if root {
		if err := become(n); err != nil {
			return err
		}
	}
	// A user other than root has none after the change, but a process that was
	// started with some as an ordinary user still has them.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	err := everyThread(name, "no capability", unix.SYS_CAPSET,
		[3]uintptr{uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none))})
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&none)
	return err
}

// become drops the bounding set while that is still allowed, and then the user.
func become(n Needs) error {
	const name = "identity"
	for c := uintptr(0); ; c++ {
		if have, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil {
			break // the first number that the kernel does not know
		} else if have == 0 {
			continue
		}
		if err := everyThread(name, "capability "+strconv.Itoa(int(c))+" out of the bounding set", unix.SYS_PRCTL,
			[3]uintptr{unix.PR_CAPBSET_DROP, c}); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups([]int{}); err != nil {
		return &Error{name, "no supplementary group", err.Error()}
	}
	if err := syscall.Setresgid(n.GID, n.GID, n.GID); err != nil {
		return &Error{name, "group " + strconv.Itoa(n.GID), err.Error()}
	}
	if err := syscall.Setresuid(n.UID, n.UID, n.UID); err != nil {
		return &Error{name, "user " + strconv.Itoa(n.UID), err.Error()}
	}
	return nil
}
