package runc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Pause implements machine.Machine by the freezer of the unified hierarchy, which
// takes its processes out of interruptible waits in the kernel: one that waits in
// splice, with the lock of a filesystem's writers held, gives that back first. One
// that is in a wait that nothing interrupts does not come to rest, and the pause
// fails by ctx.
//
// A paused machine can be killed: the kernel lets nothing hold up SIGKILL here.
func (m *instance) Pause(ctx context.Context) (resume func() error, err error) {
	if err := ctx.Err(); err != nil { // a select would choose
		return nil, ctx.Err()
	}
	select {
	case m.paused <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// What somebody else holds still, an administrator for example, is not ours to
	// set going.
	held, err := os.ReadFile(filepath.Join(m.tree, "cgroup.freeze"))
	thaw := m.thaw
	if strings.TrimSpace(string(held)) == "1" {
		thaw = func() error { return nil }
	}
	if err == nil {
		err = m.freeze(ctx)
	}
	if err != nil {
		err = errors.Join(err, thaw())
		<-m.paused
		return nil, err
	}
	return sync.OnceValue(func() error {
		defer func() { <-m.paused }()
		return thaw()
	}), nil
}

func (m *instance) freeze(ctx context.Context) error {
	if err := m.Alive(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.tree, "cgroup.freeze"), []byte("1"), 0); err != nil {
		return err
	}
	return await(ctx, m.tree, "frozen 1")
}

func (m *instance) thaw() error {
	return gone(os.WriteFile(filepath.Join(m.tree, "cgroup.freeze"), []byte("0"), 0))
}
