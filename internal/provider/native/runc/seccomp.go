package runc

import (
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// allowed is every system call that the workload may make with any arguments.
// The filter denies by default: what a newer kernel adds is not reachable
// before somebody has judged it. Left out, with intent: anything that makes or
// enters a namespace, mounts, loads code into the kernel or changes the host
// (bpf, modules, kexec, reboot, clock setting, swap, quota), the kernel's key
// rings (not namespaced), userfaultfd, io_uring, perf_event_open, fanotify,
// open_by_handle_at, kcmp, lookup_dcookie and the 16-bit relics. ptrace stays
// for debuggers: it ends at the machine's own pid and user namespaces, and the
// guest init is not dumpable.
const allowed = `
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk
rt_sigaction rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev
access pipe select sched_yield mremap msync mincore madvise shmget shmat shmctl
dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile
connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname
getpeername setsockopt getsockopt fork vfork execve exit wait4 kill uname
semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync
fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir
creat link unlink symlink readlink chmod fchmod chown fchown lchown umask
gettimeofday getrlimit getrusage sysinfo times ptrace getuid getgid setuid
setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid
getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid
setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo
rt_sigsuspend sigaltstack utime mknod ustat statfs fstatfs getpriority
setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler
sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock
munlock mlockall munlockall prctl arch_prctl setrlimit sync gettid readahead
setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr
flistxattr removexattr lremovexattr fremovexattr tkill time futex
sched_setaffinity sched_getaffinity set_thread_area get_thread_area io_setup
io_destroy io_getevents io_submit io_cancel epoll_create remap_file_pages
getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create
timer_settime timer_gettime timer_getoverrun timer_delete clock_gettime
clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr waitid
ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch openat
mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat
readlinkat fchmodat faccessat pselect6 ppoll set_robust_list get_robust_list
splice tee sync_file_range vmsplice utimensat epoll_pwait signalfd
timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4
signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev
rt_tgsigqueueinfo recvmmsg syncfs sendmmsg getcpu process_vm_readv
process_vm_writev sched_setattr sched_getattr renameat2 seccomp getrandom
memfd_create execveat membarrier mlock2 copy_file_range preadv2 pwritev2
pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq pidfd_send_signal
pidfd_open close_range openat2 pidfd_getfd faccessat2 process_madvise
epoll_pwait2 landlock_create_ruleset landlock_add_rule landlock_restrict_self
memfd_secret process_mrelease futex_waitv cachestat fchmodat2 map_shadow_stack
futex_wake futex_wait futex_requeue mseal
clone3`

// namespaceFlags are the clone flags that make a namespace.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// families are the address families that a socket may have. All others are
// refused, above all AF_VSOCK: it belongs to no network namespace, so that it
// would be a way out of a machine that has no network. AF_ALG and AF_PACKET
// are attack surface. Netlink serves "which addresses do I have".
var families = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// filter is the seccomp profile of every machine.
//
// clone3 hides its flags behind a pointer, where no filter can look. It is
// allowed, because the guest init is born with it and starts commands with it;
// that it makes no namespaces is seen to by the limits of "checkfu-init seal".
func filter() *specs.LinuxSeccomp {
	eperm, enosys := uint(unix.EPERM), uint(unix.ENOSYS)
	f := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &eperm,
		Syscalls: []specs.LinuxSyscall{
			{Names: strings.Fields(allowed), Action: specs.ActAllow},
			{
				Names:  []string{"clone"},
				Action: specs.ActAllow,
				Args:   []specs.LinuxSeccompArg{{Index: 0, Value: namespaceFlags, ValueTwo: 0, Op: specs.OpMaskedEqual}},
			},
			{
				// Of itself only: the limits of the guest init, which has the same
				// uid, include how much processor time it has to live.
				Names:  []string{"prlimit64"},
				Action: specs.ActAllow,
				Args:   []specs.LinuxSeccompArg{{Index: 0, Value: 0, Op: specs.OpEqualTo}},
			},
			// Programs fall back from these, but only if they seem not to exist.
			{Names: []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}, Action: specs.ActErrno, ErrnoRet: &enosys},
		},
	}
	for _, family := range families {
		f.Syscalls = append(f.Syscalls, specs.LinuxSyscall{
			Names:  []string{"socket", "socketpair"},
			Action: specs.ActAllow,
			Args:   []specs.LinuxSeccompArg{{Index: 0, Value: family, Op: specs.OpEqualTo}},
		})
	}
	// The personalities that change nothing of the kernel's defences: the
	// default, the question, and the one without address randomization that
	// debuggers set.
	for _, persona := range []uint64{0, 0x0040000, 0xffffffff} {
		f.Syscalls = append(f.Syscalls, specs.LinuxSyscall{
			Names:  []string{"personality"},
			Action: specs.ActAllow,
			Args:   []specs.LinuxSeccompArg{{Index: 0, Value: persona, Op: specs.OpEqualTo}},
		})
	}
	return f
}
