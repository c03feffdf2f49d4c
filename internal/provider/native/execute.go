package native

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// teardownBound is how long the end of a command's tree may take. A machine
// that does not settle within it is lost.
const teardownBound = sandbox.RollbackSeconds * time.Second

// Execute runs one command to completion. Its streams are bounded while it
// runs: a command that floods is ended at the limit, not collected first.
// Whatever happens, nothing that descends from it lives on afterwards.
func (p *Provider) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	if err := c.Validate(); err != nil {
		return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInvalidRequest, err)
	}
	in, err := p.find(sandbox.OpExecute, id)
	if err != nil {
		return sandbox.Settlement{}, err
	}
	if err := in.checkModel(c.Environment); err != nil {
		return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInvalidRequest, err)
	}
	if err := in.fenced(sandbox.OpExecute); err != nil {
		return sandbox.Settlement{}, err
	}
	pipes, err := openPipes()
	if err != nil {
		return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonProviderError, err)
	}
	defer pipes.close()
	m, leave, err := in.enter(ctx, sandbox.OpExecute)
	if err != nil {
		return sandbox.Settlement{}, err
	}

	started := p.opt.Now()
	settled := sandbox.Settlement{StartedAt: sandbox.At(started)}
	// The timer runs from before the start, so that a program that is slow to
	// load cannot stretch its bound.
	running, cancel := context.WithTimeout(ctx, time.Duration(c.TimeoutSeconds)*time.Second)
	defer cancel()
	proc, err := m.Exec(running, machine.Command{
		Argv: append([]string{c.Executable}, c.Arguments...), Env: in.environment(c.Environment), Dir: c.WorkingDirectory,
		Stdin: pipes.guest[0], Stdout: pipes.guest[1], Stderr: pipes.guest[2],
	})
	leave()
	if err != nil {
		return sandbox.Settlement{}, startFailed(sandbox.OpExecute, c.Executable, m, err)
	}
	pipes.closeGuest()

	go feed(pipes.host[0], c.Stdin)
	flooded := make(chan sandbox.Stream, 2)
	out := collect(pipes.host[1], c.OutputLimitBytes, sandbox.StreamStdout, flooded)
	errs := collect(pipes.host[2], c.OutputLimitBytes, sandbox.StreamStderr, flooded)

	exit, over, waitErr := await(running, proc, flooded)
	// From here on the caller's patience does not matter: the tree must go.
	anyway := context.WithoutCancel(ctx)
	if err := in.killTree(anyway, proc); err != nil && m.Alive() == nil {
		return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInstanceLost, err)
	}
	ending, stop := context.WithTimeout(anyway, teardownBound)
	defer stop()
	// Every holder of the pipes is dead, so end of file is a moment away.
	stdout, stderr, err := drained(ending, out, errs)
	if err != nil {
		return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInstanceLost, err)
	}
	settled.FinishedAt = p.since(started)
	settled.Stdout, settled.Stderr = stdout.bytes, stderr.bytes
	switch {
	case over != "" || stdout.over || stderr.over:
		if over == "" {
			over = sandbox.StreamStdout
			if !stdout.over {
				over = sandbox.StreamStderr
			}
		}
		return sandbox.Settlement{}, sandbox.OverLimit(over, c.OutputLimitBytes)
	case waitErr == nil:
		settled.Exit = exitOf(exit)
	case ctx.Err() != nil:
		return sandbox.Settlement{}, ctx.Err()
	case running.Err() != nil:
		settled.TimedOut = true
	default:
		return sandbox.Settlement{}, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInstanceLost, errors.Join(waitErr, m.Alive()))
	}
	return settled, nil
}

// since is the time now, never before started: a host's clock can be set back
// while a command runs, and the result would then contradict itself.
func (p *Provider) since(started time.Time) sandbox.Timestamp {
	return sandbox.At(started.Add(max(0, p.opt.Now().Sub(started))))
}

// await blocks until the program ended, its time is up, or a stream flooded.
func await(ctx context.Context, proc machine.Process, flooded <-chan sandbox.Stream) (machine.Exit, sandbox.Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var over sandbox.Stream
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case over = <-flooded:
			cancel()
		case <-ctx.Done():
		}
	}()
	exit, err := proc.Wait(ctx)
	cancel()
	<-watched
	return exit, over, err
}

