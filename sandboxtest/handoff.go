package sandboxtest

import (
	"context"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// handoffFaults are wrong in the handoff of an allocation, or in what follows
// where one did not come to its end.
func handoffFaults() []Saboteur {
	list := []Saboteur{
		{ID: "H1", Fault: "no rollback member where there is nothing left to undo", Kills: "handoff.rollback", Suite: report.Faults, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Release(ctx, id, q)
				if err == nil && h.Value.Snapshot == nil {
					env.Fire()
					h.Rollback = nil
				}
				return h, err
			}}
		}},
		{ID: "H2", Fault: "rollback takes its id from the value", Kills: "rollback.cold/neighbour", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Release(ctx, id, q)
				if s := h.Value.Snapshot; err == nil && s != nil {
					h.Rollback = func(ctx context.Context) error {
						env.Fire()
						return p.DestroySnapshot(ctx, s.SnapshotID)
					}
				}
				return h, err
			}}
		}},
		{ID: "H3", Fault: "rollback of a machine with staged files never returns", Kills: "rollback.staged/in-time", Wrap: hangStaged},
		{ID: "H7", Fault: "rollback takes every machine of the lease", Kills: "rollback.spares-neighbour", Wrap: rollbackLease},
		{ID: "H8", Fault: "a caller that goes away leaves a machine", Kills: "interrupted.provision/census", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Provision(context.WithoutCancel(ctx), q)
				return unlessGone(ctx, env, h, err)
			}}
		}},
		{ID: "H9", Fault: "a provision that fails on its mounts leaves the rest", Kills: "interrupted.refused-provision/census", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Provision(ctx, q)
				if err != nil && len(q.Mounts) > 0 {
					q.Mounts = nil
					if _, half := p.Provision(ctx, q); half == nil {
						env.Fire()
					}
				}
				return h, err
			}}
		}},
		{ID: "H10", Fault: "a provision that is sent again allocates twice", Kills: "redelivered.provision/census", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var attempts set[string]
			return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				if !attempts.add(q.AttemptID) {
					if _, err := p.Provision(ctx, q); err == nil {
						env.Fire()
					}
				}
				return p.Provision(ctx, q)
			}}
		}},
		{ID: "H13", Fault: "rollback of a release brings the machine back", Kills: "rollback.release-ends/gone", Wrap: returnReleased},
		{ID: "H14", Fault: "a creation that is rolled back keeps its place in the quota", Kills: "interrupted.failed-provisions", Wrap: exhaust},
		{ID: "H21", Fault: "what was rolled back is swept again", Kills: "rollback.unswept", Wrap: sweepAgain},
		{ID: "H22", Fault: "a later delivery of destroy errors", Kills: "redelivered.destroy", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var once, twice set[sandbox.InstanceID]
			return Override{Provider: p, DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
				if !once.add(id) && !twice.add(id) {
					env.Fire()
					return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonNotFound, nil)
				}
				return p.Destroy(ctx, id)
			}}
		}},
		{ID: "H23", Fault: "a later delivery of destroySnapshot errors", Kills: "redelivered.destroy-snapshot", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var once, twice set[sandbox.SnapshotID]
			return Override{Provider: p, DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
				if !once.add(id) && !twice.add(id) {
					env.Fire()
					return sandbox.Failed(sandbox.OpDestroySnapshot, sandbox.ReasonNotFound, nil)
				}
				return p.DestroySnapshot(ctx, id)
			}}
		}},
		{ID: "H24", Fault: "a destroy under a running command is lost", Kills: "interrupted.destroy-running", Wrap: loseBusyDestroy},
		{ID: "H25", Fault: "the destroy of a machine with staged files is lost", Kills: "interrupted.destroy-staged", Wrap: loseStagedDestroy},
		{ID: "H26", Fault: "two activations succeed", Kills: "concurrent.activate/one", Wrap: activateTwice},
		{ID: "H27", Fault: "one of many machines outlives its destroy", Kills: "concurrent.provision/gone", Wrap: forgetOneOfMany},
		{ID: "H30", Fault: "a caller that goes away leaves a snapshot", Kills: "interrupted.snapshot/census", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
				h, err := p.Snapshot(context.WithoutCancel(ctx), id, q)
				return unlessGone(ctx, env, h, err)
			}}
		}},
		{ID: "H31", Fault: "a caller that goes away leaves a resumed machine", Kills: "interrupted.resume/census", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Resume(context.WithoutCancel(ctx), q)
				return unlessGone(ctx, env, h, err)
			}}
		}},
		{ID: "H32", Fault: "a cleanup by age never comes back", Kills: "calls.answered", Suite: report.Faults, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
				if q.OrphanedBefore > "1971" {
					env.Fire()
					env.Hang()
				}
				return p.Cleanup(ctx, q)
			}}
		}},
		{ID: "H28", Fault: "a machine that was rolled back is hidden and still there", Kills: "rollback.provision/census", Wrap: hideProvision},
	}
	return append(append(list, rollbackFaults()...), restartFaults()...)
}

