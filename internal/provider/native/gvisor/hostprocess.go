package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostProcess is one host process, held by pidfd so that no later process of
// the same number is ever meant.
type hostProcess struct {
	pid int
	fd  *os.File
}

// openProcess holds the process that has the number now. An error that is
// ESRCH means that there is none.
func openProcess(pid int) (*hostProcess, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	return &hostProcess{pid, os.NewFile(uintptr(fd), "pidfd")}, nil
}

// kill sends SIGKILL; a process that ended already is no error.
func (p *hostProcess) kill() error {
	return p.control(func(fd int) error {
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return os.NewSyscallError("pidfd_send_signal", err)
	})
}

// wait parks the goroutine, not a thread, until the process has ended.
func (p *hostProcess) wait() {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
}

// reap removes an ended child of this process and says how it ended. It does
// not block. ECHILD: it is not ours, or somebody else reaped it.
func (p *hostProcess) reap() (how string, err error) {
	// The kernel's siginfo for SIGCHLD; x/sys leaves the union opaque.
	var info struct {
		signo, errno, code, _ int32
		pid                   int32
		uid                   uint32
		status                int32
		_                     [100]byte
	}
	err = p.control(func(fd int) error {
		return unix.Waitid(unix.P_PIDFD, fd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG, nil)
	})
	switch {
	case err != nil:
		return "", err
	case info.pid == 0:
		return "", unix.EAGAIN
	case info.code == cldExited:
		return fmt.Sprintf("it exited with code %d", info.status), nil
	default:
		return "it was killed by " + unix.SignalName(unix.Signal(info.status)), nil
	}
}

const cldExited = 1 // CLD_EXITED

func (p *hostProcess) control(f func(fd int) error) error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// bury waits for a process that must end, reaps it if it is a child that nobody
// else waits for, and lets go of it.
func (p *hostProcess) bury(ctx context.Context) {
	stop := context.AfterFunc(ctx, p.close)
	defer stop()
	p.wait()
	_, _ = p.reap()
	p.close()
}

func (p *hostProcess) close() { p.fd.Close() }
