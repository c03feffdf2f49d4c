package sandboxtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// stateFaults do not keep the states apart.
func stateFaults() []Saboteur {
	all := []Saboteur{
		{ID: "S1", Fault: "provision returns an instance that is active already", Kills: "identity.provision/state", Suite: report.Contract, Wrap: activeAtOnce},
		{ID: "S2", Fault: "activation seals nothing", Kills: "states.sealed-mounts/unchangeable", Wrap: unsealed(func([]sandbox.Mount, sandbox.Mount) bool { return true })},
		{ID: "S3", Fault: "resume returns a provisioning instance", Kills: "identity.resume/state", Suite: report.Contract,
			Wrap: lyingAtResume(func(i *sandbox.Instance) bool { i.State = sandbox.StateProvisioning; return true })},
		{ID: "S4", Fault: "a release of zero retention says released", Kills: "release.disposition/disposition", Suite: report.Contract, Wrap: releasedForDestroyed},
		{ID: "S5", Fault: "a durable release says destroyed", Kills: "release.disposition/disposition", Suite: report.Contract, Wrap: destroyedForReleased},
		{ID: "S6", Fault: "zero retention says destroyed, its files survive", Kills: "states.released-is-gone/contents", Wrap: keepingFiles},
		{ID: "S7", Fault: "an instance of zero retention is captured", Kills: "states.zdr-never-captured/snapshot", Wrap: capturingZDR},
		{ID: "S8", Fault: "a destroyed instance still executes", Kills: "states.destroyed-is-gone/execute", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			o, gone := Override{Provider: p}, &memory{asks: map[sandbox.InstanceID]sandbox.ProvisionRequest{}}
			o.DestroyFunc = func(ctx context.Context, id sandbox.InstanceID) error {
				err := p.Destroy(ctx, id)
				gone.put(id, sandbox.ProvisionRequest{})
				return err
			}
			return executingFor(o, env, func(id sandbox.InstanceID) bool { _, was := gone.get(id); return was })
		}},
		{ID: "S9", Fault: "an active mount is written from outside", Kills: "states.write-scope/mount", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
				err := p.WriteFile(ctx, id, w)
				if errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: string(sandbox.StateActive)}) {
					env.Fire()
					return nil
				}
				return err
			}}
		}},
		{ID: "S10", Fault: "a recycled instance holds the files of its last tenant", Kills: "states.fresh-machine/empty", Wrap: recycling},
		{ID: "S11", Fault: "a released instance still executes", Kills: "states.released-is-gone/execute", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			o, gone := Override{Provider: p}, &memory{asks: map[sandbox.InstanceID]sandbox.ProvisionRequest{}}
			o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				h, err := p.Release(ctx, id, q)
				if err == nil {
					gone.put(id, sandbox.ProvisionRequest{})
				}
				return h, err
			}
			return executingFor(o, env, func(id sandbox.InstanceID) bool { _, was := gone.get(id); return was })
		}},
		{ID: "S12", Fault: "commands run on an instance that never was", Kills: "states.unknown-instance/execute", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			o, requests := remembering(p)
			return executingFor(o, env, func(id sandbox.InstanceID) bool { _, was := requests.get(id); return !was })
		}},
		{ID: "S13", Fault: "an active instance is activated again", Kills: "states.activate-once/activate", Wrap: activatingAgain},
		{ID: "S14", Fault: "an instance that never was cannot be destroyed", Kills: "destroy.idempotent/unknown", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			o, requests := remembering(p)
			o.DestroyFunc = func(ctx context.Context, id sandbox.InstanceID) error {
				if _, was := requests.get(id); !was {
					env.Fire()
					return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonNotFound, nil)
				}
				return p.Destroy(ctx, id)
			}
			return o
		}},
		{ID: "S15", Fault: "an instance works on past its deadline", Kills: "states.past-deadline/execute", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				s, err := p.Execute(ctx, id, c)
				if errors.Is(err, sandbox.Conflict("", "", sandbox.ActualExpired)) {
					env.Fire()
					return exitedAt(env.Now()), nil
				}
				return s, err
			}}
		}},
	}
	all = append(all, Saboteur{ID: "S17", Fault: "activation seals nested mounts only", Kills: "states.sealed-mounts/unchangeable", Wrap: unsealed(func(all []sandbox.Mount, m sandbox.Mount) bool {
		return !slices.ContainsFunc(all, func(o sandbox.Mount) bool {
			return o.MountPath != m.MountPath && sandbox.Within(m.MountPath, o.MountPath)
		})
	})})
	for i, op := range []sandbox.Operation{
		sandbox.OpExecute, sandbox.OpReadFile, sandbox.OpReadFiles, sandbox.OpListDir, sandbox.OpListProjectDir,
		sandbox.OpOpenProcess, sandbox.OpBeginActiveWrite, sandbox.OpSnapshot, sandbox.OpRelease,
	} {
		all = append(all, Saboteur{
			ID: "S16" + string(rune('a'+i)), Fault: string(op) + " activates what is provisioning", Kills: "states.provisioning-refuses/" + string(op),
			Suite: report.Contract, Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider { return activatingFor(p, env, op) },
		})
	}
	return all
}

