package confine

import (
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What each version of Landlock's interface brought.
const (
	landlockFirst    = 1 // files
	landlockRefer    = 2
	landlockTruncate = 3
	landlockNetwork  = 4 // TCP ports
	landlockDevices  = 5
	landlockScopes   = 6 // abstract sockets and signals
	landlockResolve  = 9 // socket files
)

// rulePort is LANDLOCK_RULE_NET_PORT, and portRule its struct
// landlock_net_port_attr.
const rulePort = 2

type portRule struct{ access, port uint64 }

// threadSignals is the erratum of the kernel that lets threads of one process
// signal each other across a scope. Without it the runtime could not preempt.
const threadSignals = 1 << 1

// landlock takes the whole file system away: nothing is granted, so nothing can
// be opened, made, removed or executed. TCP connects to the named ports and
// listens nowhere; that is the second, independent hold on the port of a
// destination.
func landlock(n Needs) error {
	const name = "landlock"
	version, err := landlockQuery(unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != nil {
		// Not compiled in, or not started: both are the kernel's, and one of the two
		// is what the launcher was told.
		if n.NoLandlock && (err == syscall.ENOSYS || err == syscall.EOPNOTSUPP) {
			return nil
		}
		return &Error{name, "a kernel with Landlock", err.Error()}
	}
	ruleset := unix.LandlockRulesetAttr{Handled_access_fs: fileAccess(version, n.Unix)}
	if version >= landlockNetwork {
		ruleset.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= landlockScopes {
		ruleset.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		if errata, err := landlockQuery(unix.LANDLOCK_CREATE_RULESET_ERRATA); err == nil && errata&threadSignals != 0 {
			ruleset.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
		}
	}
	// Older kernels take a longer structure whose unknown rest is zero.
	const size = unsafe.Offsetof(ruleset.Quiet_access_fs)
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&ruleset)), size, 0)
	if errno != 0 {
		return &Error{name, "a ruleset", errno.Error()}
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if version >= landlockNetwork {
		for _, port := range n.Ports {
			rule := portRule{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(port)}
			if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, rulePort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
				return &Error{name, "a rule for port " + strconv.Itoa(int(port)), errno.Error()}
			}
		}
	}
	return everyThread(name, "to be restricted", unix.SYS_LANDLOCK_RESTRICT_SELF, [3]uintptr{fd})
}

// landlockQuery asks the kernel what it has.
func landlockQuery(what uintptr) (int, error) {
	n, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, what)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// fileAccess is every right on files that this version can take away. A process
// that connects to a socket file keeps that one.
func fileAccess(version int, connects bool) uint64 {
	const first = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
	all := uint64(first)
	for _, more := range []struct {
		since int
		right uint64
	}{
		{landlockFirst, 0},
		{landlockRefer, unix.LANDLOCK_ACCESS_FS_REFER},
		{landlockTruncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{landlockDevices, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	} {
		if version >= more.since {
			all |= more.right
		}
	}
	if version >= landlockResolve && !connects {
		all |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return all
}
