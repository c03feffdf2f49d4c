package sandboxtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// caseFaults are wrong in what one of the nine cases proves, and in nothing
// that a list had.
func caseFaults() []Saboteur {
	zdr := func(q *sandbox.ProvisionRequest) bool {
		return q.Profile.RetentionMode == sandbox.RetentionEphemeralZDR
	}
	unsealed := func(of func(q *sandbox.ProvisionRequest) bool) func(p sandbox.Provider, env *Env) sandbox.Provider {
		return func(p sandbox.Provider, env *Env) sandbox.Provider {
			return disguised(p, env, func(q *sandbox.ProvisionRequest) bool { return of(q) && unseal(q) })
		}
	}
	return []Saboteur{
		{ID: "V15", Fault: "files in nested directories are not staged", Kills: "stage-seal-execute/stage", Wrap: stagedAs(func(w *sandbox.FileWrite) bool {
			return strings.HasPrefix(w.Path, "/workspace/") && strings.Count(w.Path, "/") > 3
		}, true)},
		{ID: "V16", Fault: "read-only mounts of zero-retention machines are writable", Kills: "stage-seal-execute/seal", Wrap: unsealed(zdr)},
		{ID: "V17", Fault: "a write to a read-only mount is refused and ends with status 0", Kills: "stage-seal-execute/seal-refused", Wrap: settledAs(func(_ sandbox.Command, s *sandbox.Settlement) bool {
			refused := strings.Contains(string(s.Stderr), "Read-only")
			if refused {
				s.Exit, s.Stderr = sandbox.Exited(0), nil
			}
			return refused
		})},
		{ID: "V18", Fault: "a write into a mount of an active instance is dropped and confirmed", Kills: "stage-seal-execute/write-scope", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
				err := p.WriteFile(ctx, id, w)
				if err != nil && !sandbox.Within(w.Path, sandbox.OutputPath) && errors.Is(err, sandbox.Conflict(sandbox.OpWriteFile, "", string(sandbox.StateActive))) {
					env.Fire()
					return nil
				}
				return err
			}}
		}},
		{ID: "V19", Fault: "standard error arrives in standard output", Kills: "stage-seal-execute/execute-output", Wrap: settledAs(func(_ sandbox.Command, s *sandbox.Settlement) bool {
			mixed := len(s.Stderr) > 0
			s.Stdout, s.Stderr = append(s.Stdout, s.Stderr...), nil
			return mixed
		})},
		{ID: "V20", Fault: "what the workload wrote into the output tree is not read back", Kills: "stage-seal-execute/read-file", Wrap: onlyStaged},

		{ID: "V21", Fault: "staged bytes pass through a text conversion", Kills: "stage-git-project/blob-identity", Wrap: stagedAs(func(w *sandbox.FileWrite) bool {
			clean := strings.ToValidUTF8(string(w.Content), "\uFFFD")
			changed := clean != string(w.Content)
			w.Content = []byte(clean)
			return changed
		}, false)},
		{ID: "V22", Fault: "the executable bit is lost in staging", Kills: "stage-git-project/executable", Wrap: stagedAs(func(w *sandbox.FileWrite) bool {
			was := w.Executable
			w.Executable = false
			return was
		}, false)},
		{ID: "V23", Fault: "the provider leaves a .git of its own in a Git mount", Kills: "stage-git-project/not-fetched", Wrap: atActivation(func(ctx context.Context, p sandbox.Provider, q sandbox.ProvisionRequest, id sandbox.InstanceID) bool {
			i := slices.IndexFunc(q.Mounts, func(m sandbox.Mount) bool { return m.Kind == sandbox.MountGit })
			return i >= 0 && p.WriteFile(ctx, id, sandbox.FileWrite{Path: q.Mounts[i].MountPath + "/.git/config", Content: []byte("[remote]\n")}) == nil
		})},
		{ID: "V24", Fault: "every command finds a token in its environment", Kills: "stage-git-project/no-credential", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				with := map[string]string{"GIT_REMOTE": "https://x-access:" + string(id) + "@git.example.com/repo"}
				for k, v := range c.Environment {
					with[k] = v
				}
				c.Environment = with
				env.Fire()
				return p.Execute(ctx, id, c)
			}}
		}},
		{ID: "V25", Fault: "a credential lies in the home directory", Kills: "stage-git-project/no-credential-file", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Activate(ctx, id)
				if _, ok := inside(ctx, p, id, "echo machine git.example.com > "+sandbox.HomePath+"/.netrc", nil); err == nil && ok {
					env.Fire()
				}
				return h, err
			}}
		}},

		{ID: "V26", Fault: "clones are made although the envelope says that they are not", Kills: "checkpoint-clone/clone-refused", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
				c, err := p.Capabilities(ctx)
				c.SnapshotClone = false
				env.Fire()
				return c, err
			}}
		}},
		{ID: "V27", Fault: "home is not captured", Kills: "durable-round-trip/home", Wrap: resumedAs("cd " + sandbox.HomePath + " && ls -A | while read f; do rm -rf \"$f\"; done")},
		{ID: "V28", Fault: "modes are not captured", Kills: "durable-round-trip/files-modes", Wrap: resumedAs("cd " + sandbox.OutputPath + " && ls -A | while read f; do chmod 644 \"$f\"; done")},
		{ID: "V29", Fault: "links are captured as files", Kills: "durable-round-trip/files-links", Wrap: resumedAs("cd " + sandbox.OutputPath +
			" && ls -A | while read f; do if test -L \"$f\"; then cat \"$f\" > /tmp/f; rm \"$f\"; cat /tmp/f > \"$f\"; fi; done")},
		{ID: "V30", Fault: "a released instance has one state: its latest capture", Kills: "durable-round-trip/snapshot-is-then", Wrap: recapturing(func(all []sandbox.Snapshot) sandbox.Snapshot { return all[len(all)-1] })},
		{ID: "V31", Fault: "a released instance has one state: its first capture", Kills: "durable-round-trip/release-is-now", Wrap: recapturing(func(all []sandbox.Snapshot) sandbox.Snapshot { return all[0] })},
		{ID: "V32", Fault: "a durable release leaves the instance running", Kills: "durable-round-trip/released", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest(q))
				if err != nil {
					return p.Release(ctx, id, q)
				}
				env.Fire()
				return sandbox.Handoff[sandbox.Released]{Value: sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &h.Value}, Rollback: h.Rollback}, nil
			}}
		}},
		{ID: "V33", Fault: "mounts of durable machines are never sealed", Kills: "durable-round-trip/sealed-again",
			Wrap: unsealed(func(q *sandbox.ProvisionRequest) bool { return !zdr(q) })},

		{ID: "V34", Fault: "a zero-retention machine is made like a durable one", Kills: "zdr-release/snapshot-forbidden", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return disguised(p, env, func(q *sandbox.ProvisionRequest) bool {
				was := zdr(q)
				q.Profile.RetentionMode = sandbox.RetentionDurable
				return was
			})
		}},
		{ID: "V35", Fault: "a released zero-retention instance lives on where no member looks", Kills: "zdr-release/census", Wrap: hiding},
		{ID: "V36", Fault: "an instance gets an hour more than it was given", Kills: "orphan-reclaim/expired-returned", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return disguised(p, env, func(q *sandbox.ProvisionRequest) bool {
				q.ExpiresAt = later(q.ExpiresAt, time.Hour)
				return true
			})
		}},
		{ID: "V37", Fault: "a snapshot gets an hour more than it was given", Kills: "pause-pinning/pin-expires", Wrap: lasting},
	}
}

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