// unsealed makes some read-only mounts writable.
func unsealed(which func(all []sandbox.Mount, m sandbox.Mount) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		return disguised(p, env, func(q *sandbox.ProvisionRequest) (changed bool) {
			mounts := slices.Clone(q.Mounts)
			for i, m := range mounts {
				if m.Access == sandbox.AccessReadOnly && which(q.Mounts, m) {
					mounts[i].Access, changed = sandbox.AccessReadWrite, true
				}
			}
			q.Mounts = mounts
			return changed
		})
	}
}

// exitedAt is the settlement of a command that did nothing.
func exitedAt(now time.Time) sandbox.Settlement {
	return sandbox.Settlement{Exit: sandbox.Exited(0), StartedAt: sandbox.At(now), FinishedAt: sandbox.At(now)}
}

// executingFor answers commands on instances that are not there.
func executingFor(o Override, env *Env, which func(sandbox.InstanceID) bool) sandbox.Provider {
	p := o.Provider
	o.ExecuteFunc = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		s, err := p.Execute(ctx, id, c)
		if errors.Is(err, sandbox.NoInstance("", "")) && which(id) {
			env.Fire()
			return exitedAt(env.Now()), nil
		}
		return s, err
	}
	return o
}

// activatingFor activates an instance that one member finds provisioning, and
// calls the member again.
func activatingFor(p sandbox.Provider, env *Env, op sandbox.Operation) sandbox.Provider {
	again := func(ctx context.Context, id sandbox.InstanceID, err error) bool {
		if !errors.Is(err, sandbox.Conflict(op, "", string(sandbox.StateProvisioning))) {
			return false
		}
		_, failed := p.Activate(ctx, id)
		if failed == nil {
			env.Fire()
		}
		return failed == nil
	}
	o := Override{Provider: p}
	switch op {
	case sandbox.OpExecute:
		o.ExecuteFunc = retrying(p.Execute, again)
	case sandbox.OpReadFile:
		o.ReadFileFunc = retrying(p.ReadFile, again)
	case sandbox.OpSnapshot:
		o.SnapshotFunc = retrying(p.Snapshot, again)
	case sandbox.OpRelease:
		o.ReleaseFunc = retrying(p.Release, again)
	}
	o.Members = func(m *sandbox.Optional) {
		switch {
		case op == sandbox.OpReadFiles && m.ReadFiles != nil:
			m.ReadFiles = ReadFilesFunc(retrying(m.ReadFiles.ReadFiles, again))
		case op == sandbox.OpListDir && m.ListDir != nil:
			m.ListDir = ListDirFunc(retrying(m.ListDir.ListDir, again))
		case op == sandbox.OpListProjectDir && m.ListProjectDir != nil:
			m.ListProjectDir = ListProjectDirFunc(retrying(m.ListProjectDir.ListProjectDir, again))
		case op == sandbox.OpBeginActiveWrite && m.ActiveWrite != nil:
			m.ActiveWrite = BeginActiveWriteFunc(retrying(m.ActiveWrite.BeginActiveWrite, again))
		case op == sandbox.OpOpenProcess && m.OpenProcess != nil:
			opener := m.OpenProcess
			m.OpenProcess = OpenProcessFunc(func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				process, err := opener.OpenProcess(ctx, id, processID, q)
				if again(ctx, id, err) {
					return opener.OpenProcess(ctx, id, processID, q)
				}
				return process, err
			})
		}
	}
	return o
}

func retrying[Q, V any](call func(context.Context, sandbox.InstanceID, Q) (V, error), again func(context.Context, sandbox.InstanceID, error) bool) func(context.Context, sandbox.InstanceID, Q) (V, error) {
	return func(ctx context.Context, id sandbox.InstanceID, q Q) (V, error) {
		v, err := call(ctx, id, q)
		if again(ctx, id, err) {
			return call(ctx, id, q)
		}
		return v, err
	}
}

// activeAtOnce activates an instance before anything was staged.
func activeAtOnce(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (instanceHandoff, error) {
		h, err := p.Provision(ctx, q)
		if err != nil {
			return h, err
		}
		env.Fire()
		return p.Activate(ctx, h.Value.InstanceID)
	}}
}

