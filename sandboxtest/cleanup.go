package sandboxtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// cleanupFaults are wrong in teardown and sweeping.
func cleanupFaults() []Saboteur {
	return []Saboteur{
		{ID: "C1", Fault: "a sweep of nothing returns one list", Kills: "cleanup.form/form", Suite: report.Contract, Wrap: sweeping(sweepsOneList)},
		{ID: "C2", Fault: "a sweep takes a live instance", Kills: "cleanup.spares-live/runs", Wrap: sweeping(sweepsLive)},
		{ID: "C3", Fault: "a sweep ignores the cutoff", Kills: "cleanup.honours-cutoff/younger", Wrap: sweeping(sweepsYounger)},
		{ID: "C4", Fault: "a sweep ignores pins", Kills: "cleanup.honours-pin/pinned", Wrap: sweeping(sweepsPinned)},
		{ID: "C4o", Fault: "a pin holds for one sweep", Kills: "cleanup.honours-pin/pinned", Wrap: pinHoldsOnce},
		{ID: "C5", Fault: "a pin holds past the snapshot's deadline", Kills: "cleanup.pin-expires/swept",
			Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider { return ownDeadlines(p, env, false, true) }},
		{ID: "C6", Fault: "a sweep returns the id of what it kept", Kills: "cleanup.names-destroyed-only/instances", Wrap: sweeping(namesLive)},
		{ID: "C7", Fault: "a sweep destroys what it does not return", Kills: "cleanup.reclaims-expired/named", Wrap: sweeping(sweepsSilently)},
		{ID: "C9", Fault: "destroying an instance again is an error", Kills: "destroy.idempotent/again", Wrap: secondDestroyErrs},
		{ID: "C9u", Fault: "destroying an instance that never was is an error", Kills: "destroy.idempotent/unknown", Wrap: unknownDestroyErrs},
		{ID: "C10", Fault: "what could not be destroyed is returned as swept", Kills: "cleanup.reclaims-expired/gone", Wrap: sweeping(namesUndestroyed)},
		{ID: "C11", Fault: "destroying a snapshot does nothing until the next sweep", Kills: "snapshot.destroyed-is-gone/refused", Wrap: destroysLater},
		{ID: "C12", Fault: "an expired instance is never swept", Kills: "cleanup.reclaims-expired/gone", Wrap: sweeping(forgetsExpired)},
		{ID: "C13", Fault: "a cutoff later than now is taken for now", Kills: "cleanup.future-cutoff/refused", Wrap: sweeping(clampsCutoff)},
		{ID: "C14", Fault: "pins over a thousand are dropped", Kills: "cleanup.honours-all-pins/last", Wrap: sweeping(dropsPins)},
		{ID: "C15", Fault: "pins over the bound are dropped", Kills: "cleanup.too-many-pins/refused", Wrap: sweeping(dropsExcess)},
		{ID: "C18", Fault: "a sweep returns the id of a snapshot that it kept", Kills: "cleanup.honours-pin/named", Wrap: sweeping(namesPinned)},
		{ID: "C19", Fault: "a sweep destroys a snapshot that it does not return", Kills: "cleanup.honours-pin/returned", Wrap: sweeping(sweepsSnapshotsSilently)},
	}
}

// lives are the instances that there are, with their deadlines.
type lives struct {
	mu  sync.Mutex
	all map[sandbox.InstanceID]sandbox.Timestamp
}

func (l *lives) began(id sandbox.InstanceID, deadline sandbox.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[id] = deadline
}

func (l *lives) ended(id sandbox.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, id)
}

// list is the instances whose deadline has passed at now, or has not.
func (l *lives) list(now sandbox.Timestamp, passed bool) (ids []sandbox.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, deadline := range l.all {
		if passed != now.Before(deadline) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// earliest is a moment before the first of the deadlines that have passed, or
// now.
func (l *lives) earliest(now sandbox.Timestamp) sandbox.Timestamp {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, deadline := range l.all {
		if !now.Before(deadline) {
			now = later(deadline, -time.Millisecond)
		}
	}
	return now
}

// fault is one way to get a sweep wrong. p is the provider that gets it right.
type fault func(ctx context.Context, p sandbox.Provider, env *Env, l *lives, q sandbox.CleanupRequest) (sandbox.Swept, error)

func sweeping(f fault) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		l := &lives{all: map[sandbox.InstanceID]sandbox.Timestamp{}}
		return Override{
			Provider: p,
			ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Provision(ctx, q)
				if err == nil {
					l.began(h.Value.InstanceID, q.ExpiresAt)
				}
				return h, err
			},
			ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Resume(ctx, q)
				if err == nil {
					l.began(h.Value.InstanceID, q.Request.ExpiresAt)
				}
				return h, err
			},
			ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Release(ctx, id, q)
				if err == nil {
					l.ended(id)
				}
				return h, err
			},
			DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
				l.ended(id)
				return p.Destroy(ctx, id)
			},
			CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
				return f(ctx, p, env, l, q)
			},
		}
	}
}

func sweepsOneList(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	if err == nil && len(swept.SnapshotIDs) == 0 {
		swept.SnapshotIDs = nil
		env.Fire()
	}
	return swept, err
}

func sweepsLive(ctx context.Context, p sandbox.Provider, env *Env, l *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	for _, id := range l.list(q.Now, false) {
		env.Fire()
		if err := p.Destroy(ctx, id); err != nil {
			return sandbox.Swept{}, err
		}
		l.ended(id)
		swept.InstanceIDs = append(swept.InstanceIDs, id)
	}
	return swept, err
}

