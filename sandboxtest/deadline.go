package sandboxtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// retention is how much longer the provider inside keeps what has expired
// outside.
const retention = 24 * time.Hour

// ownDeadlines keeps the deadlines of snapshots itself, on a provider inside
// that was asked for later ones. It keeps them right, but resumes what has
// expired if resumes is set, and holds a pin above the deadline if pins is.
func ownDeadlines(p sandbox.Provider, env *Env, resumes, pins bool) sandbox.Provider {
	var refs references
	var mu sync.Mutex
	deadlines := map[sandbox.SnapshotID]sandbox.Timestamp{}
	record := func(told *sandbox.Snapshot, _ sandbox.Snapshot) {
		mu.Lock()
		defer mu.Unlock()
		deadlines[told.SnapshotID] = told.ExpiresAt
	}
	expired := func(s sandbox.Snapshot) bool {
		mu.Lock()
		defer mu.Unlock()
		deadline, ok := deadlines[s.SnapshotID]
		return ok && !sandbox.At(env.Now()).Before(deadline)
	}
	clone, resume := refs.clone(p, record), refs.resume(p)
	return Override{
		Provider: p,
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later(q.ExpiresAt, retention)})
			if err == nil {
				real := h.Value
				h.Value.ExpiresAt = q.ExpiresAt
				refs.put(h.Value, real)
				record(&h.Value, real)
			}
			return h, err
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			if expired(q.Snapshot) {
				return sandbox.Handoff[sandbox.Snapshot]{}, sandbox.NoSnapshot(sandbox.OpCloneSnapshot, q.Snapshot.SnapshotID)
			}
			return clone(ctx, q)
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			if expired(q.Snapshot) {
				if !resumes {
					return sandbox.Handoff[sandbox.Instance]{}, sandbox.NoSnapshot(sandbox.OpResume, q.Snapshot.SnapshotID)
				}
				env.Fire()
			}
			return resume(ctx, q)
		},
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			mu.Lock()
			delete(deadlines, id)
			mu.Unlock()
			return p.DestroySnapshot(ctx, id)
		},
		CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
			swept, err := p.Cleanup(ctx, q)
			if err != nil {
				return swept, err
			}
			mu.Lock()
			defer mu.Unlock()
			for id, deadline := range deadlines {
				switch {
				case slices.Contains(swept.SnapshotIDs, id):
				case q.Now.Before(deadline):
					continue
				case pins && slices.Contains(q.PinnedSnapshots, id):
					env.Fire()
					continue
				default:
					if err := p.DestroySnapshot(ctx, id); err != nil {
						return sandbox.Swept{}, err
					}
					swept.SnapshotIDs = append(swept.SnapshotIDs, id)
				}
				delete(deadlines, id)
			}
			return swept, nil
		},
	}
}
