package sandboxruntime_test

import (
	"context"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// fakeProcess echoes its input to its output and exits 0 at end of input, or
// as it is told.
type fakeProcess struct {
	in        *io.PipeReader
	input     io.WriteCloser
	output    io.Reader
	errors    io.Reader
	evidence  sandbox.Evidence
	exit      chan struct{}
	once      sync.Once
	how       sandbox.Exit
	deaf      bool                        // ignores SIGTERM
	onDestroy func(context.Context) error // runs first
	wait      func() (sandbox.Exit, error)

	mu       sync.Mutex
	signals  []sandbox.ControlSignal
	destroys int
}

func (f *fake) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	if err := f.enter(ctx, sandbox.OpOpenProcess); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.instances[id]
	if i == nil {
		return nil, sandbox.NoInstance(sandbox.OpOpenProcess, id)
	}
	in, input := io.Pipe()
	output, out := io.Pipe()
	p := &fakeProcess{
		in: in, input: input, output: output, errors: strings.NewReader("diagnostic"), exit: make(chan struct{}),
		evidence: sandbox.EvidenceOf(sandbox.InstanceOf(i.request, id, i.state, digestOf(i.request.Profile)), processID, f.envelope.Enforcement, f.now(), f.now()),
	}
	go func() {
		_, err := io.Copy(out, in)
		out.Close()
		if err == nil {
			p.end(sandbox.Exited(0))
		}
	}()
	f.processes = append(f.processes, p)
	if f.lieProcess != nil {
		return f.lieProcess(p), nil
	}
	return p, nil
}

func (p *fakeProcess) end(e sandbox.Exit) {
	p.once.Do(func() { p.how = e; close(p.exit); p.in.CloseWithError(io.ErrClosedPipe) })
}

func (p *fakeProcess) Input() io.WriteCloser      { return p.input }
func (p *fakeProcess) Output() io.Reader          { return p.output }
func (p *fakeProcess) Error() io.Reader           { return p.errors }
func (p *fakeProcess) Evidence() sandbox.Evidence { return p.evidence }

func (p *fakeProcess) Wait(ctx context.Context) (sandbox.Exit, error) {
	if p.wait != nil {
		return p.wait()
	}
	select {
	case <-p.exit:
		return p.how, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (p *fakeProcess) Signal(_ context.Context, s sandbox.ControlSignal) error {
	p.mu.Lock()
	p.signals = append(p.signals, s)
	p.mu.Unlock()
	if !p.deaf {
		p.end(sandbox.Signaled(string(s)))
	}
	return nil
}

func (p *fakeProcess) Destroy(ctx context.Context) error {
	p.mu.Lock()
	p.destroys++
	p.mu.Unlock()
	if p.onDestroy != nil {
		if err := p.onDestroy(ctx); err != nil {
			return err
		}
	}
	p.end(sandbox.Signaled("SIGKILL"))
	return nil
}

// fakeWrite is an active write.
type fakeWrite struct {
	fake     *fake
	id       sandbox.InstanceID
	marks    int
	after    func(context.Context) error // runs between marker and publication
	state    sandbox.JournalState
	staged   map[string][]byte
	aborts   int
	targeted []string
}

func (f *fake) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	if err := f.enter(ctx, sandbox.OpBeginActiveWrite); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &fakeWrite{fake: f, id: id, marks: 1, state: sandbox.JournalOpen, staged: map[string][]byte{}, targeted: targets}
	f.writes = append(f.writes, w)
	if f.lieWrite != nil {
		return f.lieWrite(w), nil
	}
	return w, nil
}

func (w *fakeWrite) Stage(_ context.Context, f sandbox.FileWrite) error {
	w.staged[f.Path] = f.Content
	return nil
}

func (w *fakeWrite) Dispatch(ctx context.Context, marker func()) error {
	for range w.marks {
		marker()
	}
	w.state = sandbox.JournalDispatched
	if w.after != nil {
		if err := w.after(ctx); err != nil {
			return err
		}
	}
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	maps.Copy(w.fake.instances[w.id].files, w.staged)
	w.state = sandbox.JournalCommitted
	return nil
}

func (w *fakeWrite) Abort(context.Context) error {
	w.aborts++
	w.state = sandbox.JournalRolledBack
	return nil
}

func (w *fakeWrite) Inspect(context.Context) (sandbox.JournalState, error) { return w.state, nil }
