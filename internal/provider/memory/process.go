package memory

import (
	"context"
	"io"

	"github.com/checkfu/checkfu/sandbox"
)

// process is one live process. Its one goroutine ends with the program.
type process struct {
	job      *job
	input    *pipe
	output   *pipe
	errs     lossy
	evidence sandbox.Evidence
	done     chan struct{} // closed when exit is set
	exit     sandbox.Exit
}

// OpenProcess starts a live process. It runs in real time as far as its
// streams go; its sleeps wait for the Clock.
// Errors: InstanceNotFound; LifecycleConflict (state; process_already_open);
// OperationFailed with start_failed.
// Source: contract "openProcess".
func (p *Provider) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	const op = sandbox.OpOpenProcess
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	started := false
	defer func() {
		if !started {
			leave()
		}
	}()
	if err := r.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	if err := sandbox.CheckInstanceID("process_id", sandbox.InstanceID(processID)); err != nil {
		return nil, invalid(op, err)
	}
	job := newJob(i.m, p.clock, 0)
	pr := &process{job: job, input: job.pipe(), output: job.pipe(), errs: lossy{job.pipe()}, done: make(chan struct{})}
	job.in, job.out = pr.input, pr.output
	call, argv := i.call(job, r.Executable, r.Arguments, r.WorkingDirectory, r.Environment, pr.input, pr.output, pr.errs)
	program, args, err := i.admit(call, argv)
	if err != nil {
		return nil, startFailed(op, err)
	}
	now := p.now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.process != nil {
		return nil, sandbox.Conflict(op, "no live process", sandbox.ActualProcessAlreadyOpen)
	}
	pr.evidence = sandbox.EvidenceOf(i.value, processID, enforcement, now, now)
	i.process, i.jobs[job] = pr, true
	if i.gone {
		job.kill("SIGKILL")
	}
	started = true
	go func() {
		defer leave()
		code := call.run(program, argv[0], args)
		switch call.stage.stop {
		case errSignal:
			pr.exit = sandbox.Signaled(call.stage.signal)
		case errKilled:
			job.mu.Lock()
			pr.exit = sandbox.Signaled(job.signal)
			job.mu.Unlock()
		default:
			pr.exit = sandbox.Exited(int64(code))
		}
		for _, end := range []*pipe{pr.input, pr.output, pr.errs.pipe} {
			end.shut()
		}
		i.mu.Lock()
		i.process = nil
		delete(i.jobs, job)
		i.mu.Unlock()
		close(pr.done)
	}()
	return pr, nil
}

// Input is the program's standard input. A write waits while 64 KiB are
// unread; it fails once the program has ended.
func (p *process) Input() io.WriteCloser { return inputEnd{p.input} }

// Output is the program's standard output. The program waits while 64 KiB are
// unread.
func (p *process) Output() io.Reader { return outputEnd{p.output} }

// Error is the program's standard error; what nobody reads beyond 64 KiB is
// dropped.
func (p *process) Error() io.Reader { return outputEnd{p.errs.pipe} }

// Evidence is the provider's statement.
func (p *process) Evidence() sandbox.Evidence { return p.evidence }

// Wait gives the exit, as often as it is asked.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.done:
		return p.copyExit(), nil
	default:
	}
	select {
	case <-p.done:
		return p.copyExit(), nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (p *process) copyExit() sandbox.Exit {
	if p.exit.ExitCode != nil {
		return sandbox.Exited(*p.exit.ExitCode)
	}
	return p.exit
}

// Signal ends the program unless it ignores s.
func (p *process) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.Valid() {
		return invalid(sandbox.OpOpenProcess, &sandbox.Invalid{Field: "signal", Expected: "SIGINT, SIGTERM or SIGKILL", Got: string(s)})
	}
	p.job.kill(string(s))
	return nil
}

// Destroy kills the program and returns once it has ended.
func (p *process) Destroy(ctx context.Context) error {
	p.job.kill("SIGKILL")
	_, err := p.Wait(ctx)
	return err
}

// inputEnd and outputEnd show one side of a pipe and no more.
type inputEnd struct{ p *pipe }

func (e inputEnd) Write(b []byte) (int, error) { return e.p.Write(b) }
func (e inputEnd) Close() error                { return e.p.Close() }

type outputEnd struct{ p *pipe }

func (e outputEnd) Read(b []byte) (int, error) { return e.p.Read(b) }
