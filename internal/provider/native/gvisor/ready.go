package gvisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// readyBound is how long init may take, once it runs, until its forwards listen.
const readyBound = 15 * time.Second

// readyPipe is what init says on that its forwards listen; two nils where it has
// none. A nil file may be closed.
func readyPipe(s machine.Spec) (read, write *os.File, err error) {
	if len(s.Forwards) == 0 {
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
		return fmt.Errorf("machine %s: its init does not listen: %w", m.spec.ID, err)
	}
	return nil
}