func exitOf(e machine.Exit) sandbox.Exit {
	if e.Signal != "" {
		return sandbox.Signaled(e.Signal)
	}
	return sandbox.Exited(int64(e.Code))
}

// startFailed tells a program that could not be started (the caller's mistake)
// from a machine that is gone.
func startFailed(op sandbox.Operation, executable string, m machine.Machine, err error) error {
	var start *machine.StartError
	if errors.As(err, &start) {
		reason := sandbox.ReasonStartFailed
		if start.Path == executable && errors.Is(start.Err, fs.ErrNotExist) {
			reason = sandbox.ReasonNotFound
		}
		return sandbox.FailedAt(op, start.Path, reason, start.Err)
	}
	if gone := m.Alive(); gone != nil {
		return sandbox.Failed(op, sandbox.ReasonInstanceLost, errors.Join(err, gone))
	}
	return sandbox.Failed(op, sandbox.ReasonProviderError, err)
}

// environment is the image's own, then the provider's defaults, then the
// caller's, in one sorted list.
func (in *instance) environment(caller map[string]string) []string {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"USER": "checkfu",
	}
	for _, entry := range in.env {
		if key, value, ok := strings.Cut(entry, "="); ok && sandbox.CheckEnvironment(key, value) == nil {
			env[key] = value
		}
	}
	env["HOME"] = sandbox.HomePath
	if in.guarded() {
		maps.Copy(env, proxies())
	}
	in.addModel(env)
	for key, value := range caller {
		env[key] = value
	}
	list := make([]string, 0, len(env))
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	sort.Strings(list)
	return list
}

// pipes are the three streams of one program: real pipes, so that end of file,
// half-close and backpressure are the kernel's own.
type pipes struct {
	guest [3]*os.File // the program's ends
	host  [3]*os.File // ours
}

func openPipes() (*pipes, error) {
	p := &pipes{}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		p.guest[i], p.host[i] = w, r
		if i == 0 {
			p.guest[i], p.host[i] = r, w
		}
	}
	return p, nil
}

func (p *pipes) closeGuest() {
	for i, f := range p.guest {
		if f != nil {
			f.Close()
			p.guest[i] = nil
		}
	}
}

func (p *pipes) close() {
	p.closeGuest()
	for _, f := range p.host {
		if f != nil {
			f.Close()
		}
	}
}

// feed writes the whole standard input and half-closes. A program that does
// not read it ends the write by closing its end.
func feed(w *os.File, input []byte) {
	w.Write(input)
	w.Close()
}

// collected is one stream up to its limit.
type collected struct {
	bytes []byte
	over  bool
	err   error
}

// collect reads a stream in the background, keeps at most limit bytes and says
// once when there was one more. It then goes on reading and keeps nothing, so
// that nothing in the guest blocks on it while it is being ended.
func collect(r *os.File, limit int64, name sandbox.Stream, flooded chan<- sandbox.Stream) <-chan collected {
	done := make(chan collected, 1)
	go func() {
		var c collected
		c.bytes, c.err = io.ReadAll(io.LimitReader(r, limit))
		if c.err == nil {
			var extra int64
			extra, c.err = io.CopyN(io.Discard, r, 1)
			if extra > 0 {
				c.over = true
				flooded <- name
				_, c.err = io.Copy(io.Discard, r)
			} else if c.err == io.EOF {
				c.err = nil
			}
		}
		done <- c
	}()
	return done
}

// drained waits for both streams to end.
func drained(ctx context.Context, out, errs <-chan collected) (stdout, stderr collected, err error) {
	for _, s := range []struct {
		from <-chan collected
		to   *collected
	}{{out, &stdout}, {errs, &stderr}} {
		select {
		case *s.to = <-s.from:
		case <-ctx.Done():
			return stdout, stderr, errors.New("an output stream did not end with the command's processes")
		}
		err = errors.Join(err, s.to.err)
	}
	return stdout, stderr, err
}
