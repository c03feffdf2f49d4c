package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// process is the one live process of an instance.
type process struct {
	in       *instance
	m        machine.Machine
	proc     machine.Process
	pipes    *pipes
	stderr   *backlog
	evidence sandbox.Evidence

	ended chan struct{} // closed when exit and err are final
	exit  sandbox.Exit
	err   error

	mu        sync.Mutex
	streaming bool // the streams are open, or were
	abandoned bool // our ends of them are closed, or will be as soon as they are there
}

var _ sandbox.Process = (*process)(nil)

// OpenProcess starts the instance's live process. The place is reserved before
// anything starts and freed when the process and its tree have ended.
// Source: contract "openProcess".
func (p *Provider) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	if err := r.Validate(); err != nil {
		return nil, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonInvalidRequest, err)
	}
	in, err := p.find(sandbox.OpOpenProcess, id)
	if err != nil {
		return nil, err
	}
	if err := in.checkModel(r.Environment); err != nil {
		return nil, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonInvalidRequest, err)
	}
	if err := in.fenced(sandbox.OpOpenProcess); err != nil {
		return nil, err
	}
	m, leave, err := in.enter(ctx, sandbox.OpOpenProcess)
	if err != nil {
		return nil, err
	}
	defer leave()
	live := &process{in: in, m: m, ended: make(chan struct{})}
	if !in.reserve(live) {
		return nil, sandbox.Conflict(sandbox.OpOpenProcess, "no_process", sandbox.ActualProcessAlreadyOpen)
	}
	if err := live.start(ctx, processID, r); err != nil {
		in.free(live)
		return nil, err
	}
	live.opened()
	go live.settle()
	return live, nil
}

func (in *instance) reserve(live *process) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending || in.live != nil {
		return false
	}
	in.live = live
	return true
}

func (in *instance) free(live *process) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.live == live {
		in.live = nil
	}
}

func (l *process) start(ctx context.Context, processID string, r sandbox.ProcessRequest) error {
	pipes, err := openPipes()
	if err != nil {
		return sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, err)
	}
	p := l.in.p
	started := p.opt.Now()
	l.proc, err = l.m.Exec(ctx, machine.Command{
		Argv: append([]string{r.Executable}, r.Arguments...), Env: l.in.environment(r.Environment), Dir: r.WorkingDirectory,
		Stdin: pipes.guest[0], Stdout: pipes.guest[1], Stderr: pipes.guest[2],
	})
	if err != nil {
		pipes.close()
		return startFailed(sandbox.OpOpenProcess, r.Executable, l.m, err)
	}
	pipes.closeGuest()
	l.pipes, l.stderr = pipes, newBacklog(pipes.host[2])
	l.evidence = sandbox.EvidenceOf(l.in.describe(), processID, Envelope(p.opt.Driver.Name(), "").Enforcement, sandbox.At(started), p.since(started))
	return nil
}

// settle waits for the exit, ends what the process left behind, and only then
// makes the exit known and frees the place: a grandchild that holds stdout
// would otherwise keep the reader from its end of file for ever.
func (l *process) settle() {
	exit, err := l.proc.Wait(context.Background())
	if killErr := l.in.killTree(context.Background(), l.proc); killErr != nil && l.m.Alive() == nil {
		err = errors.Join(err, killErr)
	}
	if err != nil {
		l.err = sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, err)
	} else {
		l.exit = exitOf(exit)
	}
	l.in.free(l)
	close(l.ended)
}

// Input is the child's standard input; Close is its end of file.
func (l *process) Input() io.WriteCloser { return l.pipes.host[0] }

// Output is the child's standard output, the pipe itself.
func (l *process) Output() io.Reader { return l.pipes.host[1] }

// Error is the child's standard error behind a bounded backlog.
func (l *process) Error() io.Reader { return l.stderr }

// Evidence is what this provider says about the process.
func (l *process) Evidence() sandbox.Evidence { return l.evidence }

// Wait gives the exit once the process and its tree have ended.
func (l *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-l.ended:
		return l.exit, l.err
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Signal delivers one control signal; after the exit it does nothing.
func (l *process) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	if !s.Valid() {
		return sandbox.Failed(sandbox.OpOpenProcess, "signal", errors.New(string(s)))
	}
	select {
	case <-l.ended:
		return nil
	default:
	}
	if err := l.in.gate.enter(ctx); err != nil {
		return err
	}
	defer l.in.gate.leave()
	if err := l.proc.Signal(ctx, string(s)); err != nil && l.m.Alive() == nil {
		return sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, err)
	}
	return nil
}

// Destroy kills the process and its tree, waits until that is settled, and
// closes the streams. Output that was not read yet is lost.
func (l *process) Destroy(ctx context.Context) error {
	err := l.in.killTree(ctx, l.proc)
	if err != nil && l.m.Alive() != nil {
		err = nil // the machine is gone, and everything in it
	}
	if err == nil {
		if _, waitErr := l.Wait(ctx); waitErr != nil && ctx.Err() != nil {
			err = waitErr
		}
	}
	if err != nil {
		return sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, err)
	}
	l.abandon()
	return nil
}

// abandon closes our ends of the streams. The instance can be removed while
// its process is still starting; then opened does it.
func (l *process) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.abandoned && l.streaming {
		l.pipes.close()
		l.stderr.end()
	}
	l.abandoned = true
}

// opened marks the streams as there to be closed.
func (l *process) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streaming = true
	if l.abandoned {
		l.pipes.close()
		l.stderr.end()
	}
}

// backlogBytes bounds what is kept of standard error before anybody reads it.
const backlogBytes = 1 << 20

// backlog takes standard error off the pipe as it comes. Until its first Read
// it keeps the newest megabyte, so that a consumer that ignores standard error
// never blocks the process; what was dropped is said in its place. A consumer
// that reads loses nothing from then on and is waited for.
// Source: contract "openProcess" (error is diagnostic: a bound and best effort).
type backlog struct {
	mu      sync.Mutex
	changed sync.Cond
	pending bytes.Buffer
	dropped int
	reading bool
	ended   bool
}

func newBacklog(r *os.File) *backlog {
	b := &backlog{}
	b.changed.L = &b.mu
	go b.fill(r)
	return b
}

func (b *backlog) fill(r *os.File) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		b.mu.Lock()
		for b.reading && !b.ended && b.pending.Len()+n > backlogBytes {
			b.changed.Wait()
		}
		b.pending.Write(buffer[:n])
		if over := b.pending.Len() - backlogBytes; over > 0 {
			b.pending.Next(over)
			b.dropped += over
		}
		b.ended = b.ended || err != nil
		b.changed.Broadcast()
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read blocks until there is something or the stream has ended.
func (b *backlog) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = true
	if b.dropped > 0 {
		n := copy(p, fmt.Sprintf("[checkfu: %d bytes of standard error were dropped here]\n", b.dropped))
		b.dropped = 0
		return n, nil
	}
	for b.pending.Len() == 0 && !b.ended {
		b.changed.Wait()
	}
	n, err := b.pending.Read(p)
	b.changed.Broadcast()
	return n, err
}

// end lets go of whoever waits.
func (b *backlog) end() {
	b.mu.Lock()
	b.ended = true
	b.changed.Broadcast()
	b.mu.Unlock()
}
