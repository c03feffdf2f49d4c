package sandboxtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// unseal makes every read-only mount of a request writable.
func unseal(q *sandbox.ProvisionRequest) bool {
	found := false
	q.Mounts = slices.Clone(q.Mounts)
	for i := range q.Mounts {
		found = found || q.Mounts[i].Access == sandbox.AccessReadOnly
		q.Mounts[i].Access = sandbox.AccessReadWrite
	}
	return found
}

// stagedAs changes what is written; where drop is set it is not written at all.
func stagedAs(change func(w *sandbox.FileWrite) bool, drop bool) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			if change(&w) {
				env.Fire()
				if drop {
					return nil
				}
			}
			return p.WriteFile(ctx, id, w)
		}}
	}
}

// settledAs changes what a command settled with.
func settledAs(change func(c sandbox.Command, s *sandbox.Settlement) bool) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			s, err := p.Execute(ctx, id, c)
			if err == nil && change(c, &s) {
				env.Fire()
			}
			return s, err
		}}
	}
}

// onlyStaged reads back what came through the port and nothing else.
func onlyStaged(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	staged := map[string]bool{}
	return Override{
		Provider: p,
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			mu.Lock()
			staged[string(id)+w.Path] = true
			mu.Unlock()
			return p.WriteFile(ctx, id, w)
		},
		ReadFileFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
			content, err := p.ReadFile(ctx, id, q)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !staged[string(id)+q.Path] {
				env.Fire()
				return nil, sandbox.FailedAt(sandbox.OpReadFile, q.Path, sandbox.ReasonNotFound, nil)
			}
			return content, err
		},
	}
}

// atActivation does something to an instance just before it is sealed.
func atActivation(f func(ctx context.Context, p sandbox.Provider, q sandbox.ProvisionRequest, id sandbox.InstanceID) bool) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		o, asks := remembering(p)
		o.ActivateFunc = func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			if q, ours := asks.get(id); ours && f(ctx, p, q, id) {
				env.Fire()
			}
			return p.Activate(ctx, id)
		}
		return o
	}
}

// resumedAs runs a script in every instance that comes from a snapshot.
func resumedAs(script string) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			if err != nil {
				return h, err
			}
			if _, ok := inside(ctx, p, h.Value.InstanceID, script, nil); ok {
				env.Fire()
			}
			return h, nil
		}}
	}
}

// recapturing resumes another capture of a released instance than was asked for.
func recapturing(choose func(all []sandbox.Snapshot) sandbox.Snapshot) func(p sandbox.Provider, env *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var mu sync.Mutex
		taken, released := map[sandbox.InstanceID][]sandbox.Snapshot{}, map[sandbox.InstanceID]bool{}
		keep := func(s sandbox.Snapshot) {
			mu.Lock()
			defer mu.Unlock()
			taken[s.SourceInstanceID] = append(taken[s.SourceInstanceID], s)
		}
		return Override{
			Provider: p,
			SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
				h, err := p.Snapshot(ctx, id, q)
				if err == nil {
					keep(h.Value)
				}
				return h, err
			},
			ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Release(ctx, id, q)
				if err == nil && h.Value.Snapshot != nil {
					keep(*h.Value.Snapshot)
					mu.Lock()
					defer mu.Unlock()
					released[id] = true
				}
				return h, err
			},
			ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
				mu.Lock()
				if all := taken[q.Snapshot.SourceInstanceID]; released[q.Snapshot.SourceInstanceID] {
					if other := choose(all); other.SnapshotID != q.Snapshot.SnapshotID && other.SessionID == q.Snapshot.SessionID && other.ExpiresAt == q.Snapshot.ExpiresAt {
						q.Snapshot = other
						env.Fire()
					}
				}
				mu.Unlock()
				return p.Resume(ctx, q)
			},
		}
	}
}

