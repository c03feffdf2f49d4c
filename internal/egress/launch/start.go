package launch

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Whom the programs become where the starter is root: two ids that no
// distribution gives to anybody, apart from each other and from the block of the
// machines, so that neither the other nor a workload has the user of one.
const (
	GuardUID = 65520
	RelayUID = 65521
)

// Launcher starts programs. The zero value is right on a kernel with Landlock.
type Launcher struct {
	// NoLandlock says that this kernel is known to have no Landlock. Without this
	// word a process does not begin on such a kernel.
	NoLandlock bool
	// Executable is executed in the program's place, for tests that start another
	// build of it; nil is the one that this package holds. The caller closes it.
	Executable *os.File
	// UID is whom the process becomes where the starter is root, user and group; 0
	// is GuardUID or RelayUID.
	UID int
	// Patience is how long a process may take until it listens; 0 is 10 s.
	Patience time.Duration
}

// StartError is a process that did not begin. Nothing of it is left.
type StartError struct {
	Program Program
	Err     error
	Said    string // on its standard error, at most 8 KiB
}

// Error is one line.
func (e *StartError) Error() string {
	s := string(e.Program) + ": expected to listen, got: " + e.Err.Error()
	if said := strings.TrimSpace(e.Said); said != "" {
		s += ": " + strings.ReplaceAll(said, "\n", "; ")
	}
	return s
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Guard starts a guard with its configuration, of at most 1 MiB, on a listener
// (TCP or UNIX) and a log. The caller keeps its ends of both and closes them when
// it likes. The context bounds the start, not the life.
//
// Blocks: until the first line of the log is written, which says that it
// listens; at most Patience.
// Errors: *MissingError, *StartError.
func (l Launcher) Guard(ctx context.Context, config []byte, listener, log *os.File) (*Process, error) {
	return l.start(ctx, GuardProgram, GuardUID, config, listener, log)
}

// Relay starts a relay; all else is as for Guard.
func (l Launcher) Relay(ctx context.Context, config []byte, listener, log *os.File) (*Process, error) {
	return l.start(ctx, RelayProgram, RelayUID, config, listener, log)
}

// Guard is Launcher.Guard on a kernel with Landlock.
func Guard(ctx context.Context, config []byte, listener, log *os.File) (*Process, error) {
	return Launcher{}.Guard(ctx, config, listener, log)
}

// Relay is Launcher.Relay on a kernel with Landlock.
func Relay(ctx context.Context, config []byte, listener, log *os.File) (*Process, error) {
	return Launcher{}.Relay(ctx, config, listener, log)
}

// maxLine bounds the first line of a log.
const maxLine = 64 << 10

func (l Launcher) start(ctx context.Context, program Program, uid int, config []byte, listener, log *os.File) (*Process, error) {
	if ctx.Err() != nil {
		return nil, &StartError{Program: program, Err: context.Cause(ctx)}
	}
	binary, err := l.Executable, error(nil)
	if binary == nil {
		if binary, err = executable(program); err != nil {
			return nil, err
		}
	}
	if l.UID != 0 {
		uid = l.UID
	}
	p, line, err := l.spawn(program, binary, uid, config, listener, log)
	if err != nil {
		return nil, &StartError{Program: program, Err: err}
	}
	if p.Start, err = l.firstLine(ctx, line); err == nil {
		return p, nil
	}
	if errors.Is(err, errNoLine) {
		// It is ending by itself, and what it says is why.
		p.awaits(ctx.Done())
	}
	_ = p.command.Process.Kill()
	if !p.awaits(nil) {
		err = errors.Join(err, &StopError{p.PID})
	}
	if p.Err() != nil && errors.Is(err, errNoLine) {
		err = p.Err()
	}
	return nil, &StartError{program, err, p.Said()}
}

// spawn makes the process. The file answered is the pipe of its first line.
func (l Launcher) spawn(program Program, binary *os.File, uid int, config []byte, listener, log *os.File) (_ *Process, line *os.File, err error) {
	var opened []*os.File // ended here, or passed on
	defer func() {
		for _, f := range opened {
			f.Close()
		}
	}()
	if listener == nil || log == nil {
		return nil, nil, errors.New("no listener or no log")
	}
	inputs, err := sealed("config", config, 0)
	if err != nil {
		return nil, nil, err
	}
	opened = append(opened, inputs)
	passed := []*os.File{inputs} // from descriptor 3 on
	for _, f := range []*os.File{log, listener} {
		d, err := duplicate(f)
		if err != nil {
			return nil, nil, err
		}
		opened, passed = append(opened, d), append(passed, d)
	}
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		opened = append(opened, r, w)
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	exe, err := above(binary, append(theirs[:], passed...))
	if err != nil {
		return nil, nil, err
	}
	defer exe.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/fd/" + strconv.Itoa(int(exe.Fd())), Args: []string{string(program)}, Dir: "/",
		Env:   []string{},
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		ExtraFiles:  passed,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Geteuid() == 0 {
		id := strconv.Itoa(uid)
		cmd.Args = append(cmd.Args, "--uid", id, "--gid", id)
	}
	if l.NoLandlock {
		cmd.Args = append(cmd.Args, "--no-landlock")
	}
	if err := startPatient(cmd); err != nil {
		return nil, nil, err
	}
	opened = append(passed, theirs[:]...)
	p := &Process{PID: cmd.Process.Pid, command: cmd, life: ours[0], done: make(chan struct{}), said: new(tail)}
	go p.reap(ours[2])
	return p, ours[1], nil
}

// slack is how much later than it asked for a sleep of the process may end.
const slack = 5 * time.Millisecond

// startPatient starts a process that wakes up no sooner than it must. The Go
// runtime has a thread that looks after the others and asks for sleeps of 20
// microseconds as soon as there is anything to do; a proxy, which waits several
// times in each request, spent a sixth of its time on it. None of a proxy's own
// waits is shorter than seconds. A process has its slack from the thread that
// made it, and the runtime's thread is there before any line of the program is.
func startPatient(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_TIMERSLACK", err)
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // what this thread began with
	return cmd.Start()
}

// duplicate is a file of our own for what the caller's leads to. Its Fd, which
// exec calls, leaves the mode alone. That of a socket's file makes the socket
// blocking, for everybody who has it: a guard that serves this very listener
// already would hang in its next accept.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// above duplicates a file to a number well above those of the others: while they
// are put into their places in the new process, none of them may come to lie on
// the one that is about to be executed.
func above(f *os.File, others []*os.File) (*os.File, error) {
	highest := uintptr(0)
	for _, o := range others {
		highest = max(highest, o.Fd())
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, int(highest)+len(others)+1)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// firstLine waits for the line, and closes the pipe.
func (l Launcher) firstLine(ctx context.Context, pipe *os.File) ([]byte, error) {
	defer pipe.Close()
	patience := l.Patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	bound, cancel := context.WithTimeoutCause(ctx, patience, errors.New("nothing within "+patience.String()))
	defer cancel()
	stop := context.AfterFunc(bound, func() { _ = pipe.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReaderSize(pipe, maxLine).ReadSlice('\n')
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, context.Cause(bound)
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errors.New("a first line of more than " + strconv.Itoa(maxLine) + " bytes")
	}
	return nil, errNoLine
}
