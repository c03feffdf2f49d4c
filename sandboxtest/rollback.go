package sandboxtest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/checkfu/checkfu/sandbox"
)

// rollbackFaults are wrong in one of the six compensations.
func rollbackFaults() []Saboteur {
	// settled does not do what it should and says that it did.
	settled := func(env *Env) func(context.Context) error {
		return func(context.Context) error { env.Fire(); return nil }
	}
	// after does what it should and then something else.
	after := func(env *Env, rollback, more func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			err := rollback(ctx)
			env.Fire()
			if extra := more(ctx); extra != nil {
				err = extra
			}
			return err
		}
	}
	fault := func(id, what, kills string, c func(p sandbox.Provider, env *Env) compensate) Saboteur {
		return Saboteur{ID: id, Fault: what, Kills: kills, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider { return c(p, env).wrap(p) }}
	}
	type undo = func(context.Context) error
	return []Saboteur{
		fault("H4", "rollback throws", "rollback.provision/settles", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{provision: func(_ sandbox.Instance, r undo) undo {
				return after(env, r, func(context.Context) error {
					return sandbox.Failed(sandbox.OpProvision+"_rollback", sandbox.ReasonProviderError, nil)
				})
			}}
		}),
		fault("H5", "a second rollback errors", "rollback.again/provision", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{provision: func(_ sandbox.Instance, r undo) undo {
				var done atomic.Bool
				return func(ctx context.Context) error {
					if done.Swap(true) {
						env.Fire()
						return sandbox.Failed(sandbox.OpProvision+"_rollback", sandbox.ReasonNotFound, nil)
					}
					return r(ctx)
				}
			}}
		}),
		fault("H6", "rollback of a provision says done and leaks", "rollback.provision/gone", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{provision: func(sandbox.Instance, undo) undo { return settled(env) }}
		}),
		fault("H11", "rollback of a clone deletes the source", "rollback.clone-keeps-source", func(p sandbox.Provider, env *Env) compensate {
			return compensate{clone: func(q sandbox.CloneRequest, r undo) undo {
				return after(env, r, func(ctx context.Context) error { return p.DestroySnapshot(ctx, q.Snapshot.SnapshotID) })
			}}
		}),
		fault("H12", "rollback of a resumption deletes the snapshot", "rollback.resume-keeps-snapshot", func(p sandbox.Provider, env *Env) compensate {
			return compensate{resume: func(q sandbox.ResumeRequest, r undo) undo {
				return after(env, r, func(ctx context.Context) error { return p.DestroySnapshot(ctx, q.Snapshot.SnapshotID) })
			}}
		}),
		fault("H15", "rollback of an activation leaves the machine running", "rollback.activate/gone", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{activate: func(sandbox.Instance, undo) undo { return settled(env) }}
		}),
		fault("H16", "rollback of a snapshot leaks", "rollback.snapshot/gone", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{snapshot: func(sandbox.Snapshot, undo) undo { return settled(env) }}
		}),
		fault("H17", "rollback of a snapshot takes the machine", "rollback.snapshot-keeps-machine", func(p sandbox.Provider, env *Env) compensate {
			return compensate{snapshot: func(s sandbox.Snapshot, r undo) undo {
				return after(env, r, func(ctx context.Context) error { return p.Destroy(ctx, s.SourceInstanceID) })
			}}
		}),
		fault("H18", "rollback of a clone leaks", "rollback.clone/gone", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{clone: func(sandbox.CloneRequest, undo) undo { return settled(env) }}
		}),
		fault("H19", "rollback of a resumption leaks", "rollback.resume/gone", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{resume: func(sandbox.ResumeRequest, undo) undo { return settled(env) }}
		}),
		fault("H20", "rollback of a release strands the snapshot", "rollback.release/gone", func(_ sandbox.Provider, env *Env) compensate {
			return compensate{release: func(sandbox.Released, undo) undo { return settled(env) }}
		}),
	}
}

