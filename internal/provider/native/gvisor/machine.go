package gvisor

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// EndedError says that a machine ended, and with it every program in it whose
// exit was not yet known.
type EndedError struct {
	ID string
	// MemoryLimit is set if the host's kernel killed the sentry at the
	// machine's memory limit: under gVisor that ends the whole machine.
	MemoryLimit bool
	// Status is how the sentry process ended, in words.
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
	sentry *hostProcess
	gofer  *hostProcess
	helper helper

	ended    chan struct{} // closed once the sentry is gone and reaped
	endedErr error         // valid after ended

	groups   atomic.Uint32 // last group handed to an Exec
	commands atomic.Int32  // of Exec, not seen to have ended

	// frozen is held (one token) while the sentry's tasks are paused.
	frozen chan struct{}

	destroyMu sync.Mutex
	destroyed bool
}

var _ machine.Machine = (*gvisorMachine)(nil)

// adopt takes over a sandbox that the helper leaves behind and which, since this
// process is a subreaper, is its child once the helper is gone.
func (d *Driver) adopt(s machine.Spec, made createResult, owner *os.File, h helper) (*gvisorMachine, error) {
	// Neither number can have been reused: nobody else reaps our children, and
	// the helper does not reap.
	sentry, err := openProcess(made.Sandbox)
	if err != nil {
		return nil, fmt.Errorf("sentry %d: %w", made.Sandbox, err)
	}
	gofer, err := openProcess(made.Gofer)
	if err != nil {
		sentry.close()
		return nil, fmt.Errorf("gofer %d: %w", made.Gofer, err)
	}
	m := &gvisorMachine{
		driver: d,
		spec:   s,
		made:   made,
		owner:  owner,
		sentry: sentry,
		gofer:  gofer,
		helper: h,
		ended:  make(chan struct{}),
		frozen: make(chan struct{}, 1),
	}
	m.groups.Store(firstGroup)
	d.watch(true, made.Sandbox, made.Gofer)
	go m.watch()
	return m, nil
}

// watch waits for the sentry and the gofer to end, reaps both, and says why.
func (m *gvisorMachine) watch() {
	<-m.helper.gone // before that they are not ours to reap
	m.sentry.wait()
	status, err := m.sentry.reap()
	if err != nil {
		status = "its exit status is unknown"
	}
	// The gofer follows its sentry by itself; this only makes it certain.
	_ = m.gofer.kill()
	m.gofer.wait()
	_, _ = m.gofer.reap()
	m.endedErr = &EndedError{
		ID:          m.spec.ID,
		MemoryLimit: oomKilled(m.driver.cgroup(m.spec.ID)),
		Status:      status,
	}
	m.driver.watch(false, m.made.Sandbox, m.made.Gofer)
	close(m.ended)
	m.sentry.close()
	m.gofer.close()
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
	// The sentry is process 1 of its pid namespace, so with it ends every host
	// process of the machine but the gofer.
	if err := m.sentry.kill(); err != nil && m.Alive() == nil {
		return fmt.Errorf("kill the sentry of machine %s: %w", m.spec.ID, err)
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
