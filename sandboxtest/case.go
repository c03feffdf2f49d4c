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
		{ID: "V38", Fault: "output of exactly the limit is refused", Kills: "stage-seal-execute/output-at-limit", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				s, err := p.Execute(ctx, id, c)
				if err == nil && int64(len(s.Stdout)) == c.OutputLimitBytes {
					env.Fire()
					return sandbox.Settlement{}, sandbox.OverLimit(sandbox.StreamStdout, c.OutputLimitBytes)
				}
				return s, err
			}}
		}},
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
		{ID: "V39", Fault: "what a clone's instance writes appears in the checkpoint", Kills: "checkpoint-clone/source-unchanged", Wrap: bleeding},
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

		{ID: "V40", Fault: "files staged into read-only mounts of durable machines are lost", Kills: "durable-round-trip/sealed-files", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			o, asks := remembering(p)
			o.WriteFileFunc = func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
				q, _ := asks.get(id)
				if m, ok := sandbox.OwningMount(q.Mounts, w.Path); ok && !zdr(&q) && m.Access == sandbox.AccessReadOnly {
					env.Fire()
					return nil
				}
				return p.WriteFile(ctx, id, w)
			}
			return o
		}},

		{ID: "V41", Fault: "an allowlist reaches nothing", Kills: "allowlist-egress/listed-reached", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return disguised(p, env, func(q *sandbox.ProvisionRequest) bool {
				some := len(q.Profile.NetworkPolicy.Destinations) > 0
				if some {
					q.Profile.NetworkPolicy.Destinations = []sandbox.Destination{}
				}
				return some
			})
		}},
		{ID: "V42", Fault: "what was in a released output tree greets the next machine", Kills: "zdr-release/no-trace", Wrap: leftovers},
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
		{ID: "V43", Fault: "a sweep names again what earlier ones swept", Kills: "orphan-reclaim/swept-once", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			var mu sync.Mutex
			var before []sandbox.InstanceID
			return Override{Provider: p, CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
				swept, err := p.Cleanup(ctx, q)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && len(before) > 0 {
					env.Fire()
				}
				before = append(before, swept.InstanceIDs...)
				swept.InstanceIDs = append([]sandbox.InstanceID{}, before...)
				return swept, err
			}}
		}},
		{ID: "V44", Fault: "no snapshot is swept before its own deadline", Kills: "pause-pinning/unpinned-swept", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
				env.Fire()
				q.OrphanedBefore = "1970-01-01T00:00:00.000Z"
				return p.Cleanup(ctx, q)
			}}
		}},
		{ID: "V37", Fault: "a snapshot gets an hour more than it was given", Kills: "pause-pinning/pin-expires", Wrap: lasting},
	}
}
