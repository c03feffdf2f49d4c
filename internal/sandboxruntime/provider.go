package sandboxruntime

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
)

// Provider returns the runtime in the shape of a provider, so that a suite can
// drive it like one. Its values are checked and owned when they come back; so
// the rollback of a handoff is the owner's destroy.
//
// Errors: also [*Error] and [*Defect], which no provider may author.
func (r *Runtime) Provider() sandbox.Provider { return view{r} }

type view struct{ r *Runtime }

var _ sandbox.Provider = view{}

func (v view) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	return clone(v.r.capabilities), ctx.Err()
}

func (v view) Provision(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	i, err := v.r.Provision(ctx, q)
	return v.instance(i, err)
}

func (v view) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	return v.r.WriteFile(ctx, id, w)
}

func (v view) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	i, err := v.r.Activate(ctx, id)
	return v.instance(i, err)
}

func (v view) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	return v.r.Execute(ctx, id, c)
}

// ReadFile takes no root from its caller: one that the runtime would not have
// derived itself is outside.
func (v view) ReadFile(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
	if i := v.r.find(id); i != nil && i.rootOf(q.Path) != q.AllowedRoot {
		return nil, sandbox.FailedAt(sandbox.OpReadFile, q.Path, sandbox.ReasonOutsideRoot, nil)
	}
	return v.r.ReadFile(ctx, id, q.Path, q.MaximumBytes)
}

func (v view) Snapshot(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	s, err := v.r.Snapshot(ctx, id, q)
	return v.snapshot(s, err)
}

func (v view) CloneSnapshot(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	s, err := v.r.CloneSnapshot(ctx, q)
	return v.snapshot(s, err)
}

func (v view) Release(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	released, err := v.r.Release(ctx, id, q)
	if err != nil {
		return sandbox.Handoff[sandbox.Released]{}, err
	}
	undo := func(context.Context) error { return nil } // destroyed: nothing is left
	if s := released.Snapshot; s != nil {
		id := s.SnapshotID
		undo = func(ctx context.Context) error { return v.r.DestroySnapshot(ctx, id) }
	}
	return sandbox.Handoff[sandbox.Released]{Value: released, Rollback: undo}, nil
}

func (v view) Resume(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	i, err := v.r.Resume(ctx, q)
	return v.instance(i, err)
}

func (v view) Destroy(ctx context.Context, id sandbox.InstanceID) error { return v.r.Destroy(ctx, id) }

func (v view) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return v.r.DestroySnapshot(ctx, id)
}

func (v view) Cleanup(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	return v.r.Cleanup(ctx, q)
}

// Optional offers what the selected provider offers, and listDir only where
// the envelope claims it too.
func (v view) Optional() sandbox.Optional {
	var o sandbox.Optional
	if v.r.optional.ReadFiles != nil {
		o.ReadFiles = v
	}
	if v.r.optional.ListDir != nil && v.r.capabilities.ListDir {
		o.ListDir = v
	}
	if v.r.optional.ListProjectDir != nil {
		o.ListProjectDir = v
	}
	if v.r.optional.OpenProcess != nil {
		o.OpenProcess = v
	}
	if v.r.optional.ActiveWrite != nil {
		o.ActiveWrite = v
	}
	return o
}

func (v view) ReadFiles(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
	if err := q.Validate(); err != nil {
		return nil, refused(sandbox.OpReadFiles, err)
	}
	return v.r.ReadFiles(ctx, id, q.Files)
}

func (v view) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	return v.r.ListDir(ctx, id, l)
}

func (v view) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	return v.r.ListProjectDir(ctx, id, l)
}

func (v view) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
	if err := checkProcessID(processID); err != nil {
		return nil, refused(sandbox.OpOpenProcess, err)
	}
	return v.r.openProcess(ctx, id, processID, q)
}

func (v view) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	return v.r.BeginActiveWrite(ctx, id, targets)
}

func (v view) instance(i sandbox.Instance, err error) (sandbox.Handoff[sandbox.Instance], error) {
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	id := i.InstanceID
	return sandbox.Handoff[sandbox.Instance]{Value: i, Rollback: func(ctx context.Context) error { return v.r.Destroy(ctx, id) }}, nil
}

func (v view) snapshot(s sandbox.Snapshot, err error) (sandbox.Handoff[sandbox.Snapshot], error) {
	if err != nil {
		return sandbox.Handoff[sandbox.Snapshot]{}, err
	}
	id := s.SnapshotID
	return sandbox.Handoff[sandbox.Snapshot]{Value: s, Rollback: func(ctx context.Context) error { return v.r.DestroySnapshot(ctx, id) }}, nil
}
