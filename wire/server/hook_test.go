package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/sandbox"
)

// hooked is a provider with some members replaced.
type hooked struct {
	sandbox.Provider
	provision func(context.Context, sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error)
	activate  func(context.Context, sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error)
	execute   func(context.Context, sandbox.InstanceID, sandbox.Command) (sandbox.Settlement, error)
	write     func(context.Context, sandbox.InstanceID, sandbox.FileWrite) error
	open      func(context.Context, sandbox.InstanceID, string, sandbox.ProcessRequest) (sandbox.Process, error)
	caps      func(sandbox.Capabilities) sandbox.Capabilities
}

func (h *hooked) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := h.Provider.Capabilities(ctx)
	if h.caps != nil {
		c = h.caps(c)
	}
	return c, err
}

func (h *hooked) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	if h.provision != nil {
		return h.provision(ctx, r)
	}
	return h.Provider.Provision(ctx, r)
}

func (h *hooked) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	if h.activate != nil {
		return h.activate(ctx, id)
	}
	return h.Provider.Activate(ctx, id)
}

func (h *hooked) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	if h.execute != nil {
		return h.execute(ctx, id, c)
	}
	return h.Provider.Execute(ctx, id, c)
}

func (h *hooked) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if h.write != nil {
		return h.write(ctx, id, w)
	}
	return h.Provider.WriteFile(ctx, id, w)
}

func (h *hooked) Optional() sandbox.Optional {
	o := h.Provider.Optional()
	if h.open != nil {
		o.OpenProcess = h
	}
	return o
}

func (h *hooked) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	return h.open(ctx, id, processID, r)
}

// hook puts a hooked provider between the server and the memory provider.
func hook(h *hooked) func(*Options) {
	return func(o *Options) {
		h.Provider = o.Provider
		o.Provider = h
	}
}

// puppet is a process whose every event the test decides.
type puppet struct {
	evidence   sandbox.Evidence
	inR        *io.PipeReader
	inW        *io.PipeWriter
	outR, errR *io.PipeReader
	outW, errW *io.PipeWriter
	ended      chan struct{}
	once       sync.Once
	exit       sandbox.Exit
	waitErr    error
	signals    atomic.Int64
	destroyed  atomic.Int64
	killed     chan struct{} // closed once it was destroyed
	onSignal   func()
}

func newPuppet(e sandbox.Evidence) *puppet {
	p := &puppet{evidence: e, ended: make(chan struct{}), killed: make(chan struct{})}
	p.inR, p.inW = io.Pipe()
	p.outR, p.outW = io.Pipe()
	p.errR, p.errW = io.Pipe()
	return p
}

// leave makes the process exit; what holds its streams goes on.
func (p *puppet) leave(e sandbox.Exit, err error) {
	p.once.Do(func() {
		p.exit, p.waitErr = e, err
		close(p.ended)
	})
}

func (p *puppet) Input() io.WriteCloser      { return p.inW }
func (p *puppet) Output() io.Reader          { return p.outR }
func (p *puppet) Error() io.Reader           { return p.errR }
func (p *puppet) Evidence() sandbox.Evidence { return p.evidence }

func (p *puppet) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.ended:
		return p.exit, p.waitErr
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (p *puppet) Signal(context.Context, sandbox.ControlSignal) error {
	p.signals.Add(1)
	if p.onSignal != nil {
		p.onSignal()
	}
	return nil
}

// Destroy ends everything, as a provider does: streams break.
func (p *puppet) Destroy(context.Context) error {
	if p.destroyed.Add(1) == 1 {
		defer close(p.killed)
	}
	p.leave(sandbox.Signaled("SIGKILL"), nil)
	p.inR.CloseWithError(io.ErrClosedPipe)
	p.outW.CloseWithError(errors.New("file already closed"))
	p.errW.CloseWithError(errors.New("file already closed"))
	return nil
}

// puppets makes every process of a server a puppet, which it sends to the
// channel.
func puppets(h *hooked) chan *puppet {
	made := make(chan *puppet, 16)
	h.open = func(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
		c, err := h.Provider.Capabilities(ctx)
		if err != nil {
			return nil, err
		}
		at := sandbox.At(start)
		p := newPuppet(sandbox.EvidenceOf(sandbox.Instance{InstanceID: id}, processID, c.Enforcement, at, at))
		p.evidence.ImageDigest, p.evidence.ProfileDigest = sandbox.ImageDigest(image), sandbox.ImageDigest(image)
		made <- p
		return p, nil
	}
	return made
}

// fakeClock is a clock that the test moves.
type fakeClock struct{ *clocktest.Clock }

func newFakeClock() fakeClock { return fakeClock{clocktest.New(start)} }

func (c fakeClock) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := c.Clock.NewTimer(d)
	return t.C(), t.Stop
}

func (f *fixture) awaitTimers(c fakeClock, n int) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.AwaitTimers(ctx, n); err != nil {
		f.Fatalf("%d timers, want %d", c.Timers(), n)
	}
}
