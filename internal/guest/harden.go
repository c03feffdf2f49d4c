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

// deaf is the address of a signal handler that does nothing, never to be called
// from Go.
//
//lint:ignore U1000 deafAddress, in assembly, takes its address
func deaf()
func deafAddress() uint64

// deafen has the kernel drop every signal that the workload may send. Catching
// is not enough where the sender has our uid: the runtime takes a queued
// SIGSEGV for a fault of its own and ends. Nor is the default action, which
// PID 1 should be safe from: the kernel forgets that for a signal sent to a
// thread that blocks it while another does not. Ignored signals are dropped
// for good; a fault of our own still ends the process, as it should. What is
// ignored here is not ignored in commands, because the runtime resets before
// an exec whatever it was once told to catch, which harden did. It was never
// told of the two that C libraries use, so those get a handler, which no exec
// outlives. SIGCHLD is wanted, SIGURG is the runtime's.
func deafen() error {
	type sigaction struct{ handler, flags, restorer, mask uint64 }
	const ignore = 1
	set := func(n int, action, old *sigaction) error {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(n),
			uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), 8, 0, 0); errno != 0 {
			return os.NewSyscallError("rt_sigaction", errno)
		}
		return nil
	}
	// The runtime's own way back from a handler will do for ours.
	var nothing sigaction
	if err := set(int(syscall.SIGCHLD), nil, &nothing); err != nil {
		return err
	}
	nothing.handler = deafAddress()
	for n := 1; n <= 64; n++ {
		action := &sigaction{handler: ignore}
		switch {
		case n == int(syscall.SIGKILL), n == int(syscall.SIGSTOP), n == int(syscall.SIGCHLD), n == int(syscall.SIGURG):
			continue
		case n == 32, n == 34:
			action = &nothing
		}
		if err := set(n, action, nil); err != nil {
			return err
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
