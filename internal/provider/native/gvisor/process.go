package gvisor

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// endBound is how long the watcher may take to notice that a sentry is gone
// after its control socket broke.
const endBound = 5 * time.Second

type process struct {
	machine *gvisorMachine
	pid     int32  // as the guest sees it
	group   uint32 // marks all that descends from it

	done chan struct{} // closed once exit or err is set
	exit machine.Exit
	err  error
}

var _ machine.Process = (*process)(nil)

// wait asks the sentry once; the sentry forgets the exit as it gives it out.
func (p *process) wait() {
	defer close(p.done)
	defer p.machine.commands.Add(-1)
	var ws uint32
	args := &boot.WaitPIDArgs{PID: p.pid, CID: p.machine.spec.ID}
	if err := p.machine.call(boot.ContMgrWaitPID, args, &ws); err != nil {
		p.err = err
		if _, remote := errors.AsType[urpc.RemoteError](err); !remote {
			p.err = p.machine.endedWithin(context.Background(), endBound)
		}
		return
	}
	status := syscall.WaitStatus(ws)
	if status.Signaled() {
		p.exit = machine.Exit{Signal: unix.SignalName(status.Signal())}
		return
	}
	p.exit = machine.Exit{Code: status.ExitStatus()}
}

// Wait blocks until the program ended or ctx is done, and may be called again.
//
// Errors: *EndedError if the machine went first; ctx's.
func (p *process) Wait(ctx context.Context) (machine.Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	default:
	}
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return machine.Exit{}, context.Cause(ctx)
	}
}

var signals = map[string]unix.Signal{
	"SIGINT":  unix.SIGINT,
	"SIGTERM": unix.SIGTERM,
	"SIGKILL": unix.SIGKILL,
}

// Signal delivers a signal by name. It returns nil if the program has ended.
func (p *process) Signal(ctx context.Context, name string) error {
	sig, ok := signals[name]
	if !ok {
		return fmt.Errorf("signal: expected SIGINT, SIGTERM or SIGKILL, got %q", name)
	}
	select {
	case <-p.done:
		return nil // its pid may belong to another program by now
	default:
	}
	err := within(ctx, func() error {
		return p.machine.call(boot.ContMgrSignal, p.machine.signalArgs(p.pid, sig), nil)
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	// It may have ended since. The sentry's answer to the wait says so.
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-p.machine.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return err
	}
}

func (m *gvisorMachine) signalArgs(pid int32, sig unix.Signal) *boot.SignalArgs {
	return &boot.SignalArgs{CID: m.spec.ID, Signo: int32(sig), PID: pid, Mode: boot.DeliverToProcess}
}

// within runs a call that cannot be cancelled, for as long as ctx allows.
func within(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
