package sandboxtest

import (
	"context"
	"path"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// accepts takes targets that must be refused and forgets what is written.
func accepts(which func(mounts []sandbox.Mount, targets []string) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var plans sync.Map
		return Override{
			Provider: p,
			ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Provision(ctx, q)
				plans.Store(h.Value.InstanceID, slices.Clone(q.Mounts))
				return h, err
			},
			Members: func(o *sandbox.Optional) {
				writer := o.ActiveWrite
				if writer == nil {
					return
				}
				o.ActiveWrite = BeginActiveWriteFunc(func(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
					w, err := writer.BeginActiveWrite(ctx, id, targets)
					if mounts, ok := plans.Load(id); err != nil && ok && which(mounts.([]sandbox.Mount), targets) {
						env.Fire()
						return &forgetful{state: sandbox.JournalOpen}, nil
					}
					return w, err
				})
			},
		}
	}
}

func belowSealed(mounts []sandbox.Mount, targets []string) bool {
	return slices.ContainsFunc(targets, func(target string) bool {
		m, ok := sandbox.OwningMount(mounts, target)
		return ok && m.Access == sandbox.AccessReadOnly
	})
}

func acrossMounts(mounts []sandbox.Mount, targets []string) bool {
	first, _ := sandbox.OwningMount(mounts, targets[0])
	return slices.ContainsFunc(targets, func(target string) bool {
		m, ok := sandbox.OwningMount(mounts, target)
		return ok && m != first
	})
}

func outsideMounts(mounts []sandbox.Mount, targets []string) bool {
	return slices.ContainsFunc(targets, func(target string) bool {
		_, ok := sandbox.OwningMount(mounts, target)
		return !ok
	})
}

func belowEachOther(_ []sandbox.Mount, targets []string) bool {
	return slices.ContainsFunc(targets, func(target string) bool { return slices.Contains(targets, path.Dir(target)) })
}

// forgetful is a transaction that writes nothing.
type forgetful struct {
	mu    sync.Mutex
	state sandbox.JournalState
}

func (w *forgetful) set(s sandbox.JournalState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
}

func (w *forgetful) Stage(ctx context.Context, _ sandbox.FileWrite) error { return ctx.Err() }

func (w *forgetful) Dispatch(ctx context.Context, marker func()) error {
	marker()
	w.set(sandbox.JournalCommitted)
	return ctx.Err()
}

func (w *forgetful) Abort(ctx context.Context) error {
	w.set(sandbox.JournalRolledBack)
	return ctx.Err()
}

func (w *forgetful) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, ctx.Err()
}