// hiding says of a released zero-retention instance that there is none, and
// keeps it.
func hiding(p sandbox.Provider, env *Env) sandbox.Provider {
	o, asks := remembering(p)
	var gone sync.Map
	is := func(op sandbox.Operation, id sandbox.InstanceID) error {
		if _, ok := gone.Load(id); ok {
			return sandbox.NoInstance(op, id)
		}
		return nil
	}
	o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
		if err := is(sandbox.OpRelease, id); err != nil {
			return sandbox.Handoff[sandbox.Released]{}, err
		}
		if asked, ours := asks.get(id); !ours || asked.Profile.RetentionMode == sandbox.RetentionDurable {
			return p.Release(ctx, id, q)
		}
		env.Fire()
		gone.Store(id, true)
		return sandbox.Handoff[sandbox.Released]{Value: sandbox.Released{Disposition: sandbox.DispositionDestroyed}, Rollback: func(context.Context) error { return nil }}, nil
	}
	o.WriteFileFunc = func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
		if err := is(sandbox.OpWriteFile, id); err != nil {
			return err
		}
		return p.WriteFile(ctx, id, w)
	}
	o.ActivateFunc = func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
		if err := is(sandbox.OpActivate, id); err != nil {
			return sandbox.Handoff[sandbox.Instance]{}, err
		}
		return p.Activate(ctx, id)
	}
	o.ExecuteFunc = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		if err := is(sandbox.OpExecute, id); err != nil {
			return sandbox.Settlement{}, err
		}
		return p.Execute(ctx, id, c)
	}
	o.ReadFileFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
		if err := is(sandbox.OpReadFile, id); err != nil {
			return nil, err
		}
		return p.ReadFile(ctx, id, q)
	}
	o.SnapshotFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		if err := is(sandbox.OpSnapshot, id); err != nil {
			return sandbox.Handoff[sandbox.Snapshot]{}, err
		}
		return p.Snapshot(ctx, id, q)
	}
	o.Members = func(o *sandbox.Optional) { *o = sandbox.Optional{} }
	return o
}

// lasting keeps a snapshot an hour longer than it says.
func lasting(p sandbox.Provider, env *Env) sandbox.Provider {
	inner := func(s sandbox.Snapshot) sandbox.Snapshot { s.ExpiresAt = later(s.ExpiresAt, time.Hour); return s }
	said := func(s sandbox.Snapshot) sandbox.Snapshot { s.ExpiresAt = later(s.ExpiresAt, -time.Hour); return s }
	return Override{
		Provider: p,
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later(q.ExpiresAt, time.Hour)})
			if err == nil {
				env.Fire()
				h.Value = said(h.Value)
			}
			return h, err
		},
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			if q.ExpiresAt != "" {
				q.ExpiresAt = later(q.ExpiresAt, time.Hour)
			}
			h, err := p.Release(ctx, id, q)
			if err == nil && h.Value.Snapshot != nil {
				s := said(*h.Value.Snapshot)
				h.Value.Snapshot = &s
			}
			return h, err
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			q.Snapshot = inner(q.Snapshot)
			h, err := p.CloneSnapshot(ctx, q)
			if err == nil {
				h.Value = said(h.Value)
			}
			return h, err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			q.Snapshot = inner(q.Snapshot)
			return p.Resume(ctx, q)
		},
	}
}

// bleeding runs again in an instance of a checkpoint what was run in instances
// of its clones.
func bleeding(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	source := map[sandbox.SnapshotID]sandbox.SnapshotID{} // of a clone
	from := map[sandbox.InstanceID]sandbox.SnapshotID{}   // the checkpoint whose clone it came from
	ran := map[sandbox.SnapshotID][]sandbox.Command{}
	return Override{
		Provider: p,
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.CloneSnapshot(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			source[h.Value.SnapshotID] = q.Snapshot.SnapshotID
			return h, err
		},
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			mu.Lock()
			if checkpoint, ok := from[id]; ok {
				ran[checkpoint] = append(ran[checkpoint], c)
			}
			mu.Unlock()
			return p.Execute(ctx, id, c)
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			if err != nil {
				return h, err
			}
			mu.Lock()
			if checkpoint, ok := source[q.Snapshot.SnapshotID]; ok {
				from[h.Value.InstanceID] = checkpoint
			}
			again := slices.Clone(ran[q.Snapshot.SnapshotID])
			mu.Unlock()
			for _, c := range again {
				env.Fire()
				_, _ = p.Execute(ctx, h.Value.InstanceID, c)
			}
			return h, nil
		},
	}
}

// leftovers puts the names of a released output tree into the next machine's.
func leftovers(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	names := ""
	return Override{
		Provider: p,
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			list, _ := inside(ctx, p, id, "ls -A "+sandbox.OutputPath, nil)
			h, err := p.Release(ctx, id, q)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				names = string(list)
			}
			return h, err
		},
		ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Activate(ctx, id)
			mu.Lock()
			list := names
			mu.Unlock()
			if err == nil && list != "" {
				env.Fire()
				_, _ = inside(ctx, p, id, "cd "+sandbox.OutputPath+" && while read f; do echo > \"$f\"; done", []byte(list))
			}
			return h, err
		},
	}
}
