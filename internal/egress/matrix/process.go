package matrix

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/checkfu/checkfu/internal/egress/launch"
)

// process is a guard that runs.
type process struct {
	pid  int
	done <-chan struct{}
	stop func(context.Context) error
	err  func() error // how it ended, once done: nil where it ended well, or has not
}

// starter starts a guard on the thread that calls, so in its namespaces.
// Errors: *launch.MissingError; *launch.StartError.
type starter func(ctx context.Context, config []byte, listener, log *os.File) (*process, error)

// product starts the guard that ships.
func product(ctx context.Context, config []byte, listener, log *os.File) (*process, error) {
	p, err := launch.Guard(ctx, config, listener, log)
	if err != nil {
		return nil, err
	}
	return &process{pid: p.PID, done: p.Done(), stop: p.Stop, err: p.Err}, nil
}

// altered starts this very binary as a guard with faults, under the same
// descriptors and the same confinement.
func altered(names string) starter {
	return func(ctx context.Context, config []byte, listener, log *os.File) (*process, error) {
		said := &tail{}
		p, err := spawn(ctx, names, config, listener, log, said)
		if err != nil {
			return nil, &launch.StartError{Program: variantName, Err: err, Said: said.String()}
		}
		return p, nil
	}
}

func spawn(ctx context.Context, names string, config []byte, listener, log *os.File, said *tail) (*process, error) {
	life, ours, err := os.Pipe() // it ends with us
	if err != nil {
		return nil, err
	}
	defer life.Close()
	line, theirs, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer theirs.Close()
	defer line.Close()
	in, feed, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer in.Close()
	id := strconv.Itoa(launch.GuardUID)
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{variantName, names, "--uid", id, "--gid", id}, Dir: "/", Env: []string{},
		Stdin: life, Stdout: theirs, Stderr: said, ExtraFiles: []*os.File{in, log, listener},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   time.Second,
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		feed.Close()
		return nil, err
	}
	done := make(chan struct{})
	var ended error // once done
	go func() {
		ended = cmd.Wait()
		ours.Close()
		close(done)
	}()
	p := &process{pid: cmd.Process.Pid, done: done, stop: func(ctx context.Context) error {
		cmd.Process.Signal(syscall.SIGTERM)
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-done:
			return nil
		case <-late.C:
		case <-ctx.Done():
		}
		cmd.Process.Kill()
		<-done
		return nil
	}, err: func() error {
		select {
		case <-done:
			return ended
		default:
			return nil
		}
	}}
	go func() {
		feed.Write(config) // a guard that does not read it does not begin
		feed.Close()
	}()
	theirs.Close()
	line.SetReadDeadline(time.Now().Add(patience))
	defer context.AfterFunc(ctx, func() { line.SetReadDeadline(time.Now()) })()
	if _, err := bufio.NewReader(line).ReadBytes('\n'); err != nil {
		if !errors.Is(err, io.EOF) { // else it ends by itself, and how is why
			cmd.Process.Kill()
		}
		select {
		case <-done:
		case <-time.After(patience):
			cmd.Process.Kill()
			<-done
		}
		return nil, errors.Join(err, ended)
	}
	return p, nil
}

// tail keeps the first bytes of what a program says.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 8 << 10
	t.kept = append(t.kept, p[:min(len(p), most-len(t.kept))]...)
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }
