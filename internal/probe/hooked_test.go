package probe_test

import (
	"context"
	"io"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// members are the names under which hooked calls its hook.
var members = []string{
	"capabilities", "optional", "provision", "write_file", "activate", "execute", "read_file", "snapshot", "clone_snapshot", "release", "resume",
	"destroy", "destroy_snapshot", "cleanup", "read_files", "list_dir", "list_project_dir", "open_process", "begin_active_write",
	"snapshot_rollback", "clone_snapshot_rollback", "release_rollback", "resume_rollback",
	"open_process input", "open_process evidence", "open_process signal", "open_process wait", "open_process destroy",
	"begin_active_write stage", "begin_active_write dispatch", "begin_active_write abort", "begin_active_write inspect",
	"census",
}

// around calls hook before and after one member.
func around[V any](hook func(string), name string, call func() (V, error)) (V, error) {
	hook(name)
	value, err := call()
	hook(name + " done")
	return value, err
}

func hand[V any](hook func(string), name string, call func() (sandbox.Handoff[V], error)) (sandbox.Handoff[V], error) {
	h, err := around(hook, name, call)
	if undo := h.Rollback; undo != nil {
		h.Rollback = func(ctx context.Context) error {
			return only(hook, name+"_rollback", func() error { return undo(ctx) })
		}
	}
	return h, err
}

func only(hook func(string), name string, call func() error) error {
	_, err := around(hook, name, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

type optionalHook struct {
	sandboxtest.Override
	hook func(string)
}

func (o optionalHook) Optional() sandbox.Optional {
	o.hook("optional")
	return o.Override.Optional()
}

// hooked is p with a hook at every member.
func hooked(p sandbox.Provider, hook func(string)) sandbox.Provider {
	return optionalHook{hook: hook, Override: sandboxtest.Override{
		Provider: p,
		CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
			return around(hook, "capabilities", func() (sandbox.Capabilities, error) { return p.Capabilities(ctx) })
		},
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return hand(hook, "provision", func() (sandbox.Handoff[sandbox.Instance], error) { return p.Provision(ctx, q) })
		},
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			return only(hook, "write_file", func() error { return p.WriteFile(ctx, id, w) })
		},
		ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			return hand(hook, "activate", func() (sandbox.Handoff[sandbox.Instance], error) { return p.Activate(ctx, id) })
		},
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			return around(hook, "execute", func() (sandbox.Settlement, error) { return p.Execute(ctx, id, c) })
		},
		ReadFileFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
			return around(hook, "read_file", func() ([]byte, error) { return p.ReadFile(ctx, id, q) })
		},
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			return hand(hook, "snapshot", func() (sandbox.Handoff[sandbox.Snapshot], error) { return p.Snapshot(ctx, id, q) })
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			return hand(hook, "clone_snapshot", func() (sandbox.Handoff[sandbox.Snapshot], error) { return p.CloneSnapshot(ctx, q) })
		},
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			return hand(hook, "release", func() (sandbox.Handoff[sandbox.Released], error) { return p.Release(ctx, id, q) })
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return hand(hook, "resume", func() (sandbox.Handoff[sandbox.Instance], error) { return p.Resume(ctx, q) })
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			return only(hook, "destroy", func() error { return p.Destroy(ctx, id) })
		},
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			return only(hook, "destroy_snapshot", func() error { return p.DestroySnapshot(ctx, id) })
		},
		CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
			return around(hook, "cleanup", func() (sandbox.Swept, error) { return p.Cleanup(ctx, q) })
		},
		Members: func(o *sandbox.Optional) {
			readFiles, listDir, listProject, open, begin := o.ReadFiles, o.ListDir, o.ListProjectDir, o.OpenProcess, o.ActiveWrite
			o.ReadFiles = sandboxtest.ReadFilesFunc(func(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
				return around(hook, "read_files", func() ([]sandbox.FileResult, error) { return readFiles.ReadFiles(ctx, id, q) })
			})
			o.ListDir = sandboxtest.ListDirFunc(func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
				return around(hook, "list_dir", func() ([]sandbox.DirEntry, error) { return listDir.ListDir(ctx, id, l) })
			})
			o.ListProjectDir = sandboxtest.ListProjectDirFunc(func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
				return around(hook, "list_project_dir", func() (sandbox.ProjectListing, error) { return listProject.ListProjectDir(ctx, id, l) })
			})
			o.OpenProcess = sandboxtest.OpenProcessFunc(func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
				return around(hook, "open_process", func() (sandbox.Process, error) {
					live, err := open.OpenProcess(ctx, id, processID, q)
					return processHook{live, hook}, err
				})
			})
			o.ActiveWrite = sandboxtest.BeginActiveWriteFunc(func(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
				return around(hook, "begin_active_write", func() (sandbox.ActiveWrite, error) {
					w, err := begin.BeginActiveWrite(ctx, id, targets)
					return writeHook{w, hook}, err
				})
			})
		},
	}}
}

type processHook struct {
	sandbox.Process
	hook func(string)
}

func (p processHook) Input() io.WriteCloser { p.hook("open_process input"); return p.Process.Input() }
func (p processHook) Evidence() sandbox.Evidence {
	p.hook("open_process evidence")
	return p.Process.Evidence()
}
func (p processHook) Wait(ctx context.Context) (sandbox.Exit, error) {
	return around(p.hook, "open_process wait", func() (sandbox.Exit, error) { return p.Process.Wait(ctx) })
}
func (p processHook) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	return only(p.hook, "open_process signal", func() error { return p.Process.Signal(ctx, s) })
}
func (p processHook) Destroy(ctx context.Context) error {
	return only(p.hook, "open_process destroy", func() error { return p.Process.Destroy(ctx) })
}

type writeHook struct {
	sandbox.ActiveWrite
	hook func(string)
}

func (w writeHook) Stage(ctx context.Context, f sandbox.FileWrite) error {
	return only(w.hook, "begin_active_write stage", func() error { return w.ActiveWrite.Stage(ctx, f) })
}
func (w writeHook) Dispatch(ctx context.Context, marker func()) error {
	return only(w.hook, "begin_active_write dispatch", func() error { return w.ActiveWrite.Dispatch(ctx, marker) })
}
func (w writeHook) Abort(ctx context.Context) error {
	return only(w.hook, "begin_active_write abort", func() error { return w.ActiveWrite.Abort(ctx) })
}
func (w writeHook) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	return around(w.hook, "begin_active_write inspect", func() (sandbox.JournalState, error) { return w.ActiveWrite.Inspect(ctx) })
}
