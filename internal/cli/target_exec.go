package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
)

// programTime bounds how long a program that is started for a test may take
// until it has said what it is, and from SIGTERM to SIGKILL; buildTime until it
// accepts: what is started may have to be compiled first, once.
const (
	programTime = 10 * time.Second
	buildTime   = 2 * time.Minute
)

// program serves a provider for one test, in a directory that goes with it.
type program struct {
	path    string
	args    []string
	dir     string
	options client.Options
	build   time.Duration // until it accepts
	limit   time.Duration

	mu     sync.Mutex // a restart that nobody waits for any more meets the end
	closed bool
	run    *execution
	client *client.Client
}

// openProgram starts a program and makes what it serves a target.
// Errors: *argument.Error; what kept it from being met, with the last that it
// said.
func openProgram(ctx context.Context, path string, f *conformanceFlags, patience time.Duration) (conformance.Target, func(), error) {
	found, err := exec.LookPath(path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil || path == "" {
		return conformance.Target{}, nil, argument.Unexpected("TARGET", "exec: and a program that can be run", path)
	}
	dir, err := socketDir()
	if err != nil {
		return conformance.Target{}, nil, err
	}
	p := &program{path: found, args: f.args, dir: dir, build: min(patience, buildTime), limit: min(patience, programTime)}
	p.options = client.Options{Base: "unix:" + filepath.Join(dir, "socket"), Token: newToken()}
	target, closeLab, err := p.open(ctx, f)
	if err != nil {
		p.close()
		return conformance.Target{}, nil, err
	}
	target.Restart, target.Wire = p.restart, byHand(p.options)
	return target, func() { p.close(); closeLab() }, nil
}

func (p *program) open(ctx context.Context, f *conformanceFlags) (conformance.Target, func(), error) {
	if err := os.Mkdir(p.state(), 0o700); err != nil {
		return conformance.Target{}, nil, err
	}
	if err := p.start(ctx); err != nil {
		return conformance.Target{}, nil, err
	}
	return remoteTarget(ctx, p.client, f, true)
}

// socketDir is a private directory whose name leaves room for a socket's.
func socketDir() (string, error) {
	const name = "checkfu-exec-*"
	dir, err := os.MkdirTemp("", name)
	if err == nil && len(dir) > maxSocketPath-len("/socket") {
		_ = os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", name)
	}
	return dir, err
}

func (p *program) socket() string { return strings.TrimPrefix(p.options.Base, "unix:") }
func (p *program) state() string  { return filepath.Join(p.dir, "state") }

// start begins a run and waits until it accepts and has said what it is.
func (p *program) start(ctx context.Context) error {
	run, err := execute(p.path, p.args,
		envListen+"="+p.options.Base, envToken+"="+p.options.Token, envState+"="+p.state())
	if err != nil {
		return err
	}
	p.run = run
	if err := p.accepts(ctx); err != nil {
		return run.said(err, p.options.Token)
	}
	if p.client, err = meet(ctx, p.options, p.limit); err != nil {
		return run.said(err, p.options.Token)
	}
	return nil
}

// accepts waits for the first connection.
func (p *program) accepts(ctx context.Context) error {
	late := time.NewTimer(p.build)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", p.socket()); err == nil {
			return c.Close()
		}
		select {
		case <-p.run.ended:
			return fmt.Errorf("%s ended (%v) before it listened at $%s", p.path, p.run.state, envListen)
		case <-late.C:
			return fmt.Errorf("%s did not listen at $%s (%s) within %v", p.path, envListen, p.options.Base, p.build)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// restart ends the program as a crash would and starts it on the same state.
func (p *program) restart(ctx context.Context) (sandbox.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the test is over")
	}
	p.run.kill()
	p.leave()
	if err := os.Remove(p.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p.client, nil
}

// leave closes the client, if there is one.
func (p *program) leave() {
	if p.client != nil {
		_ = p.client.Close()
		p.client = nil
	}
}

// close ends everything that belongs to the test.
func (p *program) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.leave()
	if p.run != nil {
		p.run.end(p.limit)
	}
	_ = os.RemoveAll(p.dir)
}

// execution is one run of a program, in a process group of its own.
type execution struct {
	pid    int
	output lastWords
	ended  chan struct{}    // closed when nothing of the group is left
	state  *os.ProcessState // after ended

	reaping sync.Mutex // so that no signal meets another's number
}

// execute starts a program. Both its outputs are kept, the last of them.
func execute(path string, args []string, env ...string) (*execution, error) {
	e := &execution{ended: make(chan struct{})}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &e.output, &e.output
	cmd.WaitDelay = time.Second // who left the group may hold the pipes
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		// The death that Pdeathsig means is this thread's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			e.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		// Its number stays its own until it is waited for.
		for unix.Waitid(unix.P_PID, e.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		e.signal(syscall.SIGKILL) // what it left behind in its group
		e.reaping.Lock()
		defer e.reaping.Unlock()
		_ = cmd.Wait()
		e.state = cmd.ProcessState
		close(e.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// signal reaches the whole group, while it is there.
func (e *execution) signal(s syscall.Signal) {
	e.reaping.Lock()
	defer e.reaping.Unlock()
	if !e.over() {
		_ = syscall.Kill(-e.pid, s)
	}
}

// kill is a crash.
func (e *execution) kill() {
	e.signal(syscall.SIGKILL)
	<-e.ended
}

// end asks the program to end, and ends it when limit is over.
func (e *execution) end(limit time.Duration) {
	e.signal(syscall.SIGTERM)
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-e.ended:
	case <-late.C:
		e.kill()
	}
}

func (e *execution) over() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// said adds what the program said last to an error, without the token.
func (e *execution) said(err error, token string) error {
	words := strings.ReplaceAll(e.output.String(), token, "[token]")
	if words == "" {
		return err
	}
	return fmt.Errorf("%w; it said last: %s", err, words)
}

// lastWords keeps the end of what was written.
type lastWords struct {
	mu   sync.Mutex
	data []byte
}

// Write never fails.
func (w *lastWords) Write(p []byte) (int, error) {
	const most = 4096
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data = append(w.data, p[max(0, len(p)-most):]...)
	w.data = append([]byte(nil), w.data[max(0, len(w.data)-most):]...)
	return len(p), nil
}

// String is the last few lines.
func (w *lastWords) String() string {
	const lines = 5
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Split(strings.TrimSpace(string(w.data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
