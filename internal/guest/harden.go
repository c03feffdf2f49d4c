package guest

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// harden makes this process one that the workload can neither end nor read.
// Every signal is caught, not ignored: an ignored one would stay ignored in
// the commands it starts. The kernel drops the uncaught ones for PID 1.
func harden() error {
	// Nobody reads the channel: a full one means that the signal is dropped.
	signal.Notify(make(chan os.Signal, 1))
	// Same-uid processes could otherwise read our descriptors through /proc or
	// attach to us.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_DUMPABLE", err)
	}
	// Where this is not PID 1 (a machine without a pid namespace) orphans still
	// have to come here.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && os.Getpid() != 1 {
		return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", err)
	}
	return nil
}

// deafen has the kernel drop every signal that the workload may send to PID 1,
// by giving each its default action. Catching is not enough where the sender
// has our uid: the runtime takes a queued SIGSEGV for a fault of its own and
// ends. SIGCHLD is wanted, SIGURG is the runtime's. A fault of our own still
// ends the process, as it should. Only for the kernel's own PID 1.
func deafen() error {
	var action struct{ handler, flags, restorer, mask uint64 } // SIG_DFL
	for n := 1; n <= 64; n++ {
		switch syscall.Signal(n) {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG:
			continue
		}
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n),
			uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0); errno != 0 {
			return os.NewSyscallError("rt_sigaction", errno)
		}
	}
	return nil
}

// childSignals delivers at least one value after any child ended.
func childSignals() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	// A child may have ended before the signal was asked for.
	c <- syscall.SIGCHLD
	return c
}

// reapOne takes one ended child, without waiting. The pid is 0 or less when
// there is none.
func reapOne() (int, syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		return pid, status
	}
}
