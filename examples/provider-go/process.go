package main

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/checkfu/checkfu/sandbox"
)

// process is a live process.
type process struct {
	r        *running
	evidence sandbox.Evidence
}

// OpenProcess starts one, if none lives in the instance.
func (p *provider) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
	const op = sandbox.OpOpenProcess
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	if err := q.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	// The place is taken before it starts, so that of two one is refused.
	pr := &process{}
	i.mu.Lock()
	if i.live != nil && !i.live.done() {
		i.mu.Unlock()
		return nil, sandbox.Conflict(op, "no live process", sandbox.ActualProcessAlreadyOpen)
	}
	before := i.live
	i.live = pr
	i.mu.Unlock()
	began := now()
	r, err := i.start(ctx, op, q, true)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.live = before
		return nil, err
	}
	pr.r = r
	pr.evidence = sandbox.EvidenceOf(i.value, processID, envelope().Enforcement, began, max(now(), began))
	return pr, nil
}

// done says whether the process has ended; one that starts has not. The caller
// holds the instance's lock.
func (p *process) done() bool {
	if p.r == nil {
		return false
	}
	select {
	case <-p.r.ended:
		return true
	default:
		return false
	}
}

// Input is the write end of its standard input.
func (p *process) Input() io.WriteCloser { return p.r.stdin }

// Output and Error give what it writes, and close their descriptor at its end.
func (p *process) Output() io.Reader { return stream{p.r.stdout} }
func (p *process) Error() io.Reader  { return stream{p.r.stderr} }

type stream struct{ file *os.File }

func (s stream) Read(b []byte) (int, error) {
	n, err := s.file.Read(b)
	if err != nil {
		s.file.Close()
	}
	return n, err
}

// Wait gives the exit, as often as it is asked.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.r.ended:
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
	switch {
	case p.r.exit == nil && p.r.killed.Load(): // process 1 went, and all with it
		return sandbox.Signaled("SIGKILL"), nil
	case p.r.exit == nil: // nobody knows
		return sandbox.Exit{}, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil)
	}
	if p.r.exit.ExitCode != nil {
		return sandbox.Exited(*p.r.exit.ExitCode), nil
	}
	return *p.r.exit, nil
}

// Signal delivers one; to one that has ended it does nothing.
func (p *process) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	switch s {
	case sandbox.SignalInterrupt:
		p.r.signal(syscall.SIGINT)
	case sandbox.SignalTerminate:
		p.r.signal(syscall.SIGTERM)
	case sandbox.SignalKill:
		return p.r.kill(ctx)
	default:
		return invalid(sandbox.OpOpenProcess, &sandbox.Invalid{Field: "signal", Expected: "SIGINT, SIGTERM or SIGKILL", Got: string(s)})
	}
	return ctx.Err()
}

// Destroy kills it and all its descendants. What they wrote can still be read.
func (p *process) Destroy(ctx context.Context) error {
	if err := p.r.kill(ctx); err != nil {
		return err
	}
	p.r.stdin.Close()
	p.r.control.Close()
	return nil
}

// Evidence is this side's own statement: nothing of it comes from the machine.
func (p *process) Evidence() sandbox.Evidence { return p.evidence }
