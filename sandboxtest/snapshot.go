package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// snapshotFaults are wrong in snapshots, clones and resumption.
func snapshotFaults() []Saboteur {
	return append(referenceFaults(),
		Saboteur{ID: "N14", Fault: "a clone goes with its source", Kills: "clone.outlives-source/resumes", Wrap: cloneDiesWithSource},
		Saboteur{ID: "N15", Fault: "what is written over a clone shows in its source", Kills: "clone.independent/source",
			Wrap: sharedWrites(func(l *lineage, s sandbox.SnapshotID) []sandbox.SnapshotID { return l.clones[s] })},
		Saboteur{ID: "N15b", Fault: "what is written over a source shows in its clone", Kills: "clone.independent/clone",
			Wrap: sharedWrites(func(l *lineage, s sandbox.SnapshotID) []sandbox.SnapshotID { return l.sources[s] })},
		Saboteur{ID: "N16", Fault: "the home directory is lost on resume", Kills: "snapshot.keeps-files/home",
			Wrap: resumeLoses(func(sandbox.ProvisionRequest) []string { return []string{sandbox.HomePath} })},
		Saboteur{ID: "N16m", Fault: "read-write mounts are lost on resume", Kills: "snapshot.keeps-files/read-write-mount", Wrap: resumeLoses(openMounts)},
		Saboteur{ID: "N16o", Fault: "the output tree is lost on resume", Kills: "snapshot.keeps-files/output-tree",
			Wrap: resumeLoses(func(sandbox.ProvisionRequest) []string { return []string{sandbox.OutputPath} })},
		Saboteur{ID: "N17", Fault: "a snapshot resumes in another Workspace", Kills: "resume.mismatch/workspace", Wrap: resumesForOthers(
			func(q *sandbox.ResumeRequest, _ bool) bool {
				differs := q.Request.WorkspaceID != q.Snapshot.WorkspaceID
				q.Request.WorkspaceID = q.Snapshot.WorkspaceID
				return differs
			})},
		Saboteur{ID: "N17s", Fault: "a snapshot resumes in another Session", Kills: "resume.mismatch/session", Wrap: resumesForOthers(
			func(q *sandbox.ResumeRequest, clone bool) bool {
				if clone || q.Request.SessionID == q.Snapshot.SessionID {
					return false
				}
				q.Request.SessionID = q.Snapshot.SessionID
				return true
			})},
		Saboteur{ID: "N17p", Fault: "a snapshot resumes under another profile", Kills: "resume.mismatch/profile", Wrap: resumesForOthers(
			func(q *sandbox.ResumeRequest, _ bool) bool {
				differs := q.Request.Profile.ProfileID != q.Snapshot.ProfileID
				q.Request.Profile.ProfileID = q.Snapshot.ProfileID
				return differs
			})},
		Saboteur{ID: "N18", Fault: "an expired snapshot resumes", Kills: "resume.expired/refused",
			Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider { return ownDeadlines(p, env, true, false) }},
		Saboteur{ID: "N19", Fault: "the network policy is lost on resume", Kills: "resume.network-policy/denied", Wrap: resumesUnrestricted},
		Saboteur{ID: "N20", Fault: "an instance stays paused once it was captured", Kills: "snapshot.leaves-instance-running/runs", Wrap: staysPaused},
		Saboteur{ID: "N21", Fault: "a snapshot goes with the instance it was taken of", Kills: "snapshot.outlives-instance", Wrap: snapshotDiesWithInstance},
		Saboteur{ID: "N22", Fault: "a snapshot expires with the instance it was taken of", Kills: "snapshot.own-deadline/resumes", Wrap: snapshotExpiresWithInstance},
		Saboteur{ID: "N23", Fault: "a snapshot follows what is written after it", Kills: "snapshot.point-in-time/after", Wrap: snapshotFollows},
		Saboteur{ID: "N24", Fault: "a snapshot is used up by its resumption", Kills: "resume.fresh/again", Wrap: resumeConsumes},
		Saboteur{ID: "N24w", Fault: "machines of one snapshot share what they write", Kills: "resume.fresh/fresh",
			Wrap: sharedWrites(func(_ *lineage, s sandbox.SnapshotID) []sandbox.SnapshotID { return []sandbox.SnapshotID{s} })},
		Saboteur{ID: "N25", Fault: "the third generation of a state is empty", Kills: "resume.cycles/files", Wrap: forgetsGenerations},
		Saboteur{ID: "N26", Fault: "a release settles the last capture instead of the state", Kills: "release.settles-present-state/late", Wrap: settlesOldState},
		Saboteur{ID: "N27", Fault: "destroying a snapshot that never was is an error", Kills: "snapshot.destroy-idempotent/unknown", Wrap: unknownSnapshotErrs},
		Saboteur{ID: "N28", Fault: "destroying a snapshot again is an error", Kills: "snapshot.destroy-idempotent/again", Wrap: secondSnapshotDestroyErrs},
		Saboteur{ID: "N37", Fault: "destroying a snapshot takes the others of its instance", Kills: "snapshot.destroyed-is-gone/other", Wrap: destroysTheOthers},
		Saboteur{ID: "N29", Fault: "a clone cannot be cloned", Kills: "clone.of-clone/clone", Wrap: cloneOfCloneFails},
		Saboteur{ID: "N30", Fault: "a clone resumes in the Session of its source", Kills: "clone.other-session/refused", Wrap: resumesForOthers(
			func(q *sandbox.ResumeRequest, clone bool) bool {
				if !clone || q.Request.SessionID == q.Snapshot.SessionID {
					return false
				}
				q.Request.SessionID = q.Snapshot.SessionID
				return true
			})},
	)
}