// activatingAgain gives the answer of the first activation again.
func activatingAgain(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	first := map[sandbox.InstanceID]instanceHandoff{}
	return Override{Provider: p, ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (instanceHandoff, error) {
		h, err := p.Activate(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		if before, was := first[id]; was && errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}) {
			env.Fire()
			return before, nil
		}
		if err == nil {
			first[id] = h
		}
		return h, err
	}}
}

// forged is a snapshot that agrees with an instance and does not exist.
func forged(i sandbox.Instance, now time.Time, expires sandbox.Timestamp) *sandbox.Snapshot {
	return &sandbox.Snapshot{
		SnapshotID: sandbox.SnapshotID("forged-" + string(i.InstanceID)), Provider: i.Provider, Placement: i.Placement,
		SourceInstanceID: i.InstanceID, WorkspaceID: i.WorkspaceID, SessionID: i.SessionID,
		ProfileID: i.Profile.ProfileID, ProfileVersion: i.Profile.ProfileVersion, ProfileDigest: i.Materialization.ProfileDigest,
		CreatedAt: sandbox.At(now), ExpiresAt: expires,
	}
}

// seeing is p, and what it returned of its instances when they were activated.
func seeing(p sandbox.Provider) (Override, func(sandbox.InstanceID) sandbox.Instance) {
	var mu sync.Mutex
	seen := map[sandbox.InstanceID]sandbox.Instance{}
	o := Override{Provider: p, ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (instanceHandoff, error) {
		h, err := p.Activate(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		seen[id] = h.Value
		return h, err
	}}
	return o, func(id sandbox.InstanceID) sandbox.Instance {
		mu.Lock()
		defer mu.Unlock()
		return seen[id]
	}
}

func releasedForDestroyed(p sandbox.Provider, env *Env) sandbox.Provider {
	o, instance := seeing(p)
	o.ReleaseFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
		h, err := p.Release(ctx, id, q)
		if err == nil && h.Value.Snapshot == nil {
			env.Fire()
			h.Value = sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: forged(instance(id), env.Now(), sandbox.At(env.Now().Add(time.Hour)))}
		}
		return h, err
	}
	return o
}

func destroyedForReleased(p sandbox.Provider, env *Env) sandbox.Provider {
	return Override{Provider: p, ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
		h, err := p.Release(ctx, id, q)
		if err == nil && h.Value.Snapshot != nil {
			env.Fire()
			err = p.DestroySnapshot(ctx, h.Value.Snapshot.SnapshotID)
			h.Value = sandbox.Released{Disposition: sandbox.DispositionDestroyed}
		}
		return h, err
	}}
}

// keepingFiles still has the files of what it released.
func keepingFiles(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	kept := map[sandbox.InstanceID]map[string][]byte{}
	return Override{
		Provider: p,
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			mu.Lock()
			if kept[id] == nil {
				kept[id] = map[string][]byte{}
			}
			kept[id][w.Path] = w.Content
			mu.Unlock()
			return p.WriteFile(ctx, id, w)
		},
		ReadFileFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
			b, err := p.ReadFile(ctx, id, q)
			mu.Lock()
			defer mu.Unlock()
			if content, was := kept[id][q.Path]; was && errors.Is(err, sandbox.NoInstance("", "")) {
				env.Fire()
				return content, nil
			}
			return b, err
		},
	}
}

func capturingZDR(p sandbox.Provider, env *Env) sandbox.Provider {
	o, instance := seeing(p)
	o.SnapshotFunc = func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		h, err := p.Snapshot(ctx, id, q)
		if errors.Is(err, sandbox.Forbidden("", "")) {
			env.Fire()
			return sandbox.Handoff[sandbox.Snapshot]{Value: *forged(instance(id), env.Now(), q.ExpiresAt), Rollback: func(context.Context) error { return nil }}, nil
		}
		return h, err
	}
	return o
}

// recycling leaves what lay in /tmp to the next tenant.
func recycling(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	left := ""
	run := func(ctx context.Context, id sandbox.InstanceID, script, stdin string) string {
		s, err := p.Execute(ctx, id, sandbox.Command{
			Executable: "/bin/sh", Arguments: []string{"-c", script}, WorkingDirectory: "/tmp", Stdin: []byte(stdin), TimeoutSeconds: 5, OutputLimitBytes: 1 << 16,
		})
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(s.Stdout))
	}
	return Override{
		Provider: p,
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			mu.Lock()
			if names := run(ctx, id, "ls -A", ""); names != "" {
				left = names
			}
			mu.Unlock()
			return p.Destroy(ctx, id)
		},
		ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (instanceHandoff, error) {
			h, err := p.Activate(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && left != "" {
				run(ctx, id, `while read -r name; do touch "$name"; done`, left+"\n")
				env.Fire()
			}
			return h, err
		},
	}
}
