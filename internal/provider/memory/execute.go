package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Execute runs one command. It takes simulated time only, so it returns at
// once however long the command sleeps; if the Clock is an Advancer it has
// then gone on by as much.
// Errors: InstanceNotFound; LifecycleConflict; CapabilityUnavailable (the
// timeout is over max_duration_seconds); OutputLimitExceeded; OperationFailed
// with start_failed (no such program or directory) or instance_lost
// (destroyed meanwhile).
// Source: contract "The operations", row execute.
func (p *Provider) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	const op = sandbox.OpExecute
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return sandbox.Settlement{}, err
	}
	defer leave()
	if err := c.Validate(); err != nil {
		return sandbox.Settlement{}, invalid(op, err)
	}
	if longest := i.value.Profile.ResourceLimits.MaxDurationSeconds; c.TimeoutSeconds > longest {
		return sandbox.Settlement{}, sandbox.Unavailable(op, sandbox.RequireResources,
			"timeout_seconds "+strconv.FormatInt(c.TimeoutSeconds, 10), "max_duration_seconds "+strconv.FormatInt(longest, 10))
	}
	job := newJob(i.m, p.clock, time.Duration(c.TimeoutSeconds)*time.Second)
	var over atomic.Pointer[sandbox.Stream]
	output := func(s sandbox.Stream) *capture {
		return &capture{limit: c.OutputLimitBytes, over: func() {
			over.CompareAndSwap(nil, &s)
			job.kill("SIGKILL")
		}}
	}
	stdout, stderr := output(sandbox.StreamStdout), output(sandbox.StreamStderr)
	call, argv := i.call(job, c.Executable, c.Arguments, c.WorkingDirectory, c.Environment, bytes.NewReader(c.Stdin), stdout, stderr)
	program, args, err := i.admit(call, argv)
	if err != nil {
		return sandbox.Settlement{}, startFailed(op, err)
	}

	started := p.clock.Now()
	i.start(job)
	defer i.finish(job)
	stop := context.AfterFunc(ctx, func() { job.kill("SIGKILL") })
	code := call.run(program, argv[0], args)
	stop()

	s := sandbox.Settlement{
		StartedAt: sandbox.At(started), FinishedAt: sandbox.At(started.Add(call.stage.elapsed)),
		Stdout: stdout.data, Stderr: stderr.data,
	}
	if a, ok := p.clock.(Advancer); ok && call.stage.elapsed >= time.Millisecond {
		a.Advance(call.stage.elapsed.Truncate(time.Millisecond))
	}
	switch call.stage.stop {
	case errKilled:
		switch {
		case over.Load() != nil:
			return sandbox.Settlement{}, sandbox.OverLimit(*over.Load(), c.OutputLimitBytes)
		case ctx.Err() != nil:
			return sandbox.Settlement{}, ctx.Err()
		}
		return sandbox.Settlement{}, sandbox.Failed(op, sandbox.ReasonInstanceLost, nil)
	case errDeadline:
		s.TimedOut = true
	case errSignal:
		s.Exit = sandbox.Signaled(call.stage.signal)
	default:
		s.Exit = sandbox.Exited(int64(code))
	}
	return s, nil
}

// call makes the first program's call of a job. Its streams are bound to the
// job's first stage.
func (i *instance) call(j *job, executable string, arguments []string, directory string, environment map[string]string, in io.Reader, out, errs io.Writer) (*Call, []string) {
	st := &stage{job: j}
	env := maps.Clone(environment)
	if env == nil {
		env = map[string]string{}
	}
	return &Call{
		Name: executable, Env: env, Dir: directory, stage: st,
		Stdin: reader{st, in}, Stdout: writer{st, out}, Stderr: writer{st, errs},
	}, append([]string{executable}, arguments...)
}

// admit finds the program and checks the directory before anything starts.
func (i *instance) admit(c *Call, argv []string) (Program, []string, error) {
	n, _, err := i.m.tree.lookup(c.Dir, true)
	switch {
	case err == errNotFound: // the directory, not the program
		return nil, nil, errNoDirectory
	case err != nil:
		return nil, nil, err
	case n.kind != directory:
		return nil, nil, errNotDirectory
	case n.mode&0o100 == 0:
		return nil, nil, errDenied
	}
	return c.resolve(argv)
}

// errNoDirectory is a working directory that is not there.
var errNoDirectory = errors.New("no such working directory")

// startFailed tells a program that is not there from one that is and cannot
// run.
func startFailed(op sandbox.Operation, err error) error {
	if errors.Is(err, errNotFound) {
		return sandbox.Failed(op, sandbox.ReasonNotFound, err)
	}
	return sandbox.Failed(op, sandbox.ReasonStartFailed, err)
}
