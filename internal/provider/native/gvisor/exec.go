package gvisor

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// firstGroup is below the supplementary group of the first Exec. Every Exec has
// a group of its own: children inherit it, and without CAP_SETGID nothing can
// drop it, so it marks all that descends from the Exec.
const firstGroup = 0x40000000

// Exec starts a command as the workload and returns once it has been started.
//
// Errors: *machine.StartError if there is no such program or directory;
// *EndedError if the machine is gone; ctx's.
func (m *gvisorMachine) Exec(ctx context.Context, c machine.Command) (machine.Process, error) {
	args := &control.ExecArgs{
		KUID:            machine.WorkloadID,
		KGID:            machine.WorkloadID,
		NoNewPrivileges: !m.spec.Twin.NewPrivileges,
		Capabilities:    &auth.TaskCapabilities{},
	}
	if m.spec.Twin.RootUser {
		args.KUID, args.KGID = 0, 0
	}
	if m.spec.Twin.Capabilities {
		all := auth.AllCapabilities
		args.Capabilities = &auth.TaskCapabilities{
			PermittedCaps: all, InheritableCaps: all, EffectiveCaps: all, BoundingCaps: all, AmbientCaps: all,
		}
	}
	return m.exec(ctx, c, args)
}

func (m *gvisorMachine) exec(ctx context.Context, c machine.Command, args *control.ExecArgs) (*process, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, &machine.StartError{Path: "", Err: errors.New("no program named")}
	}
	if !path.IsAbs(c.Dir) {
		return nil, &machine.StartError{Path: c.Dir, Err: errors.New("the working directory is not an absolute path")}
	}
	group := m.groups.Add(1)
	args.Argv = c.Argv
	args.Envv = c.Env
	// The sentry would take a file for a working directory; with the dot it
	// has to walk through it.
	args.WorkingDirectory = c.Dir + "/."
	args.ContainerID = m.spec.ID
	args.ExtraKGIDs = []auth.KGID{auth.KGID(group)}

	files, closeNull, err := stdio(c)
	if err != nil {
		return nil, err
	}
	args.FilePayload = control.NewFilePayload(files, nil)

	p := &process{machine: m, group: group, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer closeNull()
		started <- m.call(boot.ContMgrExecuteAsync, args, &p.pid)
	}()
	select {
	case err = <-started:
	case <-ctx.Done():
		// The call cannot be taken back: whatever it starts is killed.
		go func() {
			if <-started == nil {
				go p.wait()
				_ = p.KillTree(context.WithoutCancel(ctx))
			}
		}()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, m.startError(ctx, c, err)
	}
	go p.wait()
	return p, nil
}

// stdio gives the program its first three files, /dev/null where c has none.
func stdio(c machine.Command) (files map[int]*os.File, closeNull func(), err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	files = map[int]*os.File{0: c.Stdin, 1: c.Stdout, 2: c.Stderr}
	for fd, f := range files {
		if f == nil {
			files[fd] = null
		}
	}
	return files, func() { null.Close() }, nil
}

// startError tells the caller's mistake from the machine's failure. The
// sentry's answer carries nothing but text, so the text has to be read.
func (m *gvisorMachine) startError(ctx context.Context, c machine.Command, err error) error {
	remote, ok := errors.AsType[urpc.RemoteError](err)
	if !ok {
		return m.endedWithin(ctx, endBound)
	}
	for _, mistake := range []string{
		"no such file or directory",
		"not a directory",
		"is a directory",
		"permission denied",
		"exec format error",
		"too many levels of symbolic links",
		"file name too long",
		"argument list too long",
		"executable file not found",
		"cannot find",
		"not found in $PATH",
	} {
		if strings.Contains(remote.Message, mistake) {
			return &machine.StartError{Path: c.Argv[0], Err: errors.New(remote.Message)}
		}
	}
	return err
}

// call makes one call on the sentry. It cannot be cancelled, but ends when the
// sentry does.
func (m *gvisorMachine) call(method string, arg, result any) error {
	conn, err := client.ConnectTo(m.made.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Call(method, arg, result)
}