func sweepsYounger(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	early := q.OrphanedBefore.Before(q.Now)
	if early {
		q.OrphanedBefore = q.Now
	}
	swept, err := p.Cleanup(ctx, q)
	if early && len(swept.SnapshotIDs) > 0 {
		env.Fire()
	}
	return swept, err
}

func sweepsPinned(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	pins := q.PinnedSnapshots
	if len(pins) <= sandbox.MaxPinnedSnapshots {
		q.PinnedSnapshots = nil
	}
	swept, err := p.Cleanup(ctx, q)
	if slices.ContainsFunc(swept.SnapshotIDs, func(id sandbox.SnapshotID) bool { return slices.Contains(pins, id) }) {
		env.Fire()
	}
	return swept, err
}

func namesLive(ctx context.Context, p sandbox.Provider, env *Env, l *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	if live := l.list(q.Now, false); err == nil && len(live) > 0 {
		env.Fire()
		swept.InstanceIDs = append(swept.InstanceIDs, live...)
	}
	return swept, err
}

func sweepsSilently(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	if len(swept.InstanceIDs) > 0 {
		env.Fire()
		swept.InstanceIDs = []sandbox.InstanceID{}
	}
	return swept, err
}

func namesPinned(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	if n := len(q.PinnedSnapshots); err == nil && n == 1 {
		env.Fire()
		swept.SnapshotIDs = append(swept.SnapshotIDs, q.PinnedSnapshots...)
	}
	return swept, err
}

func sweepsSnapshotsSilently(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept, err := p.Cleanup(ctx, q)
	if len(swept.SnapshotIDs) > 0 {
		env.Fire()
		swept.SnapshotIDs = []sandbox.SnapshotID{}
	}
	return swept, err
}

// forgetsExpired lets the provider inside sweep as of a time at which nothing
// had expired.
func forgetsExpired(ctx context.Context, p sandbox.Provider, env *Env, l *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	if early := l.earliest(q.Now); early != q.Now {
		env.Fire()
		q.Now = early
		if early.Before(q.OrphanedBefore) {
			q.OrphanedBefore = early
		}
	}
	return p.Cleanup(ctx, q)
}

func namesUndestroyed(ctx context.Context, p sandbox.Provider, env *Env, l *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	stuck := l.list(q.Now, true)
	swept, err := forgetsExpired(ctx, p, env, l, q)
	if err == nil {
		swept.InstanceIDs = append(swept.InstanceIDs, stuck...)
	}
	return swept, err
}

func clampsCutoff(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	if q.Now.Before(q.OrphanedBefore) {
		env.Fire()
		q.OrphanedBefore = q.Now
	}
	return p.Cleanup(ctx, q)
}

func dropsPins(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	const kept = 1000
	if n := len(q.PinnedSnapshots); n > kept && n <= sandbox.MaxPinnedSnapshots {
		env.Fire()
		q.PinnedSnapshots = q.PinnedSnapshots[:kept]
	}
	return p.Cleanup(ctx, q)
}

func dropsExcess(ctx context.Context, p sandbox.Provider, env *Env, _ *lives, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	if len(q.PinnedSnapshots) > sandbox.MaxPinnedSnapshots {
		env.Fire()
		q.PinnedSnapshots = q.PinnedSnapshots[:sandbox.MaxPinnedSnapshots]
	}
	return p.Cleanup(ctx, q)
}

func pinHoldsOnce(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	held := map[sandbox.SnapshotID]bool{}
	return Override{Provider: p, CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
		mu.Lock()
		defer mu.Unlock()
		n := len(q.PinnedSnapshots)
		q.PinnedSnapshots = slices.DeleteFunc(slices.Clone(q.PinnedSnapshots), func(id sandbox.SnapshotID) bool { return held[id] })
		if len(q.PinnedSnapshots) < n {
			env.Fire()
		}
		for _, id := range q.PinnedSnapshots {
			held[id] = true
		}
		return p.Cleanup(ctx, q)
	}}
}

func secondDestroyErrs(p sandbox.Provider, env *Env) sandbox.Provider {
	var gone sync.Map
	return Override{Provider: p, DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
		if _, again := gone.LoadOrStore(id, true); again {
			env.Fire()
			return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonNotFound, nil)
		}
		return p.Destroy(ctx, id)
	}}
}

func unknownDestroyErrs(p sandbox.Provider, env *Env) sandbox.Provider {
	var ids sync.Map
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Provision(ctx, q)
			ids.Store(h.Value.InstanceID, true)
			return h, err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			ids.Store(h.Value.InstanceID, true)
			return h, err
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			if _, known := ids.Load(id); !known {
				env.Fire()
				return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonNotFound, nil)
			}
			return p.Destroy(ctx, id)
		},
	}
}

// destroysLater keeps what was to be destroyed until somebody sweeps.
func destroysLater(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	var dead []sandbox.SnapshotID
	return Override{
		Provider: p,
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			mu.Lock()
			defer mu.Unlock()
			env.Fire()
			dead = append(dead, id)
			return ctx.Err()
		},
		CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range dead {
				if err := p.DestroySnapshot(ctx, id); err != nil {
					return sandbox.Swept{}, err
				}
			}
			dead = nil
			return p.Cleanup(ctx, q)
		},
	}
}
