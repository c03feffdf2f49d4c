package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// EndedError says that a machine ended, and with it every program in it whose
// exit was not yet known.
type EndedError struct {
	ID string
	// MemoryLimit is set if the host's kernel killed the sentry at the
	// machine's memory limit: under gVisor that ends the whole machine.
	MemoryLimit bool
	// Status is how the sentry process ended, for people.
	Status string
}

func (e *EndedError) Error() string {
	if e.MemoryLimit {
		return "machine " + e.ID + " ended: it used more memory than its limit"
	}
	return "machine " + e.ID + " ended: " + e.Status
}

type gvisorMachine struct {
	driver *Driver
	spec   machine.Spec
	made   createResult
	owner  *os.File // init ends the machine when this is closed

	ended    chan struct{} // closed once the sentry is gone and reaped
	endedErr error         // valid after ended

	groups atomic.Uint32 // last group handed to an Exec

	// frozen is held (one token) while the sentry's tasks are paused.
	frozen chan struct{}

	destroyMu sync.Mutex
	destroyed bool
}

var _ machine.Machine = (*gvisorMachine)(nil)

// adopt takes over a sandbox that the helper left behind and which, since this
// process is a subreaper, is now its child.
func (d *Driver) adopt(s machine.Spec, made createResult, owner *os.File) (*gvisorMachine, error) {
	// The pid cannot have been reused: nobody else reaps our children.
	fd, err := unix.PidfdOpen(made.Sandbox, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("sandbox process %d: %w", made.Sandbox, err)
	}
	m := &gvisorMachine{
		driver: d,
		spec:   s,
		made:   made,
		owner:  owner,
		ended:  make(chan struct{}),
		frozen: make(chan struct{}, 1),
	}
	m.groups.Store(firstGroup)
	go m.watch(os.NewFile(uintptr(fd), "pidfd"))
	return m, nil
}

// watch waits for the sentry to end, reaps it and the gofer, and says why.
func (m *gvisorMachine) watch(pidfd *os.File) {
	defer pidfd.Close()
	waitReadable(pidfd)
	status := "its exit status is unknown"
	if ws, err := reap(m.made.Sandbox); err == nil {
		status = describe(ws)
	}
	// The gofer follows its sentry by itself; this only makes it certain.
	_ = unix.Kill(m.made.Gofer, unix.SIGKILL)
	_, _ = reap(m.made.Gofer)
	m.endedErr = &EndedError{
		ID:          m.spec.ID,
		MemoryLimit: oomKilled(m.driver.cgroup(m.spec.ID)),
		Status:      status,
	}
	close(m.ended)
}

// waitReadable parks the goroutine (not a thread) until f is readable, which a
// pidfd is once its process ended.
func waitReadable(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
}

// reap waits for one child that is dead or dying.
func reap(pid int) (syscall.WaitStatus, error) {
	if pid <= 0 {
		return 0, unix.ECHILD
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return ws, err
		}
	}
}

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "the sentry was killed by " + unix.SignalName(ws.Signal())
	}
	return fmt.Sprintf("the sentry exited with code %d", ws.ExitStatus())
}

// Alive is nil while the machine runs, else an *EndedError.
func (m *gvisorMachine) Alive() error {
	select {
	case <-m.ended:
		return m.endedErr
	default:
		return nil
	}
}

// endedWithin gives the watcher time to say why the sentry does not answer.
func (m *gvisorMachine) endedWithin(ctx context.Context, bound time.Duration) error {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-m.ended:
		return m.endedErr
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("machine %s does not answer", m.spec.ID)
	}
}

// Destroy ends everything in the machine and removes what the driver made.
// It is idempotent and returns when nothing is left.
func (m *gvisorMachine) Destroy(ctx context.Context) error {
	m.destroyMu.Lock()
	defer m.destroyMu.Unlock()
	if m.destroyed {
		return nil
	}
	select {
	case <-m.ended: // the pid may by now belong to a stranger
	default:
		// The sentry is process 1 of its pid namespace, so with it ends every
		// host process of the machine but the gofer.
		if err := unix.Kill(m.made.Sandbox, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill sandbox: %w", err)
		}
	}
	_ = m.owner.Close()
	select {
	case <-m.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := m.driver.Reap(ctx, m.spec.ID, m.spec.StateDir); err != nil {
		return err
	}
	m.destroyed = true
	return nil
}
