package confine

import "golang.org/x/sys/unix"

// hostile are the calls that no egress process makes, whatever the runtime of a
// later Go does: one that makes them is somebody else's by now and ends. Its
// tunnels end with it, which is the safe side.
var hostile = []uintptr{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_BPF, unix.SYS_IO_URING_SETUP, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
}

// threads is what the runtime asks for when it makes a thread, and cloneTLS what
// it may add to it. Anything else would be a process, or a namespace.
const (
	threads = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD

	cloneTLS = unix.CLONE_SETTLS
)

// nameMemory is PR_SET_VMA, by which the runtime names its memory in maps.
const nameMemory = 0x53564d41

// rules is what a Go network server calls, except socket. What opens a file is
// not among it: everything that is needed is open. Nor is what listens or binds.
func rules(pid uint32) []rule {
	rs := []rule{
		// The poller, reading, writing and moving bytes.
		allow(unix.SYS_READ), allow(unix.SYS_WRITE), allow(unix.SYS_READV), allow(unix.SYS_WRITEV),
		allow(unix.SYS_SPLICE), allow(unix.SYS_PIPE2), allow(unix.SYS_CLOSE), allow(unix.SYS_FSTAT),
		allow(unix.SYS_EPOLL_PWAIT), allow(unix.SYS_EPOLL_CTL), allow(unix.SYS_EPOLL_CREATE1), allow(unix.SYS_EVENTFD2),
		// The log, where it is a file.
		allow(unix.SYS_FSYNC), allow(unix.SYS_FDATASYNC),

		// Connections. They are read and written as files are: no send, which could
		// connect past the hook that holds the ports (MSG_FASTOPEN), or pass a
		// descriptor to a workload.
		allow(unix.SYS_ACCEPT4), allow(unix.SYS_CONNECT), allow(unix.SYS_SHUTDOWN),
		allow(unix.SYS_GETSOCKNAME), allow(unix.SYS_GETPEERNAME), allow(unix.SYS_GETSOCKOPT),

		// The runtime's threads, memory, time and signals.
		allow(unix.SYS_FUTEX), allow(unix.SYS_SCHED_YIELD), allow(unix.SYS_SCHED_GETAFFINITY),
		allow(unix.SYS_NANOSLEEP), allow(unix.SYS_CLOCK_GETTIME), allow(unix.SYS_GETTIMEOFDAY),
		allow(unix.SYS_CLONE, is(0, threads)), allow(unix.SYS_CLONE, is(0, threads|cloneTLS)),
		allow(unix.SYS_GETPID), allow(unix.SYS_GETTID), allow(unix.SYS_EXIT), allow(unix.SYS_EXIT_GROUP),
		allow(unix.SYS_MUNMAP), allow(unix.SYS_MADVISE), allow(unix.SYS_GETRANDOM),
		allow(unix.SYS_MMAP, lacks(2, unix.PROT_EXEC)), allow(unix.SYS_MPROTECT, lacks(2, unix.PROT_EXEC)),
		allow(unix.SYS_PRCTL, is(0, nameMemory)),
		allow(unix.SYS_RT_SIGACTION), allow(unix.SYS_RT_SIGPROCMASK), allow(unix.SYS_RT_SIGRETURN), allow(unix.SYS_SIGALTSTACK),
		allow(unix.SYS_RESTART_SYSCALL), allow(unix.SYS_UNAME),
		// Preemption, and the end by a signal: to this process and no other.
		allow(unix.SYS_TGKILL, is(0, pid)), allow(unix.SYS_KILL, is(0, pid)),
	}
	for _, command := range []uint32{unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ} {
		rs = append(rs, allow(unix.SYS_FCNTL, is(1, command)))
	}
	for _, option := range [][2]uint32{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.SOL_SOCKET, unix.SO_LINGER},
		{unix.SOL_SOCKET, unix.SO_BROADCAST}, {unix.SOL_SOCKET, unix.SO_RCVBUF}, {unix.SOL_SOCKET, unix.SO_SNDBUF},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}, {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
		{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY},
	} {
		rs = append(rs, allow(unix.SYS_SETSOCKOPT, is(1, option[0]), is(2, option[1])))
	}
	return rs
}

// sockets is which ones may be made: TCP and UDP, which a resolver is asked by,
// and UNIX streams where they are needed. No raw ones, no MPTCP, whose peer could
// name another address, no netlink, packet, vsock or crypto.
func sockets(unixToo bool) []rule {
	const family, kind, protocol, kinds = 0, 1, 2, 0xf // the rest of the kind is flags
	var rs []rule
	for _, f := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, s := range [][2]uint32{
			{unix.SOCK_STREAM, 0}, {unix.SOCK_STREAM, unix.IPPROTO_TCP}, {unix.SOCK_DGRAM, 0}, {unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		} {
			rs = append(rs, allow(unix.SYS_SOCKET, is(family, f), check{kind, kinds, s[0]}, is(protocol, s[1])))
		}
	}
	if unixToo {
		rs = append(rs, allow(unix.SYS_SOCKET, is(family, unix.AF_UNIX), check{kind, kinds, unix.SOCK_STREAM}, is(protocol, 0)))
	}
	return rs
}
