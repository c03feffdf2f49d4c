package gvisor

import (
	"context"
	"sync"

	"gvisor.dev/gvisor/runsc/boot"
)

// Pause implements machine.Machine: the sentry stops its tasks, which takes them
// out of waits in the sentry, and gives the call back once all stand still.
func (m *gvisorMachine) Pause(ctx context.Context) (resume func() error, err error) {
	if err := ctx.Err(); err != nil { // a select would choose
		return nil, context.Cause(ctx)
	}
	select {
	case m.frozen <- struct{}{}:
	case <-m.ended:
		return nil, m.endedErr
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	paused := make(chan error, 1)
	go func() { paused <- m.call(boot.ContMgrPause, nil, nil) }()
	select {
	case err = <-paused:
		if err != nil {
			<-m.frozen
			return nil, err
		}
	case <-ctx.Done():
		// The call cannot be cut short. Whenever it ends, the machine goes on.
		go func() {
			if <-paused == nil {
				_ = m.unpause()
			}
			<-m.frozen
		}()
		return nil, context.Cause(ctx)
	}
	return sync.OnceValue(func() error {
		defer func() { <-m.frozen }()
		return m.unpause()
	}), nil
}

// unpause lets the sentry's tasks go on; of an ended one there are none.
func (m *gvisorMachine) unpause() error {
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	err := within(ctx, func() error { return m.call(boot.ContMgrResume, nil, nil) })
	if err == nil {
		return nil
	}
	if _ = m.endedWithin(ctx, endBound); m.Alive() != nil { // its socket broke before the watcher knew
		return nil
	}
	return err
}
