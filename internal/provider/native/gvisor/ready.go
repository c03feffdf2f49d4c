package gvisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// readyBound is how long init may take, once it runs, until it is ready.
const readyBound = 15 * time.Second

// saysReady reports whether init has something to begin with that its first command
// may count on.
func saysReady(s machine.Spec) bool { return len(s.Forwards) > 0 || s.Live }

// readyPipe is what init says on that it is ready; two nils where it has nothing to
// begin with. A nil file may be closed.
func readyPipe(s machine.Spec) (read, write *os.File, err error) {
	if !saysReady(s) {
		return nil, nil, nil
	}
	return os.Pipe()
}

// awaitReady waits for init's word. An end without it means that init, and with
// it the machine, is gone.
func (m *gvisorMachine) awaitReady(ctx context.Context, ready *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("machine %s: its init does not become ready: %w", m.spec.ID, err)
	}
	return nil
}
