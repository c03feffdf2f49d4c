package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
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
// The open files behind c's descriptors are put into blocking mode.
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
	if m.spec.Build {
		args.KUID, args.KGID, args.Capabilities = 0, 0, buildCapabilities()
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
	if err := text(c); err != nil {
		return nil, err
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

	files, closeFiles, err := stdio(c)
	if err != nil {
		return nil, err
	}
	args.FilePayload = control.NewFilePayload(files, nil)

	p := &process{machine: m, group: group, done: make(chan struct{})}
	m.commands.Add(1)
	started := make(chan error, 1)
	go func() {
		defer closeFiles()
		started <- m.call(boot.ContMgrExecuteAsync, args, &p.pid)
	}()
	select {
	case err = <-started:
	case <-ctx.Done():
		// The call cannot be taken back: whatever it starts is killed.
		go func() {
			if <-started != nil {
				m.commands.Add(-1)
			} else {
				go p.wait()
				_ = p.KillTree(context.WithoutCancel(ctx))
			}
		}()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		m.commands.Add(-1)
		return nil, m.startError(ctx, c, err)
	}
	go p.wait()
	return p, nil
}

// text refuses what the call to the sentry would carry wrongly without a word:
// it is JSON, in which other bytes than UTF-8 are replaced, and the guest's
// strings end at the first NUL.
func text(c machine.Command) error {
	const variables = 1
	for i, list := range [][]string{c.Argv, c.Env, {c.Dir}} {
		for _, s := range list {
			if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
				continue
			}
			what := strconv.Quote(s)
			if i == variables {
				name, _, _ := strings.Cut(s, "=") // a value is said nowhere
				what = "the variable " + strconv.Quote(name)
			}
			return &machine.StartError{Path: c.Argv[0], Err: errors.New(what + " is not UTF-8 text without NUL")}
		}
	}
	return nil
}

// stdio gives the program its first three files, /dev/null where c has none.
// They are duplicates: a call that outlives its caller's patience must not pass
// on whatever a number of the caller's means by then.
func stdio(c machine.Command) (files map[int]*os.File, closeFiles func(), err error) {
	files = map[int]*os.File{}
	closeFiles = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for fd, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		var own *os.File
		if f == nil {
			own, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		} else {
			own, err = duplicate(f)
		}
		if err != nil {
			closeFiles()
			return nil, nil, fmt.Errorf("descriptor %d of the program: %w", fd, err)
		}
		files[fd] = own
	}
	return files, closeFiles, nil
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	own, dupErr := -1, error(nil)
	err = raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		if dupErr = unix.Fstat(int(fd), &st); dupErr != nil {
			return
		}
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
			// The sentry writes a regular file at an offset of its own.
			dupErr = &SpecError{"Command", "pipes or sockets", fmt.Sprintf("%s of mode %#o", f.Name(), st.Mode)}
			return
		}
		if own, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); dupErr != nil {
			return
		}
		// Go's pipes do not block, and the guest would be told so: its read of
		// an empty pipe would fail.
		dupErr = unix.SetNonblock(own, false)
	})
	if err = errors.Join(err, dupErr); err != nil {
		if own >= 0 {
			unix.Close(own)
		}
		return nil, err
	}
	return os.NewFile(uintptr(own), f.Name()), nil
}

// startError tells the caller's mistake from the machine's failure. The
// sentry's answer carries nothing but text, so the text has to be read.
func (m *gvisorMachine) startError(ctx context.Context, c machine.Command, err error) error {
	remote, ok := errors.AsType[urpc.RemoteError](err)
	if !ok {
		return m.endedWithin(ctx, endBound)
	}
	// The sentry would quote PATH, which may be the caller's own and is then
	// nobody else's business.
	message, _, _ := strings.Cut(remote.Message, " in PATH [")
	if message != remote.Message {
		message = "executable file not found in PATH"
	}
	for _, mistake := range []struct {
		text string
		kind error // what errors.Is finds in the StartError, or nil
	}{
		{"no such file or directory", fs.ErrNotExist},
		{"executable file not found", fs.ErrNotExist},
		{"cannot find", fs.ErrNotExist},
		{"not found in $PATH", fs.ErrNotExist},
		{"permission denied", fs.ErrPermission},
		{"not a directory", nil},
		{"is a directory", nil},
		{"exec format error", nil},
		{"too many levels of symbolic links", nil},
		{"too many symbolic links", nil}, // the same, in the sentry's own words
		{"file name too long", nil},
		{"argument list too long", nil},
		{"Failed to load stack", nil}, // arguments and environment do not fit on it
	} {
		if strings.Contains(message, mistake.text) {
			where := c.Argv[0]
			if strings.HasPrefix(message, "failed to find initial working directory") {
				where = c.Dir
			}
			cause := errors.New(message)
			if mistake.kind != nil {
				cause = fmt.Errorf("%w (%s)", mistake.kind, message)
			}
			return &machine.StartError{Path: where, Err: cause}
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