// unlessGone drops what nobody waits for any more, without giving it back.
func unlessGone[T any](ctx context.Context, env *Env, h sandbox.Handoff[T], err error) (sandbox.Handoff[T], error) {
	if err == nil && ctx.Err() != nil {
		env.Fire()
		return sandbox.Handoff[T]{}, ctx.Err()
	}
	return h, err
}

// compensate is a provider of which the compensation of single members is
// replaced. Each function gets the allocation's own rollback.
type compensate struct {
	provision func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error
	activate  func(i sandbox.Instance, rollback func(context.Context) error) func(context.Context) error
	snapshot  func(s sandbox.Snapshot, rollback func(context.Context) error) func(context.Context) error
	clone     func(q sandbox.CloneRequest, rollback func(context.Context) error) func(context.Context) error
	release   func(r sandbox.Released, rollback func(context.Context) error) func(context.Context) error
	resume    func(q sandbox.ResumeRequest, rollback func(context.Context) error) func(context.Context) error
}

func (c compensate) wrap(p sandbox.Provider) Override {
	o := Override{Provider: p}
	if c.provision != nil {
		o.ProvisionFunc = func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Provision(ctx, q)
			return replaced(h, err, func(r func(context.Context) error) func(context.Context) error { return c.provision(h.Value, r) })
		}
	}
	if c.activate != nil {
		o.ActivateFunc = func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Activate(ctx, id)
			return replaced(h, err, func(r func(context.Context) error) func(context.Context) error { return c.activate(h.Value, r) })
		}
	}
	if c.snapshot != nil {
		o.SnapshotFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.Snapshot(ctx, id, q)
			return replaced(h, err, func(r func(context.Context) error) func(context.Context) error { return c.snapshot(h.Value, r) })
		}
	}
	if c.clone != nil {
		o.CloneSnapshotFunc = func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.CloneSnapshot(ctx, q)
			return replaced(h, err, func(r func(context.Context) error) func(context.Context) error { return c.clone(q, r) })
		}
	}
	if c.release != nil {
		o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			h, err := p.Release(ctx, id, q)
			return replaced(h, err, func(r func(context.Context) error) func(context.Context) error { return c.release(h.Value, r) })
		}
	}
	if c.resume != nil {
		o.ResumeFunc = func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			return replaced(h, err, func(r func(context.Context) error) func(context.Context) error { return c.resume(q, r) })
		}
	}
	return o
}

func replaced[T any](h sandbox.Handoff[T], err error, by func(func(context.Context) error) func(context.Context) error) (sandbox.Handoff[T], error) {
	if err == nil {
		h.Rollback = by(h.Rollback)
	}
	return h, err
}

// set is a set for many goroutines. The zero value is empty.
type set[K comparable] struct {
	mu sync.Mutex
	in map[K]bool
}

// add reports whether k was not in there.
func (s *set[K]) add(k K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in[k] {
		return false
	}
	if s.in == nil {
		s.in = map[K]bool{}
	}
	s.in[k] = true
	return true
}

func (s *set[K]) has(k K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in[k]
}

func (s *set[K]) drop(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.in, k)
}

func (s *set[K]) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.in)
}
