package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// process is a live process of a peer. One goroutine follows its stream until
// all of it is here, it broke, or the process was destroyed.
type process struct {
	c        *Client
	instance sandbox.InstanceID
	id       wire.ProcessID
	lease    wire.Lease
	evidence sandbox.Evidence

	in   *input
	out  *pipe
	errs *pipe

	// live ends when there is nothing more to be done with the process: an exit
	// is known, or the stream ended by an error. follow ends later, when the
	// output is here too.
	live context.Context
	done context.CancelFunc
	// reading bounds the attachments; its cause is what the streams end with.
	reading context.Context
	cut     context.CancelCauseFunc

	mu        sync.Mutex
	exit      *sandbox.Exit
	failure   error // why the stream ended early
	destroyed bool
}

var (
	errUnread = sandbox.Failed(sandbox.OpOpenProcess, wire.ReasonOutputTruncated, errors.New("destroyed while its output was not read"))
	errEnded  = errors.New("the process was destroyed and its stream did not end")
)

// OpenProcess starts a live process under processID, "pr_" and 32 lower-case
// hex digits, which the Runner minted. One that was started behind an answer
// that nobody got is destroyed by its id.
//
// The process's streams are kept up over any number of connections. What is
// unread of its output waits here up to 1 MiB, and at the provider up to its
// window; a reader that falls further behind loses the process, never a byte.
// Errors: Output and Wait end in OperationFailed{output_truncated} for output
// that is gone, OperationFailed{process_lost} where the provider lost it,
// LifecycleConflict{current_lease, stale_lease} where another reader or a
// higher epoch took it over, *ProtocolError for a stream that is none, after
// which the process was destroyed.
// Source: contract "openProcess".
func (c *Client) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	lease := c.leases.of(id)
	if r.Arguments == nil {
		r.Arguments = []string{} // null is no list on a wire
	}
	if r.Environment == nil {
		r.Environment = map[string]string{}
	}
	k, err := c.newCall(wire.OpenProcess, lease, wire.OpenProcessRequest{InstanceID: id, ProcessID: wire.ProcessID(processID), Process: r})
	if err != nil {
		return nil, err
	}
	if err := c.enter(k.op); err != nil { // left by follow
		return nil, err
	}
	p := &process{c: c, instance: id, id: wire.ProcessID(processID), lease: lease}
	var opened wire.Opened
	err = c.exchange(ctx, k, func(b *body) error {
		o, err := decode[wire.Opened](b)
		if err == nil && o.ProcessID != p.id {
			err = broken(b.endpoint, "process_id", string(p.id), string(o.ProcessID))
		}
		if err == nil && o.InputOffset != 0 {
			err = broken(b.endpoint, "input_offset", "0: nothing was sent", number(o.InputOffset))
		}
		opened = o
		return err
	})
	if err != nil {
		defer c.leave()
		return nil, c.abandon(ctx, k, err, p.destroy)
	}
	p.begin(opened)
	return p, nil
}

// prepare makes everything but the goroutine.
func (p *process) prepare(first wire.Opened) {
	p.evidence = first.Evidence
	p.out, p.errs = newPipe(outputBytes, false), newPipe(errorBytes, true)
	p.in = &input{p: p, room: make(chan struct{})}
	p.live, p.done = context.WithCancel(context.Background())
	p.reading, p.cut = context.WithCancelCause(context.Background())
	_ = p.in.window(wire.Window{InputCredit: first.InputCredit})
}

func (p *process) begin(first wire.Opened) {
	p.prepare(first)
	stop := context.AfterFunc(p.c.calling, func() { p.cut(ErrClosed); p.out.loosen() })
	go func() {
		defer p.c.leave()
		defer stop()
		p.follow(newFilter(first))
	}()
}

// Input is standard input. A write waits for credit.
func (p *process) Input() io.WriteCloser { return p.in }

// Output is standard output.
func (p *process) Output() io.Reader { return p.out }

// Error is standard error. What nobody reads beyond 256 KiB is dropped, the
// oldest first.
func (p *process) Error() io.Reader { return p.errs }

// Evidence is the provider's statement, as it was opened with.
func (p *process) Evidence() sandbox.Evidence { return p.evidence }

// over says why nothing more can be put into the process; nil while it lives.
func (p *process) over() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.failure != nil:
		return p.failure
	case p.exit != nil || p.destroyed:
		return io.ErrClosedPipe
	}
	return nil
}

// exited keeps the first exit.
func (p *process) exited(e sandbox.Exit) {
	p.mu.Lock()
	if p.exit == nil {
		p.exit = &e
	}
	p.mu.Unlock()
	p.done()
}

