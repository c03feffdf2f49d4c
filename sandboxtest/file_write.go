package sandboxtest

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// write is one writeFile on its way into a saboteur, with what it knows of the
// instance.
type write struct {
	sandbox.FileWrite
	ctx    context.Context
	p      sandbox.Provider
	id     sandbox.InstanceID
	mounts []sandbox.Mount
	before []byte // what was written to the path before
	active int    // how many files the instance took since it is active; 0 while provisioning
}

func (w *write) pass() error { return w.p.WriteFile(w.ctx, w.id, w.FileWrite) }

// writer makes a provider of which bad answers every write: with what to
// answer and whether that was the fault.
func writer(bad func(w *write) (error, bool)) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var plans mountPlans
		var mu sync.Mutex
		last, active := map[string][]byte{}, map[sandbox.InstanceID]int{}
		return plans.watched(Override{
			Provider: p,
			ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Activate(ctx, id)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					active[id] = 1
				}
				return h, err
			},
			WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, f sandbox.FileWrite) error {
				mu.Lock()
				key := string(id) + " " + f.Path
				w := &write{f, ctx, p, id, plans.of(id), last[key], active[id]}
				last[key] = bytes.Clone(f.Content)
				if active[id] > 0 {
					active[id]++
				}
				mu.Unlock()
				err, fired := bad(w)
				if fired {
					env.Fire()
				}
				return err
			},
		})
	}
}

// writeFaults are wrong in writeFile.
func writeFaults() []Saboteur {
	const op = sandbox.OpWriteFile
	// change rewrites what is to be written.
	change := func(f func(w *write) bool) func(sandbox.Provider, *Env) sandbox.Provider {
		return writer(func(w *write) (error, bool) {
			fired := f(w)
			return w.pass(), fired
		})
	}
	// instead answers without writing.
	instead := func(answer func(w *write) error, when func(w *write) bool) func(sandbox.Provider, *Env) sandbox.Provider {
		return writer(func(w *write) (error, bool) {
			if when(w) {
				return answer(w), true
			}
			return w.pass(), false
		})
	}
	success := func(*write) error { return nil }
	return []Saboteur{
		{ID: "F1", Fault: "the last byte is lost of a file that does not end in text", Kills: "write.bytes-exact", Wrap: change(func(w *write) bool {
			n := len(w.Content)
			if n == 0 || w.Content[n-1] < 0x80 {
				return false
			}
			w.Content = w.Content[:n-1]
			return true
		})},
		{ID: "F2", Fault: "line ends are converted", Kills: "write.newlines-kept", Wrap: change(func(w *write) bool {
			before := len(w.Content)
			w.Content = bytes.ReplaceAll(w.Content, []byte("\r\n"), []byte("\n"))
			return len(w.Content) < before
		})},
		{ID: "F3", Fault: "a path outside of every mount is written to", Kills: "write.outside-refused", Wrap: writer(func(w *write) (error, bool) {
			err := w.pass()
			if _, mounted := sandbox.OwningMount(w.mounts, w.Path); err != nil && w.active > 0 && !mounted {
				if _, ok := inside(w.ctx, w.p, w.id, "cat > "+w.Path, w.Content); ok {
					return nil, true
				}
			}
			return err, false
		})},
		{ID: "F20", Fault: "a file without content is not made", Kills: "write.empty-file",
			Wrap: instead(success, func(w *write) bool { return len(w.Content) == 0 && w.Symlink == "" })},
		{ID: "F21", Fault: "a shorter second write keeps the end of the first", Kills: "write.overwrites", Wrap: change(func(w *write) bool {
			if len(w.before) <= len(w.Content) {
				return false
			}
			w.Content = append(bytes.Clone(w.Content), w.before[len(w.Content):]...)
			return true
		})},
		{ID: "F22", Fault: "the executable flag is dropped in the output tree", Kills: "write.executable/set", Wrap: change(func(w *write) bool {
			fires := w.Executable && sandbox.Within(w.Path, sandbox.OutputPath)
			w.Executable = w.Executable && !fires
			return fires
		})},
		{ID: "F23", Fault: "parents are made three levels deep and no deeper", Kills: "write.parents",
			Wrap: instead(func(w *write) error { return sandbox.FailedAt(op, w.Path, sandbox.ReasonNotFound, nil) },
				func(w *write) bool { return strings.Count(w.Path, "/") > strings.Count(sandbox.OutputPath, "/")+4 })},
		{ID: "F24", Fault: "an active machine takes four files and no fifth", Kills: "write.while-active",
			Wrap: instead(func(*write) error {
				return sandbox.Conflict(op, string(sandbox.StateProvisioning), string(sandbox.StateActive))
			},
				func(w *write) bool { return w.active > 4 && sandbox.Within(w.Path, sandbox.OutputPath) })},
		{ID: "F25", Fault: "exactly 16 MiB are refused in staging", Kills: "write.largest",
			Wrap: instead(func(w *write) error { return sandbox.TooLarge(op, w.Path, sandbox.MaxFileBytes) },
				func(w *write) bool { return len(w.Content) == sandbox.MaxFileBytes && w.active == 0 })},
		{ID: "F26", Fault: "more than 16 MiB are taken and lost", Kills: "write.too-large",
			Wrap: instead(success, func(w *write) bool { return len(w.Content) > sandbox.MaxFileBytes })},
		{ID: "F27", Fault: "the files of a third mount of memory are lost", Kills: "write.into-mounts",
			Wrap: instead(success, func(w *write) bool {
				return len(w.mounts) == 3 && w.mounts[2].Kind == sandbox.MountMemory && sandbox.Within(w.Path, w.mounts[2].MountPath)
			})},
		{ID: "F28", Fault: "a read-only repository inside a writable mount is writable", Kills: "write.nested-mount-sealed", Wrap: unsealNested},
		{ID: "F29", Fault: "a staged link becomes a file that holds its target", Kills: "write.symlink-staged", Wrap: change(func(w *write) bool {
			if w.Symlink == "" {
				return false
			}
			w.Content, w.Symlink = []byte(w.Symlink), ""
			return true
		})},
	}
}

// unsealNested asks the provider inside for writable nested mounts and says
// that they are as they were asked for.
func unsealNested(p sandbox.Provider, env *Env) sandbox.Provider {
	var plans mountPlans
	o := plans.watched(Override{Provider: p})
	o.ProvisionFunc = func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		asked := q.Mounts
		q.Mounts = append([]sandbox.Mount{}, asked...)
		for i, mount := range asked {
			if nested(asked, mount) && mount.Access == sandbox.AccessReadOnly && mount.Kind == sandbox.MountGit {
				q.Mounts[i].Access = sandbox.AccessReadWrite
				env.Fire()
			}
		}
		h, err := p.Provision(ctx, q)
		if err == nil {
			h.Value.Mounts = asked
			plans.mu.Lock()
			defer plans.mu.Unlock()
			plans.all[h.Value.InstanceID] = asked
		}
		return h, err
	}
	o.ActivateFunc = func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
		h, err := p.Activate(ctx, id)
		if err == nil {
			h.Value.Mounts = plans.of(id)
		}
		return h, err
	}
	return o
}
