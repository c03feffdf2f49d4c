package sandbox

import "context"

// Handoff is an allocation on its way from the provider to the Runner.
//
// Until it is returned the provider owns every partial allocation. The Runner
// calls Rollback at most once as a decision, only when it rejects Value or is
// interrupted before taking ownership; after a lost reply the call may be
// repeated and must settle the same way. Rollback must know on its own what it
// allocated: Value was rejected precisely because it cannot be trusted. It is
// given 30 seconds.
// Source: contract "Allocation handoff".
type Handoff[T any] struct {
	Value    T
	Rollback func(ctx context.Context) error
}

// Provider is a sandbox provider: the thirteen required members.
//
// Errors: every member returns nil, a *Error, or ctx's error; a [Remote] one
// also a [Violation]. Anything else is a defect.
// Concurrency: members may be called for different instances at once, and for
// one instance as its state allows.
// Source: contract "The operations".
type Provider interface {
	// Capabilities returns the one envelope of this revision. It never changes
	// while the revision does not.
	Capabilities(ctx context.Context) (Capabilities, error)
	// Provision allocates an instance, materializes its image, prepares its
	// declared mounts and returns it in provisioning.
	Provision(ctx context.Context, r ProvisionRequest) (Handoff[Instance], error)
	// WriteFile writes bytes at a path that the Runner already admitted.
	WriteFile(ctx context.Context, id InstanceID, w FileWrite) error
	// Activate seals staged mounts and makes the instance runnable.
	Activate(ctx context.Context, id InstanceID) (Handoff[Instance], error)
	// Execute runs one bounded command to completion.
	Execute(ctx context.Context, id InstanceID, c Command) (Settlement, error)
	// ReadFile reads one file with physical containment under r.AllowedRoot,
	// or fails closed on physically_contained_file_read.
	ReadFile(ctx context.Context, id InstanceID, r FileRead) ([]byte, error)
	// Snapshot captures instance state. Durable profiles only.
	Snapshot(ctx context.Context, id InstanceID, r SnapshotRequest) (Handoff[Snapshot], error)
	// CloneSnapshot copies a snapshot into another Session with no dependency
	// on the source.
	CloneSnapshot(ctx context.Context, r CloneRequest) (Handoff[Snapshot], error)
	// Release settles a snapshot (durable) or destroys every trace (zero data
	// retention).
	Release(ctx context.Context, id InstanceID, r ReleaseRequest) (Handoff[Released], error)
	// Resume rehydrates a snapshot into a fresh active instance.
	Resume(ctx context.Context, r ResumeRequest) (Handoff[Instance], error)
	// Destroy tears one instance down. Idempotent: an unknown id is success.
	Destroy(ctx context.Context, id InstanceID) error
	// DestroySnapshot tears one snapshot down. Idempotent likewise.
	DestroySnapshot(ctx context.Context, id SnapshotID) error
	// Cleanup sweeps instances and snapshots orphaned before the cutoff.
	Cleanup(ctx context.Context, r CleanupRequest) (Swept, error)

	// Optional returns the optional members that this provider has. A nil
	// field is an absent member; wrappers copy the struct, so absence survives
	// them. It is read once, at selection.
	Optional() Optional
}

// Remote is what a provider implements that stands at the other end of a wire.
// Whoever adopts one treats it as such, whatever else it was told: nothing that
// it claims counts as runner_enforced.
// Source: concept "The enforcement statement".
type Remote interface {
	// Remote reports that there is a wire in between.
	Remote() bool
}

// Violation is an error with which a [Remote] provider says that the other end
// broke the wire: field is what broke, a name of the wire. A Runner reports it
// as SandboxProtocolInvalid, which no provider may author; so from a provider
// that is not remote it is a defect as any other error.
// Source: contract "Errors".
type Violation interface {
	error
	// Violation names the field, what was expected of it, and what came.
	Violation() (field, expected, got string)
}

// Optional holds the five optional members. Absence is safe and typed;
// claiming one that does not work is not.
// Source: contract "Optional capabilities: absent versus wrong".
type Optional struct {
	ReadFiles      FilesReader
	ListDir        DirLister
	ListProjectDir ProjectLister
	OpenProcess    ProcessOpener
	ActiveWrite    ActiveWriter
}

// FilesReader is readFiles.
type FilesReader interface {
	// ReadFiles answers every member of r in order. All belong to one root.
	ReadFiles(ctx context.Context, id InstanceID, r FilesRead) ([]FileResult, error)
}

// DirLister is listDir.
type DirLister interface {
	// ListDir names every regular file below l.Root with size and SHA-256, in
	// ascending order of path bytes.
	ListDir(ctx context.Context, id InstanceID, l Listing) ([]DirEntry, error)
}

// ProjectLister is listProjectDir.
type ProjectLister interface {
	// ListProjectDir names every leaf below l.Root, special files included, in
	// ascending order of path bytes.
	ListProjectDir(ctx context.Context, id InstanceID, l Listing) (ProjectListing, error)
}

// ProcessOpener is openProcess.
type ProcessOpener interface {
	// OpenProcess starts a live process. At most one lives in an instance; the
	// provider refuses a second as process_already_open. processID is minted
	// by the Runner.
	OpenProcess(ctx context.Context, id InstanceID, processID string, r ProcessRequest) (Process, error)
}

// ActiveWriter is beginActiveWrite.
type ActiveWriter interface {
	// BeginActiveWrite opens a transaction that writes regular files into one
	// read-write mount of an active instance: the deepest one that owns every
	// target. A provider whose journal would put bodies on durable storage
	// refuses an ephemeral_zdr instance here, before it accepts one.
	BeginActiveWrite(ctx context.Context, id InstanceID, targets []string) (ActiveWrite, error)
}

// JournalState is the durable state of an active write.
// Source: contract "The operations", the paragraph on beginActiveWrite.
type JournalState string

// The four journal states.
const (
	JournalOpen       JournalState = "open"
	JournalDispatched JournalState = "dispatched"
	JournalCommitted  JournalState = "committed"
	JournalRolledBack JournalState = "rolled_back"
)

// Valid reports whether s is one of the four.
func (s JournalState) Valid() bool {
	return s == JournalOpen || s == JournalDispatched || s == JournalCommitted || s == JournalRolledBack
}

// ActiveWrite is one transaction. It is the caller's, and abortable, until
// Dispatch calls its marker; a caller that stops observing after the marker
// leaves the command indeterminate and available for redelivery.
type ActiveWrite interface {
	// Stage takes the body of one declared target.
	Stage(ctx context.Context, w FileWrite) error
	// Dispatch publishes all staged files at once before the workload resumes.
	// It calls marker exactly once, immediately before the journal changes to
	// dispatched.
	Dispatch(ctx context.Context, marker func()) error
	// Abort drops an open transaction. It is idempotent and refuses one that
	// was dispatched.
	Abort(ctx context.Context) error
	// Inspect returns the journal's durable state.
	Inspect(ctx context.Context) (JournalState, error)
}