// fail ends both streams early. The first failure counts.
func (p *process) fail(err error) {
	p.mu.Lock()
	if p.failure == nil {
		p.failure = err
	}
	err = p.failure
	p.mu.Unlock()
	p.out.finish(err)
	p.errs.finish(err)
	p.done()
}

// violate is fail for a peer that broke the wire: follow then destroys the
// process, because nothing that comes from it can be believed.
func (p *process) violate(err error) error {
	p.fail(err)
	p.cut(err)
	return err
}

// known is the exit, or what stands in its place.
func (p *process) known() (*sandbox.Exit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil {
		e := *p.exit
		if e.ExitCode != nil {
			e = sandbox.Exited(*e.ExitCode)
		}
		return &e, nil
	}
	return nil, p.failure
}

// truncated says that only output was lost: the exit can still be asked for.
func truncated(err error) bool {
	return errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: wire.ReasonOutputTruncated})
}

// Wait waits for the exit, which only ever comes from the provider's own word
// for it, and gives it again as often as it is asked. It does not depend on
// anybody reading the output, nor on the stream: behind output that nobody
// takes, or that nothing lets through, the exit is asked for.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	for {
		exit, err := p.known()
		if exit != nil {
			return *exit, nil
		}
		if err != nil && !truncated(err) {
			return sandbox.Exit{}, err
		}
		if err == nil {
			select {
			case <-p.live.Done():
				continue
			case <-p.out.stalled:
			case <-ctx.Done():
				return sandbox.Exit{}, ctx.Err()
			}
		}
		if err := p.ask(ctx, err != nil); err != nil {
			return sandbox.Exit{}, err
		}
	}
}

// ask asks once whether the process has ended, and lets the stream be quicker.
func (p *process) ask(ctx context.Context, late bool) error {
	k, err := p.c.newCall(wire.ProcessWait, p.lease, wire.WaitRequest{
		InstanceID: p.instance, ProcessID: p.id, WaitMS: p.c.options.Wait.Milliseconds(),
	})
	if err != nil {
		return err
	}
	bound, cancel := context.WithCancel(ctx)
	defer cancel()
	if !late {
		defer context.AfterFunc(p.live, cancel)()
	}
	began := time.Now()
	var w wire.Waited
	err = p.c.exchange(bound, k, into(&w))
	quiet, ok := err.(*silence)
	switch {
	case err == nil:
	case ctx.Err() == nil && bound.Err() != nil:
		return nil // the stream had it first
	case ok && !late && quiet.interrupted == nil && quiet.cause != ErrClosed && !stranger(quiet.cause):
		return nil // the network is away: the stream goes on trying, and so does this
	default:
		return p.c.contract(k, err)
	}
	switch {
	case w.Exit != nil:
		p.exited(*w.Exit)
	case time.Since(began) < p.c.options.Wait/2:
		// A server that does not hold. The stream may have it meanwhile.
		if pause(bound, firstPause) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Signal sends one control signal, delivered once however often it is sent.
func (p *process) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	if exit, _ := p.known(); exit != nil {
		return ctx.Err()
	}
	k, err := p.c.newCall(wire.ProcessSignal, p.lease, wire.SignalRequest{InstanceID: p.instance, ProcessID: p.id, Signal: s})
	if err != nil {
		return err
	}
	var answer wire.Signaled
	return p.c.do(ctx, k, into(&answer))
}

// drain is how long the stream of a destroyed process may take to end.
const drain = wire.MaxDrainMS*time.Millisecond + 5*time.Second

// Destroy kills the process tree. It answers in 30 s, and again with the same.
func (p *process) Destroy(ctx context.Context) error {
	p.mu.Lock()
	gone := p.destroyed
	p.mu.Unlock()
	if gone {
		return nil
	}
	if err := p.c.enter(sandbox.OpOpenProcess); err != nil {
		return err
	}
	defer p.c.leave()
	if err := p.destroy(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	first := !p.destroyed
	p.destroyed = true
	p.mu.Unlock()
	if first {
		p.out.loosen()
		// The end of the output and the exit are on their way.
		t := time.AfterFunc(drain, func() { p.cut(sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, errEnded)) })
		context.AfterFunc(p.reading, func() { t.Stop() })
	}
	return nil
}

// destroy destroys by the id, also a process that was never opened.
func (p *process) destroy(ctx context.Context) error {
	k, err := p.c.newCall(wire.ProcessDestroy, p.lease, wire.ProcessRequest{InstanceID: p.instance, ProcessID: p.id})
	if err != nil {
		return err
	}
	k.hold = compensationHold
	err = p.c.compensate(ctx, k, settled)
	if errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}) {
		return nil // and with it the process
	}
	return err
}
