package sandboxtest

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
)

// Override is a provider of which single members are replaced. A nil function
// leaves the member as it is. The replacement usually calls the same member of
// Provider and then changes what comes back, or what goes in.
//
// Ownership and concurrency: as of the provider inside; the functions must not
// be changed once the provider is in use.
type Override struct {
	sandbox.Provider

	CapabilitiesFunc    func(ctx context.Context) (sandbox.Capabilities, error)
	ProvisionFunc       func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error)
	WriteFileFunc       func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error
	ActivateFunc        func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error)
	ExecuteFunc         func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error)
	ReadFileFunc        func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error)
	SnapshotFunc        func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error)
	CloneSnapshotFunc   func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error)
	ReleaseFunc         func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error)
	ResumeFunc          func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error)
	DestroyFunc         func(ctx context.Context, id sandbox.InstanceID) error
	DestroySnapshotFunc func(ctx context.Context, id sandbox.SnapshotID) error
	CleanupFunc         func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error)

	// Members changes the optional members: each is given as it is, nil where
	// it is absent.
	Members func(o *sandbox.Optional)
}

var _ sandbox.Provider = Override{}

// Capabilities is the replacement, or the provider's own.
func (o Override) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	if o.CapabilitiesFunc != nil {
		return o.CapabilitiesFunc(ctx)
	}
	return o.Provider.Capabilities(ctx)
}

// Provision is the replacement, or the provider's own.
func (o Override) Provision(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	if o.ProvisionFunc != nil {
		return o.ProvisionFunc(ctx, q)
	}
	return o.Provider.Provision(ctx, q)
}

// WriteFile is the replacement, or the provider's own.
func (o Override) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if o.WriteFileFunc != nil {
		return o.WriteFileFunc(ctx, id, w)
	}
	return o.Provider.WriteFile(ctx, id, w)
}

// Activate is the replacement, or the provider's own.
func (o Override) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	if o.ActivateFunc != nil {
		return o.ActivateFunc(ctx, id)
	}
	return o.Provider.Activate(ctx, id)
}

// Execute is the replacement, or the provider's own.
func (o Override) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	if o.ExecuteFunc != nil {
		return o.ExecuteFunc(ctx, id, c)
	}
	return o.Provider.Execute(ctx, id, c)
}

// ReadFile is the replacement, or the provider's own.
func (o Override) ReadFile(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
	if o.ReadFileFunc != nil {
		return o.ReadFileFunc(ctx, id, q)
	}
	return o.Provider.ReadFile(ctx, id, q)
}

// Snapshot is the replacement, or the provider's own.
func (o Override) Snapshot(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	if o.SnapshotFunc != nil {
		return o.SnapshotFunc(ctx, id, q)
	}
	return o.Provider.Snapshot(ctx, id, q)
}

// CloneSnapshot is the replacement, or the provider's own.
func (o Override) CloneSnapshot(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	if o.CloneSnapshotFunc != nil {
		return o.CloneSnapshotFunc(ctx, q)
	}
	return o.Provider.CloneSnapshot(ctx, q)
}

// Release is the replacement, or the provider's own.
func (o Override) Release(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	if o.ReleaseFunc != nil {
		return o.ReleaseFunc(ctx, id, q)
	}
	return o.Provider.Release(ctx, id, q)
}

// Resume is the replacement, or the provider's own.
func (o Override) Resume(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	if o.ResumeFunc != nil {
		return o.ResumeFunc(ctx, q)
	}
	return o.Provider.Resume(ctx, q)
}

// Destroy is the replacement, or the provider's own.
func (o Override) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	if o.DestroyFunc != nil {
		return o.DestroyFunc(ctx, id)
	}
	return o.Provider.Destroy(ctx, id)
}

// DestroySnapshot is the replacement, or the provider's own.
func (o Override) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	if o.DestroySnapshotFunc != nil {
		return o.DestroySnapshotFunc(ctx, id)
	}
	return o.Provider.DestroySnapshot(ctx, id)
}

// Cleanup is the replacement, or the provider's own.
func (o Override) Cleanup(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
	if o.CleanupFunc != nil {
		return o.CleanupFunc(ctx, q)
	}
	return o.Provider.Cleanup(ctx, q)
}

// Optional gives the provider's optional members as Members changed them.
func (o Override) Optional() sandbox.Optional {
	members := o.Provider.Optional()
	if o.Members != nil {
		o.Members(&members)
	}
	return members
}

// The optional members as functions, for Members.
type (
	// ReadFilesFunc is readFiles.
	ReadFilesFunc func(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error)
	// ListDirFunc is listDir.
	ListDirFunc func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error)
	// ListProjectDirFunc is listProjectDir.
	ListProjectDirFunc func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error)
	// OpenProcessFunc is openProcess.
	OpenProcessFunc func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error)
	// BeginActiveWriteFunc is beginActiveWrite.
	BeginActiveWriteFunc func(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error)
)

// ReadFiles calls f.
func (f ReadFilesFunc) ReadFiles(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
	return f(ctx, id, q)
}

// ListDir calls f.
func (f ListDirFunc) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	return f(ctx, id, l)
}

// ListProjectDir calls f.
func (f ListProjectDirFunc) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	return f(ctx, id, l)
}

// OpenProcess calls f.
func (f OpenProcessFunc) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
	return f(ctx, id, processID, q)
}

// BeginActiveWrite calls f.
func (f BeginActiveWriteFunc) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	return f(ctx, id, targets)
}