func destroysTheOthers(p sandbox.Provider, env *Env) sandbox.Provider {
	var c captures
	return Override{Provider: p, SnapshotFunc: c.take(p), DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
		for _, other := range c.beside(id) {
			env.Fire()
			if err := p.DestroySnapshot(ctx, other); err != nil {
				return err
			}
		}
		return p.DestroySnapshot(ctx, id)
	}}
}

func cloneDiesWithSource(p sandbox.Provider, env *Env) sandbox.Provider {
	l := newLineage()
	return Override{
		Provider: p, CloneSnapshotFunc: l.clone(p),
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			for _, clone := range l.of(func(l *lineage, s sandbox.SnapshotID) []sandbox.SnapshotID { return l.clones[s] }, id) {
				env.Fire()
				if err := p.DestroySnapshot(ctx, clone); err != nil {
					return err
				}
			}
			return p.DestroySnapshot(ctx, id)
		},
	}
}

// sharedWrites shows what was written over machines of related snapshots in
// every machine that is resumed.
func sharedWrites(related func(*lineage, sandbox.SnapshotID) []sandbox.SnapshotID) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		l := newLineage()
		return Override{
			Provider: p, CloneSnapshotFunc: l.clone(p),
			WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
				err := p.WriteFile(ctx, id, w)
				l.mu.Lock()
				defer l.mu.Unlock()
				if s, ok := l.resumed[id]; ok && err == nil {
					l.writes[s] = append(l.writes[s], w)
				}
				return err
			},
			ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Resume(ctx, q)
				if err != nil {
					return h, err
				}
				for _, s := range l.of(related, q.Snapshot.SnapshotID) {
					l.mu.Lock()
					writes := slices.Clone(l.writes[s])
					l.mu.Unlock()
					for _, w := range writes {
						env.Fire()
						_ = p.WriteFile(ctx, h.Value.InstanceID, w)
					}
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.resumed[h.Value.InstanceID] = q.Snapshot.SnapshotID
				return h, nil
			},
		}
	}
}

