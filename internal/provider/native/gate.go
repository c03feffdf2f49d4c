package native

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// gate lets many pass at once, or holds everybody up while one has the instance to
// itself: whoever reads a mount from the host, or starts a program in the machine,
// would otherwise see half of a batch, and who writes would write into what is being
// copied. The zero value is open.
type gate struct {
	mu     sync.Mutex
	inside int
	shut   chan struct{} // closed by open; nil while the gate is open
	left   chan struct{} // closed when the last inside has left, for who waits for it
}

// enter waits until the gate is open. Who has entered leaves.
// Errors: ctx's.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		shut := g.shut
		if shut == nil {
			g.inside++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.left != nil {
		close(g.left)
		g.left = nil
	}
}

// close shuts the gate and waits until nobody is inside. One at a time may.
// Errors: ctx's; the gate is open again then.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	g.shut = make(chan struct{})
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	left := make(chan struct{})
	g.left = left
	g.mu.Unlock()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		g.open()
		return ctx.Err()
	}
}

// open lets everybody pass. It may be called again.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut, g.left = nil, nil
	}
}

// enter waits until nobody has the instance to itself, and returns the machine of an
// active one for work that leave ends: not while a batch is published, of which the
// work could see what is put back, nor while all stands still. Who had to wait finds
// the instance as it is then.
// Errors: ctx's; InstanceNotFound; LifecycleConflict.
func (in *instance) enter(ctx context.Context, op sandbox.Operation) (m machine.Machine, leave func(), err error) {
	if err := in.gate.enter(ctx); err != nil {
		return nil, nil, err
	}
	if m, err = in.use(op); err != nil {
		in.gate.leave()
		return nil, nil, err
	}
	return m, in.gate.leave, nil
}

// killTree ends a program and its tree once its machine does not stand still: in one
// that does nothing could die. Its bound begins then.
func (in *instance) killTree(ctx context.Context, proc machine.Process) error {
	if err := in.gate.enter(ctx); err != nil {
		return err
	}
	defer in.gate.leave()
	ctx, cancel := context.WithTimeout(ctx, teardownBound)
	defer cancel()
	return proc.KillTree(ctx)
}
