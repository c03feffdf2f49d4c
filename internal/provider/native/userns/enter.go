package userns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// EnterError is a step on the way in that could not be taken.
type EnterError struct {
	Step string
	Err  error
	Said string // by the program that took it
}

// Error is one line.
func (e *EnterError) Error() string {
	s := e.Step + ": " + e.Err.Error()
	if said := strings.TrimSpace(e.Said); said != "" {
		s += ": " + strings.ReplaceAll(said, "\n", "; ")
	}
	return s
}

// Unwrap returns the cause.
func (e *EnterError) Unwrap() error { return e.Err }

// tools map ids with root's power, as /etc/subuid and /etc/subgid allow it.
var tools = []struct{ program, file string }{{"newuidmap", "/etc/subuid"}, {"newgidmap", "/etc/subgid"}}

// tryBound is how long a try may take on a host that is busy.
const tryBound = 20 * time.Second

// Lacks says what this host lacks for this user, in plain words, each with what
// to do. Where nothing seems to, it tries. Inside it lacks nothing.
// Blocks: some 30 ms, at most 20 s.
func Lacks() []machine.Lack {
	if inside {
		return nil
	}
	if os.Geteuid() == 0 {
		return []machine.Lack{{What: "it is run as root", Remedy: "root has machines whose every limit holds: use the provider native"}}
	}
	var lacks []machine.Lack
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			lacks = append(lacks, machine.Lack{What: t.program + " is not there", Remedy: "have root install the package uidmap (shadow-utils on Fedora)"})
		}
		_, err := blockOf(t.file, userName(), strconv.Itoa(os.Getuid()))
		if none, ok := errors.AsType[*noBlock](err); ok {
			lacks = append(lacks, machine.Lack{What: none.Error(), Remedy: "have root add the line " + none.line + " to " + none.path})
		} else if err != nil {
			lacks = append(lacks, machine.Lack{What: err.Error(), Remedy: "make " + t.file + " readable"})
		}
	}
	if len(lacks) > 0 {
		return lacks
	}
	var said bytes.Buffer
	code, err := start(context.Background(), []string{tryOnly}, nil, nil, &said)
	if err == nil && code != 0 {
		err = errors.New(strings.TrimPrefix(strings.TrimSpace(said.String()), "checkfu: "))
	}
	if err != nil {
		lacks = append(lacks, machine.Lack{What: "no namespace for you: " + strings.ReplaceAll(err.Error(), "\n", "; "), Remedy: remedy()})
	}
	return lacks
}

// remedy names the switch by which this host forbids it, where one is known.
func remedy() string {
	for _, s := range []struct{ path, off, name string }{
		{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for this program with the rule userns"},
	} {
		if text, err := os.ReadFile(s.path); err == nil && strings.TrimSpace(string(text)) == s.off {
			return "have root set the sysctl " + s.name
		}
	}
	return "allow user namespaces, and in them mounts, where this program runs"
}

// Run starts this program again with args inside, and passes on every signal that is
// for a person to send. It returns its exit code once it has ended; one that a signal
// ended has 128 and the signal's number.
// Errors: *EnterError; nothing of args was done then.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	return start(ctx, args, stdin, stdout, stderr)
}

func start(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	lifeRead, lifeWrite, err := os.Pipe()
	if err != nil {
		return 0, &EnterError{Step: "pipe", Err: err}
	}
	defer lifeWrite.Close() // its end is the other's end
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{gateName}, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.ExtraFiles = []*os.File{lifeRead}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		// A terminal's Ctrl-C goes to the user's process alone, which passes it on:
		// else it would come twice, and the second one ends a machine at once.
		Setsid: true,
		// The kernel's signal is for the end of a thread, so this one has to stay.
		Pdeathsig: unix.SIGKILL,
	}
	keepPairs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	passed := []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}
	if !signal.Ignored(unix.SIGHUP) { // nohup
		passed = append(passed, unix.SIGHUP)
	}
	signal.Notify(signals, passed...)
	defer signal.Stop(signals)
	err = cmd.Start()
	lifeRead.Close()
	if err != nil {
		return 0, &EnterError{Step: "make the namespaces", Err: err}
	}
	ended := make(chan error, 1)
	if err := mapIDs(ctx, cmd.Process.Pid); err != nil {
		lifeWrite.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return 0, err
	}
	if _, err := lifeWrite.Write([]byte{1}); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return 0, &EnterError{Step: "open the gate", Err: err}
	}
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // one that has just ended takes none
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-ended
			return 0, &EnterError{Step: "wait", Err: context.Cause(ctx)}
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
					return 128 + int(ws.Signal()), nil
				}
				return exit.ExitCode(), nil
			}
			if err != nil {
				return 0, &EnterError{Step: "wait", Err: err}
			}
			return 0, nil
		}
	}
}

// mapIDs maps, inside, 0 to the user and their group, and Base and the Size after it to
// the user's blocks.
func mapIDs(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, tryBound)
	defer cancel()
	for i, t := range tools {
		b, err := blockOf(t.file, userName(), strconv.Itoa(os.Getuid()))
		if err != nil {
			return &EnterError{Step: "map ids", Err: err}
		}
		own := []int{os.Geteuid(), os.Getegid()}[i]
		cmd := exec.CommandContext(ctx, t.program, strconv.Itoa(pid),
			"0", strconv.Itoa(own), "1", fmt.Sprint(Base), fmt.Sprint(b.first), fmt.Sprint(Size))
		if said, err := cmd.CombinedOutput(); err != nil {
			return &EnterError{Step: t.program, Err: err, Said: string(said)}
		}
	}
	return nil
}
