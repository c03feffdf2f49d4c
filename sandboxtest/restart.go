package sandboxtest

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// restartFaults are wrong only once the provider was started again.
func restartFaults() []Saboteur {
	return []Saboteur{
		{ID: "C8", Fault: "orphans are forgotten by a restart", Kills: "restarted.cleanup", Restarted: forgetOrphans},
		{ID: "H29", Fault: "ids from before a restart cannot be destroyed", Kills: "restarted.destroy", Restarted: forgetInstances},
		{
			ID: "E15", Fault: "snapshot_custody provider, and the bytes die with the process", Kills: "restarted.snapshot",
			Wrap:      func(p sandbox.Provider, _ *Env) sandbox.Provider { return custodian(p) },
			Restarted: forgetSnapshots,
		},
	}
}

// forgetOrphans sweeps nothing until it has made a machine of its own.
func forgetOrphans(p sandbox.Provider, env *Env) sandbox.Provider {
	var ours set[sandbox.InstanceID]
	o := made(p, &ours)
	o.CleanupFunc = func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
		if ours.size() == 0 {
			env.Fire()
			return sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}, nil
		}
		return p.Cleanup(ctx, q)
	}
	return o
}

// forgetInstances takes the destroy of what it has not made for a repetition.
func forgetInstances(p sandbox.Provider, env *Env) sandbox.Provider {
	var ours set[sandbox.InstanceID]
	o := made(p, &ours)
	o.DestroyFunc = func(ctx context.Context, id sandbox.InstanceID) error {
		if !ours.has(id) {
			env.Fire()
			return nil
		}
		return p.Destroy(ctx, id)
	}
	return o
}

// made notes which machines are made from now on.
func made(p sandbox.Provider, ids *set[sandbox.InstanceID]) Override {
	note := func(h sandbox.Handoff[sandbox.Instance], err error) (sandbox.Handoff[sandbox.Instance], error) {
		if err == nil {
			ids.add(h.Value.InstanceID)
		}
		return h, err
	}
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return note(p.Provision(ctx, q))
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return note(p.Resume(ctx, q))
		},
	}
}

// custodian claims that its snapshots survive it.
func custodian(p sandbox.Provider) Override {
	return Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
		c, err := p.Capabilities(ctx)
		c.SnapshotCustody = sandbox.CustodyProvider
		return c, err
	}}
}

// forgetSnapshots knows only the snapshots that it has taken itself.
func forgetSnapshots(p sandbox.Provider, env *Env) sandbox.Provider {
	var ours set[sandbox.SnapshotID]
	o := custodian(p)
	note := func(h sandbox.Handoff[sandbox.Snapshot], err error) (sandbox.Handoff[sandbox.Snapshot], error) {
		if err == nil {
			ours.add(h.Value.SnapshotID)
		}
		return h, err
	}
	o.SnapshotFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		return note(p.Snapshot(ctx, id, q))
	}
	o.CloneSnapshotFunc = func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		return note(p.CloneSnapshot(ctx, q))
	}
	o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
		h, err := p.Release(ctx, id, q)
		if err == nil && h.Value.Snapshot != nil {
			ours.add(h.Value.Snapshot.SnapshotID)
		}
		return h, err
	}
	o.ResumeFunc = func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		if !ours.has(q.Snapshot.SnapshotID) {
			env.Fire()
			return sandbox.Handoff[sandbox.Instance]{}, sandbox.NoSnapshot(sandbox.OpResume, q.Snapshot.SnapshotID)
		}
		return p.Resume(ctx, q)
	}
	return o
}

// loseBusyDestroy loses the destroy of a machine that runs a command.
func loseBusyDestroy(p sandbox.Provider, env *Env) sandbox.Provider {
	var busy set[sandbox.InstanceID]
	return Override{
		Provider: p,
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			busy.add(id)
			defer busy.drop(id)
			return p.Execute(ctx, id, c)
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			if busy.has(id) {
				env.Fire()
				return nil
			}
			return p.Destroy(ctx, id)
		},
	}
}

// loseStagedDestroy loses the destroy of a machine with files that does not
// run yet.
func loseStagedDestroy(p sandbox.Provider, env *Env) sandbox.Provider {
	var staged, active set[sandbox.InstanceID]
	return Override{
		Provider: p,
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			err := p.WriteFile(ctx, id, w)
			if err == nil {
				staged.add(id)
			}
			return err
		},
		ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Activate(ctx, id)
			if err == nil {
				active.add(id)
			}
			return h, err
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			if staged.has(id) && !active.has(id) {
				env.Fire()
				return nil
			}
			return p.Destroy(ctx, id)
		},
	}
}

// activateTwice says active to whoever asks again.
func activateTwice(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	first := map[sandbox.InstanceID]sandbox.Handoff[sandbox.Instance]{}
	return Override{Provider: p, ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
		mu.Lock()
		defer mu.Unlock()
		if h, again := first[id]; again {
			env.Fire()
			return h, nil
		}
		h, err := p.Activate(ctx, id)
		if err == nil {
			first[id] = h
		}
		return h, err
	}}
}

// forgetOneOfMany loses a destroy while six machines live that were provisioned
// and not rolled back.
func forgetOneOfMany(p sandbox.Provider, env *Env) sandbox.Provider {
	var live set[sandbox.InstanceID]
	o := compensate{provision: func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error {
		live.add(i.InstanceID)
		return func(ctx context.Context) error {
			live.drop(i.InstanceID)
			return rollback(ctx)
		}
	}}.wrap(p)
	o.DestroyFunc = func(ctx context.Context, id sandbox.InstanceID) error {
		many := live.has(id) && live.size() >= 6
		live.drop(id)
		if many {
			env.Fire()
			return nil
		}
		return p.Destroy(ctx, id)
	}
	return o
}