// script is a command of a saboteur's own inside an instance.
func script(text string) sandbox.Command {
	return sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-c", text}, WorkingDirectory: "/",
		Environment:    map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"},
		TimeoutSeconds: 30, OutputLimitBytes: 1 << 20,
	}
}

// empty removes what lies in dir and reports whether there was something.
func empty(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID, dir string) bool {
	s, err := p.Execute(ctx, id, script("cd "+dir+` && ls -A | while read name; do rm -rf "$name"; echo "$name"; done`))
	return err == nil && len(s.Stdout) > 0
}

func openMounts(q sandbox.ProvisionRequest) (paths []string) {
	for _, m := range q.Mounts {
		if m.Access == sandbox.AccessReadWrite {
			paths = append(paths, m.MountPath)
		}
	}
	return paths
}

func resumeLoses(what func(sandbox.ProvisionRequest) []string) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			if err != nil {
				return h, err
			}
			for _, dir := range what(q.Request) {
				if empty(ctx, p, h.Value.InstanceID, dir) {
					env.Fire()
				}
			}
			return h, nil
		}}
	}
}

// resumesForOthers makes a request fit that does not, and answers as if it did.
// fit is told whether the snapshot is a clone.
func resumesForOthers(fit func(q *sandbox.ResumeRequest, clone bool) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		l := newLineage()
		return Override{
			Provider: p, CloneSnapshotFunc: l.clone(p),
			ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
				asked := q.Request
				clone := len(l.of(func(l *lineage, s sandbox.SnapshotID) []sandbox.SnapshotID { return l.sources[s] }, q.Snapshot.SnapshotID)) > 0
				fitted := fit(&q, clone)
				h, err := p.Resume(ctx, q)
				if fitted && err == nil {
					h.Value.WorkspaceID, h.Value.SessionID, h.Value.Profile = asked.WorkspaceID, asked.SessionID, asked.Profile
					env.Fire()
				}
				return h, err
			},
		}
	}
}

func resumesUnrestricted(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		asked := q.Request.Profile
		if asked.NetworkPolicy.Mode != sandbox.NetworkUnrestricted {
			env.Fire()
		}
		q.Request.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}
		h, err := p.Resume(ctx, q)
		if err == nil {
			h.Value.Profile = asked
		}
		return h, err
	}}
}

func staysPaused(p sandbox.Provider, env *Env) sandbox.Provider {
	var paused sync.Map
	return Override{
		Provider: p,
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.Snapshot(ctx, id, q)
			if err == nil {
				paused.Store(id, true)
			}
			return h, err
		},
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			if _, ok := paused.Load(id); ok {
				env.Fire()
				return sandbox.Settlement{}, sandbox.Conflict(sandbox.OpExecute, string(sandbox.StateActive), sandbox.ActualBusy)
			}
			return p.Execute(ctx, id, c)
		},
	}
}

func snapshotDiesWithInstance(p sandbox.Provider, env *Env) sandbox.Provider {
	var taken captures
	return Override{
		Provider: p, SnapshotFunc: taken.take(p),
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			for _, s := range taken.of(id) {
				env.Fire()
				if err := p.DestroySnapshot(ctx, s.SnapshotID); err != nil {
					return err
				}
			}
			return p.Destroy(ctx, id)
		},
	}
}

func snapshotExpiresWithInstance(p sandbox.Provider, env *Env) sandbox.Provider {
	var deadlines sync.Map // instance → its deadline
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Provision(ctx, q)
			if err == nil {
				deadlines.Store(h.Value.InstanceID, q.ExpiresAt)
			}
			return h, err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			if deadline, ok := deadlines.Load(q.Snapshot.SourceInstanceID); ok && !sandbox.At(env.Now()).Before(deadline.(sandbox.Timestamp)) {
				env.Fire()
				return sandbox.Handoff[sandbox.Instance]{}, sandbox.NoSnapshot(sandbox.OpResume, q.Snapshot.SnapshotID)
			}
			return p.Resume(ctx, q)
		},
	}
}

