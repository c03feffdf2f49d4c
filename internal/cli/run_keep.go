package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// keptRun is the session that what is in the machine of a Run becomes. nil is a Run
// that keeps nothing.
type keptRun struct {
	held   *keeper.Held
	paused bool
}

// keepRun reserves that session before the machine is made, so that a sweep finds
// whatever a Run that is killed has kept.
func (a *app) keepRun(spec *runner.Spec, f runFlags, model string) (*keptRun, error) {
	if spec.Keep == 0 {
		return nil, nil
	}
	if err := f.canKeep(*spec); err != nil {
		return nil, err
	}
	dir, err := a.usableState()
	if err != nil {
		return nil, err
	}
	h, err := keeper.Reserve(dir, keeper.Record{
		SessionID: keeper.NewID(), Provider: f.provider, Model: model, Registries: f.registries, KeepMillis: spec.Keep.Milliseconds(),
		ExpiresAt: sandbox.At(time.Now().Add(spec.Timeout + runner.Margin)),
	})
	if err != nil {
		return nil, err
	}
	k := &keptRun{held: h}
	spec.SessionID = h.Record.SessionID
	spec.Kept = func(in sandbox.Instance, s sandbox.Snapshot) error {
		err := h.Pause(in, s)
		k.paused = err == nil
		return err
	}
	return k, nil
}

// end lets go of the session, and says on w where to go on.
func (k *keptRun) end(w io.Writer) error {
	if k == nil {
		return nil
	}
	if !k.paused {
		return k.held.Discard()
	}
	id := k.held.Record.SessionID
	_, err := fmt.Fprintf(w, "checkfu: kept as session %s until %s; go on with: checkfu session resume %s\n", id, k.held.Record.Snapshot.ExpiresAt, id)
	return errors.Join(err, k.held.Close())
}
