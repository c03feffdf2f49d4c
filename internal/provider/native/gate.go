package native

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// gate lets many pass at once, or holds everybody up while one has the instance to
// itself: whoever reads a mount from the host, or starts a program in the machine,
// would otherwise see half of a batch. The zero value is open.
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

// exec starts a program, but not while a batch is published: its file could be one
// that is put back.
func (in *instance) exec(ctx context.Context, m machine.Machine, c machine.Command) (machine.Process, error) {
	if err := in.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer in.gate.leave()
	return m.Exec(ctx, c)
}