func snapshotFollows(p sandbox.Provider, env *Env) sandbox.Provider {
	var taken captures
	var mu sync.Mutex
	after := map[sandbox.SnapshotID][]sandbox.FileWrite{}
	return Override{
		Provider: p, SnapshotFunc: taken.take(p),
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			err := p.WriteFile(ctx, id, w)
			mu.Lock()
			defer mu.Unlock()
			for _, s := range taken.of(id) {
				after[s.SnapshotID] = append(after[s.SnapshotID], w)
			}
			return err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			h, err := p.Resume(ctx, q)
			mu.Lock()
			defer mu.Unlock()
			for _, w := range after[q.Snapshot.SnapshotID] {
				if err == nil {
					env.Fire()
					_ = p.WriteFile(ctx, h.Value.InstanceID, w)
				}
			}
			return h, err
		},
	}
}

func resumeConsumes(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		h, err := p.Resume(ctx, q)
		if err == nil {
			env.Fire()
			_ = p.DestroySnapshot(ctx, q.Snapshot.SnapshotID)
		}
		return h, err
	}}
}

func forgetsGenerations(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	generation := map[sandbox.InstanceID]int{}
	return Override{Provider: p, ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		h, err := p.Resume(ctx, q)
		if err != nil {
			return h, err
		}
		mu.Lock()
		defer mu.Unlock()
		n := generation[q.Snapshot.SourceInstanceID] + 1
		generation[h.Value.InstanceID] = n
		if n >= 3 && empty(ctx, p, h.Value.InstanceID, sandbox.OutputPath) {
			env.Fire()
		}
		return h, nil
	}}
}

func settlesOldState(p sandbox.Provider, env *Env) sandbox.Provider {
	var taken captures
	var instead sync.Map // settled snapshot → the capture whose state it has
	return Override{
		Provider: p, SnapshotFunc: taken.take(p),
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			h, err := p.Release(ctx, id, q)
			if all := taken.of(id); err == nil && h.Value.Snapshot != nil && len(all) > 0 {
				env.Fire()
				instead.Store(h.Value.Snapshot.SnapshotID, all[len(all)-1])
			}
			return h, err
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			if old, ok := instead.Load(q.Snapshot.SnapshotID); ok {
				q.Snapshot = old.(sandbox.Snapshot)
			}
			return p.Resume(ctx, q)
		},
	}
}

func unknownSnapshotErrs(p sandbox.Provider, env *Env) sandbox.Provider {
	var ids sync.Map
	o := issued(p, &ids)
	o.DestroySnapshotFunc = func(ctx context.Context, id sandbox.SnapshotID) error {
		if _, known := ids.Load(id); !known {
			env.Fire()
			return sandbox.Failed(sandbox.OpDestroySnapshot, sandbox.ReasonNotFound, nil)
		}
		return p.DestroySnapshot(ctx, id)
	}
	return o
}

func secondSnapshotDestroyErrs(p sandbox.Provider, env *Env) sandbox.Provider {
	var gone sync.Map
	return Override{Provider: p, DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
		if _, again := gone.LoadOrStore(id, true); again {
			env.Fire()
			return sandbox.Failed(sandbox.OpDestroySnapshot, sandbox.ReasonNotFound, nil)
		}
		return p.DestroySnapshot(ctx, id)
	}}
}

func cloneOfCloneFails(p sandbox.Provider, env *Env) sandbox.Provider {
	var ids sync.Map
	o := issued(p, &ids)
	inner := o.CloneSnapshotFunc
	o.CloneSnapshotFunc = func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		if clone, _ := ids.Load(q.Snapshot.SnapshotID); clone == true {
			env.Fire()
			return sandbox.Handoff[sandbox.Snapshot]{}, sandbox.NoSnapshot(sandbox.OpCloneSnapshot, q.Snapshot.SnapshotID)
		}
		return inner(ctx, q)
	}
	return o
}
