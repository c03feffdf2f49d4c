package main

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/checkfu/checkfu/sandbox"
)

// running is a command in a machine of its own, with three pipes. Whoever starts
// it kills it in the end, also where it ended by itself.
type running struct {
	i                     *instance
	guest                 *exec.Cmd
	control               *os.File
	stdin, stdout, stderr *os.File
	started               chan error    // one: nil, or why it could not be
	ended                 chan struct{} // closed once it has ended; exit is set then, if anybody knows
	exit                  *sandbox.Exit
	over                  chan struct{} // closed once nothing in the machine lives
	killed                atomic.Bool
}

// start runs a program in i. With linger its descendants may outlive it.
// Errors: those of op.
func (i *instance) start(ctx context.Context, op sandbox.Operation, p sandbox.ProcessRequest, linger bool) (*running, error) {
	r, err := i.launch(p, linger)
	if err != nil {
		return nil, fault(op, "", err)
	}
	select {
	case err = <-r.started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		return r, nil
	}
	err = errors.Join(err, r.kill(context.WithoutCancel(ctx)))
	r.close()
	if why := refusal(""); errors.As(err, &why) && why == notFound {
		return nil, sandbox.Failed(op, sandbox.ReasonNotFound, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, sandbox.Failed(op, sandbox.ReasonStartFailed, err)
}

func (i *instance) launch(p sandbox.ProcessRequest, linger bool) (_ *running, err error) {
	r := &running{i: i, started: make(chan error, 1), ended: make(chan struct{}), over: make(chan struct{})}
	var inside []*os.File // 0, 1, 2, order, status, control
	defer func() {
		for _, file := range inside {
			file.Close()
		}
		if err != nil {
			r.close()
		}
	}()
	pipe := func(writes bool) (*os.File, error) {
		in, out, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if writes {
			inside = append(inside, in)
			return out, nil
		}
		inside = append(inside, out)
		return in, nil
	}
	var told, status *os.File
	for _, end := range []struct {
		file   **os.File
		writes bool
	}{{&r.stdin, true}, {&r.stdout, false}, {&r.stderr, false}, {&told, true}, {&status, false}, {&r.control, true}} {
		if *end.file, err = pipe(end.writes); err != nil {
			return nil, err
		}
	}
	for _, file := range inside[:3] { // so that it can open /dev/stderr again
		if err := file.Chown(owner, owner); err != nil {
			return nil, err
		}
	}
	limits := i.value.Profile.ResourceLimits
	o := order{
		Root: i.base + "/root", Binds: i.binds, Owner: owner, Rootless: rootless, Linger: linger,
		MaxProcesses: limits.MaxProcesses, DiskBytes: limits.DiskBytes, Program: p,
	}
	r.guest = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{stageMachine}, Env: []string{}, Dir: "/",
		Stdin: inside[0], Stdout: inside[1], Stderr: inside[2], ExtraFiles: inside[3:],
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		},
	}
	if rootless {
		r.guest.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		r.guest.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		r.guest.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.gone {
		return nil, errors.Join(errLost, told.Close(), status.Close())
	}
	if err := r.guest.Start(); err != nil {
		return nil, errors.Join(err, told.Close(), status.Close())
	}
	i.running[r] = true
	go func() {
		_ = gob.NewEncoder(told).Encode(o) // to one that was killed, in vain
		told.Close()
	}()
	go r.follow(status)
	return r, nil
}

// errLost says that the instance has ended.
var errLost = errors.New("the instance has ended")

// follow takes down what process 1 tells, until nothing in the machine lives.
func (r *running) follow(status *os.File) {
	lines := bufio.NewScanner(status)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		number, _ := strconv.Atoi(rest)
		switch what {
		case "started":
			r.started <- nil
		case "failed":
			reason, why, _ := strings.Cut(rest, " ")
			r.started <- fmt.Errorf("%w: %s", refusal(reason), why)
		case "exited":
			exit := sandbox.Exited(int64(number))
			r.exit = &exit
		case "signaled":
			exit := sandbox.Signaled(signalName(number))
			r.exit = &exit
		}
		if r.exit != nil {
			break
		}
	}
	if r.exit != nil {
		close(r.ended)
	}
	_ = r.guest.Wait()
	status.Close()
	select {
	case r.started <- errors.New("it was ended"):
	default:
	}
	r.i.mu.Lock()
	delete(r.i.running, r)
	r.i.mu.Unlock()
	if r.exit == nil {
		close(r.ended)
	}
	close(r.over)
}

// signal asks; one that has ended does not hear it.
func (r *running) signal(number syscall.Signal) { _, _ = r.control.Write([]byte{byte(number)}) }

// kill ends everything in the machine, and returns once nothing lives.
func (r *running) kill(ctx context.Context) error {
	r.killed.Store(true)
	_ = r.guest.Process.Kill() // of process 1; it fails only where that has ended
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *running) close() {
	for _, file := range []*os.File{r.stdin, r.stdout, r.stderr, r.control} {
		if file != nil {
			file.Close()
		}
	}
}

var signalNames = map[int]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV",
	12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN",
	22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS", 34: "RTMIN",
}

func signalName(number int) string {
	if known, ok := signalNames[number]; ok {
		return "SIG" + known
	}
	return "SIGRTMIN+" + strconv.Itoa(number-34)
}
