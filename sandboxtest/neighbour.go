package sandboxtest

import (
	"context"
	"errors"

	"github.com/checkfu/checkfu/sandbox"
)

// neighbourFaults do what was asked for to more than was named.
func neighbourFaults() []Saboteur {
	return []Saboteur{
		{ID: "C16", Fault: "a destroy takes every instance of the Session", Kills: "destroy.idempotent/neighbour", Wrap: destroysSession},
		{ID: "C17", Fault: "a sweep takes what has not been activated yet", Kills: "cleanup.spares-live/staged", Wrap: sweeping(sweepsStaged)},
		{ID: "N33", Fault: "a sweep that takes a source takes its pinned clones", Kills: "clone.outlives-sweep/resumes", Wrap: sweepsClones},
	}
}

func destroysSession(p sandbox.Provider, env *Env) sandbox.Provider {
	o, asks := remembering(p)
	o.DestroyFunc = func(ctx context.Context, id sandbox.InstanceID) error {
		q, known := asks.get(id)
		asks.mu.Lock()
		var all []sandbox.InstanceID
		for other, asked := range asks.asks {
			if known && other != id && asked.SessionID == q.SessionID {
				all = append(all, other)
				delete(asks.asks, other)
			}
		}
		asks.mu.Unlock()
		for _, other := range all {
			env.Fire()
			_ = p.Destroy(ctx, other)
		}
		return p.Destroy(ctx, id)
	}
	return o
}

func sweepsStaged(ctx context.Context, p sandbox.Provider, env *Env, l *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	for _, id := range l.list(q.Now, false) {
		_, failed := p.Execute(ctx, id, script("true"))
		if err == nil && errors.Is(failed, sandbox.Conflict("", "", string(sandbox.StateProvisioning))) {
			env.Fire()
			_ = p.Destroy(ctx, id)
			l.ended(id)
			swept.InstanceIDs = append(swept.InstanceIDs, id)
		}
	}
	return swept, err
}

func sweepsClones(p sandbox.Provider, env *Env) sandbox.Provider {
	l := newLineage()
	return Override{Provider: p, CloneSnapshotFunc: l.clone(p), CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
		swept, err := p.Cleanup(ctx, q)
		for _, source := range swept.SnapshotIDs {
			for _, clone := range l.of(func(l *lineage, s sandbox.SnapshotID) []sandbox.SnapshotID { return l.clones[s] }, source) {
				env.Fire()
				_ = p.DestroySnapshot(ctx, clone)
			}
		}
		return swept, err
	}}
}
