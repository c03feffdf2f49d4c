package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// process is one started command, alone in a cgroup with its descendants.
type process struct {
	machine *instance
	command *guest.Command
	cgroup  string
}

// startBound is how long a command may take to start.
const startBound = 5 * time.Second

// Exec implements machine.Machine. The files are set to blocking mode.
func (m *instance) Exec(ctx context.Context, c machine.Command) (machine.Process, error) {
	if err := m.Alive(); err != nil {
		return nil, err
	}
	dir, group, err := m.newCgroup()
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	// The workload can stop a child of the guest init between its birth and its
	// program, and init with it, which waits. A kill ends that.
	defer context.AfterFunc(ctx, func() {
		os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	})()
	command, err := m.client.Start(ctx, guest.Start{
		Argv: c.Argv, Env: c.Env, Dir: c.Dir,
		Streams: [3]*os.File{c.Stdin, c.Stdout, c.Stderr},
		Cgroup:  group,
	})
	if err != nil {
		m.retire(dir)
		return nil, startError(err)
	}
	p := &process{machine: m, command: command, cgroup: dir}
	go func() {
		select {
		case <-command.Ended():
			m.retire(dir)
		case <-m.client.Done():
		}
	}()
	if err := ctx.Err(); err != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), killBound)
		defer cancel()
		return nil, errors.Join(err, p.KillTree(bounded))
	}
	return p, nil
}

// startError tells the caller's mistake from a machine that is out of
// something.
func startError(err error) error {
	if bad, ok := errors.AsType[*guest.WireError](err); ok {
		return &machine.StartError{Path: bad.Field, Err: bad}
	}
	failed, ok := errors.AsType[*guest.StartFailure](err)
	if !ok {
		return err
	}
	switch failed.Errno {
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EIO, unix.ENODEV, unix.ENOSYS:
		return failed
	}
	return &machine.StartError{Path: failed.Path, Err: failed.Errno}
}

// Wait implements machine.Process.
func (p *process) Wait(ctx context.Context) (machine.Exit, error) {
	exit, err := p.command.Wait(ctx)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return machine.Exit{}, err
		}
		return machine.Exit{}, fmt.Errorf("exit unknown: %w", err)
	}
	if exit.Signal == 0 {
		return machine.Exit{Code: exit.Code}, nil
	}
	return machine.Exit{Signal: signalName(exit.Signal)}, nil
}

// signalName also names the real-time signals, which have none of their own.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s))
}

// Signal implements machine.Process.
func (p *process) Signal(ctx context.Context, name string) error {
	signal := unix.SignalNum(name)
	switch signal {
	case unix.SIGINT, unix.SIGTERM, unix.SIGKILL:
		return p.command.Signal(ctx, signal)
	}
	return fmt.Errorf("signal: expected SIGINT, SIGTERM or SIGKILL, got %q", name)
}

// KillTree implements machine.Process.
func (p *process) KillTree(ctx context.Context) error {
	if err := kill(ctx, p.cgroup); err != nil {
		return err
	}
	p.machine.retire(p.cgroup)
	return nil
}