// hangStaged never returns from the rollback of a machine that holds a file.
func hangStaged(p sandbox.Provider, env *Env) sandbox.Provider {
	var staged set[sandbox.InstanceID]
	o := compensate{provision: func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if staged.has(i.InstanceID) {
				env.Fire()
				env.Hang()
			}
			return rollback(ctx)
		}
	}}.wrap(p)
	o.WriteFileFunc = func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
		err := p.WriteFile(ctx, id, w)
		if err == nil {
			staged.add(id)
		}
		return err
	}
	return o
}

// rollbackLease rolls back by the lease, not by the allocation.
func rollbackLease(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	leases := map[string][]sandbox.InstanceID{}
	return compensate{provision: func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		leases[i.LeaseID] = append(leases[i.LeaseID], i.InstanceID)
		return func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range leases[i.LeaseID] {
				if id != i.InstanceID {
					env.Fire()
					_ = p.Destroy(ctx, id)
				}
			}
			return rollback(ctx)
		}
	}}.wrap(p)
}

// exhaust has four places for each lease and does not free one whose creation
// was rolled back.
func exhaust(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	used := map[string]int{}
	o := compensate{provision: func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			mu.Lock()
			used[i.LeaseID]++
			mu.Unlock()
			return rollback(ctx)
		}
	}}.wrap(p)
	provision := o.ProvisionFunc
	o.ProvisionFunc = func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		mu.Lock()
		full := used[q.LeaseID] >= 4
		mu.Unlock()
		if full {
			env.Fire()
			return sandbox.Handoff[sandbox.Instance]{}, sandbox.Unavailable(sandbox.OpProvision, sandbox.RequireResources, "a machine", "none left")
		}
		return provision(ctx, q)
	}
	return o
}

// returnReleased keeps what a zero-retention release destroyed until nobody
// can roll it back, and gives it back to whoever does.
func returnReleased(p sandbox.Provider, env *Env) sandbox.Provider {
	var hidden set[sandbox.InstanceID]
	return Override{
		Provider: p,
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			if q.ExpiresAt != "" {
				return p.Release(ctx, id, q)
			}
			hidden.add(id)
			return sandbox.Handoff[sandbox.Released]{
				Value:    sandbox.Released{Disposition: sandbox.DispositionDestroyed},
				Rollback: func(context.Context) error { env.Fire(); hidden.drop(id); return nil },
			}, nil
		},
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			if hidden.has(id) {
				return sandbox.NoInstance(sandbox.OpWriteFile, id)
			}
			return p.WriteFile(ctx, id, w)
		},
	}
}

// hideProvision only hides what is rolled back.
func hideProvision(p sandbox.Provider, env *Env) sandbox.Provider {
	var hidden set[sandbox.InstanceID]
	o := compensate{provision: func(i sandbox.Instance, _ func(context.Context) error) func(context.Context) error {
		return func(context.Context) error { env.Fire(); hidden.add(i.InstanceID); return nil }
	}}.wrap(p)
	o.WriteFileFunc = func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
		if hidden.has(id) {
			return sandbox.NoInstance(sandbox.OpWriteFile, id)
		}
		return p.WriteFile(ctx, id, w)
	}
	return o
}

// sweepAgain keeps the record of what was rolled back.
func sweepAgain(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	records := map[sandbox.InstanceID]sandbox.Timestamp{}
	o := compensate{provision: func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			mu.Lock()
			records[i.InstanceID] = i.ExpiresAt
			mu.Unlock()
			return rollback(ctx)
		}
	}}.wrap(p)
	o.CleanupFunc = func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
		got, err := p.Cleanup(ctx, q)
		mu.Lock()
		defer mu.Unlock()
		for id, expires := range records {
			if err == nil && !q.Now.Before(expires) {
				env.Fire()
				got.InstanceIDs = append(got.InstanceIDs, id)
				delete(records, id)
			}
		}
		return got, err
	}
	return o
}
