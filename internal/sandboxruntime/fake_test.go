package sandboxruntime_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/sandbox"
)

// fake is an honest provider in memory with every member, and the hooks with
// which a test makes it break exactly one rule.
type fake struct {
	envelope sandbox.Capabilities
	optional sandbox.Optional
	clock    sandboxruntime.Clock

	// on runs at the start of a member, outside the lock, and may block,
	// panic, or fail the call.
	on map[sandbox.Operation]func(context.Context) error
	// lies change a result on its way out.
	lieInstance func(sandbox.Operation, *sandbox.Instance)
	lieSnapshot func(sandbox.Operation, *sandbox.Snapshot)
	lieReleased func(*sandbox.Released)
	lieSettled  func(*sandbox.Settlement)
	lieFile     func([]byte) []byte
	lieFiles    func([]sandbox.FileResult) []sandbox.FileResult
	lieEntries  func([]sandbox.DirEntry) []sandbox.DirEntry
	lieListing  func(*sandbox.ProjectListing)
	lieSwept    func(*sandbox.Swept)
	lieProcess  func(*fakeProcess) sandbox.Process
	lieWrite    func(*fakeWrite) sandbox.ActiveWrite
	noRollback  bool
	rollback    func(context.Context) error // runs before the true rollback

	mu        sync.Mutex
	serial    int
	instances map[sandbox.InstanceID]*fakeInstance
	snapshots map[sandbox.SnapshotID]sandbox.Snapshot
	calls     map[sandbox.Operation]int
	reads     []sandbox.FilesRead
	rollbacks int
	processes []*fakeProcess
	writes    []*fakeWrite
}

type fakeInstance struct {
	request sandbox.ProvisionRequest
	state   sandbox.State
	files   map[string][]byte
}

var epoch = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

const (
	image = "registry.test/base@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	repo  = "/workspace/repo"
	notes = "/workspace/notes"
	cache = "/workspace/repo/vendor"
)

func newFake(clock sandboxruntime.Clock) *fake {
	f := &fake{
		clock: clock,
		envelope: sandbox.Capabilities{
			Provider: "fake", ProviderRevision: "fake@1", MaterializationRevision: "image@1", Placement: sandbox.PlacementTest,
			Tiers:           []sandbox.Tier{sandbox.TierContainer},
			Platforms:       []sandbox.Platform{{OS: "linux", Architecture: "amd64"}},
			ImageMode:       sandbox.ImageProfile,
			PackageManagers: []sandbox.PackageManager{sandbox.ManagerApt, sandbox.ManagerPip},
			NetworkModes:    []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkAllowlist},
			RetentionModes:  []sandbox.RetentionMode{sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR},
			Snapshots:       true, SnapshotClone: true, ActiveMountWrite: true, ListDir: true,
			Enforcement:         sandbox.EnforcedBy(sandbox.ProviderAttested),
			EgressCertification: sandbox.EgressAdvisoryFilter,
			MinimumResources:    sandbox.Resources{CPUMillis: 100, MemoryBytes: 1 << 20, DiskBytes: 1 << 20, MaxProcesses: 1, MaxDurationSeconds: 1},
			MaximumResources:    sandbox.Resources{CPUMillis: 4000, MemoryBytes: 1 << 32, DiskBytes: 1 << 32, MaxProcesses: 1024, MaxDurationSeconds: 3600},
			MaxMounts:           8,
		},
		on:        map[sandbox.Operation]func(context.Context) error{},
		instances: map[sandbox.InstanceID]*fakeInstance{},
		snapshots: map[sandbox.SnapshotID]sandbox.Snapshot{},
		calls:     map[sandbox.Operation]int{},
	}
	f.optional = sandbox.Optional{ReadFiles: f, ListDir: f, ListProjectDir: f, OpenProcess: f, ActiveWrite: f}
	return f
}

func (f *fake) enter(ctx context.Context, op sandbox.Operation) error {
	f.mu.Lock()
	f.calls[op]++
	hook := f.on[op]
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx)
	}
	return nil
}

func (f *fake) mint(prefix string) string {
	f.serial++
	return prefix + strconv.Itoa(f.serial)
}

func (f *fake) now() sandbox.Timestamp { return sandbox.At(f.clock.Now()) }

// undo makes a rollback that knows on its own what it undoes.
func (f *fake) undo(fn func()) func(context.Context) error {
	if f.noRollback {
		return nil
	}
	return func(ctx context.Context) error {
		f.mu.Lock()
		f.rollbacks++
		f.mu.Unlock()
		if f.rollback != nil {
			if err := f.rollback(ctx); err != nil {
				return err
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		fn()
		return nil
	}
}

func digestOf(p sandbox.Profile) sandbox.Digest {
	return sandbox.Digest(canonical.Digest(p.ImageIdentity()))
}

// hand returns an instance as a handoff. The caller holds mu.
func (f *fake) hand(op sandbox.Operation, id sandbox.InstanceID) sandbox.Handoff[sandbox.Instance] {
	i := f.instances[id]
	value := sandbox.InstanceOf(i.request, id, i.state, digestOf(i.request.Profile))
	if f.lieInstance != nil {
		value.Mounts = slices.Clone(value.Mounts)
		f.lieInstance(op, &value)
	}
	return sandbox.Handoff[sandbox.Instance]{Value: value, Rollback: f.undo(func() { delete(f.instances, id) })}
}

func (f *fake) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	return f.envelope, f.enter(ctx, sandbox.OpCapabilities)
}

func (f *fake) Optional() sandbox.Optional { return f.optional }

func (f *fake) Provision(ctx context.Context, r sandbox.ProvisionRequest) (h sandbox.Handoff[sandbox.Instance], err error) {
	if err := f.enter(ctx, sandbox.OpProvision); err != nil {
		return h, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := sandbox.InstanceID(f.mint("i"))
	f.instances[id] = &fakeInstance{request: r, state: sandbox.StateProvisioning, files: map[string][]byte{}}
	return f.hand(sandbox.OpProvision, id), nil
}

func (f *fake) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if err := f.enter(ctx, sandbox.OpWriteFile); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.instances[id] == nil {
		return sandbox.NoInstance(sandbox.OpWriteFile, id)
	}
	f.instances[id].files[w.Path] = bytes.Clone(w.Content)
	return nil
}

func (f *fake) Activate(ctx context.Context, id sandbox.InstanceID) (h sandbox.Handoff[sandbox.Instance], err error) {
	if err := f.enter(ctx, sandbox.OpActivate); err != nil {
		return h, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.instances[id] == nil {
		return h, sandbox.NoInstance(sandbox.OpActivate, id)
	}
	f.instances[id].state = sandbox.StateActive
	return f.hand(sandbox.OpActivate, id), nil
}

func (f *fake) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	if err := f.enter(ctx, sandbox.OpExecute); err != nil {
		return sandbox.Settlement{}, err
	}
	s := sandbox.Settlement{Exit: sandbox.Exited(0), StartedAt: f.now(), FinishedAt: f.now(), Stdout: []byte(strings.Join(c.Arguments, " "))}
	if f.lieSettled != nil {
		f.lieSettled(&s)
	}
	return s, nil
}

func (f *fake) ReadFile(ctx context.Context, id sandbox.InstanceID, r sandbox.FileRead) ([]byte, error) {
	if err := f.enter(ctx, sandbox.OpReadFile); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.instances[id].files[r.Path]
	if !ok {
		return nil, sandbox.FailedAt(sandbox.OpReadFile, r.Path, sandbox.ReasonNotFound, nil)
	}
	if int64(len(content)) > r.MaximumBytes && f.lieFile == nil {
		return nil, sandbox.TooLarge(sandbox.OpReadFile, r.Path, r.MaximumBytes)
	}
	if f.lieFile != nil {
		content = f.lieFile(content)
	}
	return content, nil
}

func (f *fake) ReadFiles(ctx context.Context, id sandbox.InstanceID, r sandbox.FilesRead) ([]sandbox.FileResult, error) {
	if err := f.enter(ctx, sandbox.OpReadFiles); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads = append(f.reads, r)
	var results []sandbox.FileResult
	for _, m := range r.Files {
		content, ok := f.instances[id].files[m.Path]
		switch {
		case !ok:
			results = append(results, sandbox.FileResult{Refused: sandbox.RefusedNotFound})
		case int64(len(content)) > m.MaximumBytes:
			results = append(results, sandbox.FileResult{Refused: sandbox.RefusedTooLarge})
		default:
			results = append(results, sandbox.FileResult{Content: content})
		}
	}
	if f.lieFiles != nil {
		results = f.lieFiles(results)
	}
	return results, nil
}

func (f *fake) below(id sandbox.InstanceID, root string) []string {
	var names []string
	for _, path := range slices.Sorted(maps.Keys(f.instances[id].files)) {
		if name, ok := strings.CutPrefix(path, root+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

func (f *fake) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	if err := f.enter(ctx, sandbox.OpListDir); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var entries []sandbox.DirEntry
	for _, name := range f.below(id, l.Root) {
		content := f.instances[id].files[l.Root+"/"+name]
		entries = append(entries, sandbox.DirEntry{Path: name, Size: int64(len(content)), Digest: sandbox.Digest(canonical.Digest(content))})
	}
	if f.lieEntries != nil {
		entries = f.lieEntries(entries)
	}
	return entries, nil
}

func (f *fake) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	if err := f.enter(ctx, sandbox.OpListProjectDir); err != nil {
		return sandbox.ProjectListing{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	listing := sandbox.ProjectListing{Complete: true}
	for _, name := range f.below(id, l.Root) {
		content := f.instances[id].files[l.Root+"/"+name]
		listing.Leaves = append(listing.Leaves, sandbox.Leaf{Path: name, Type: sandbox.LeafRegular, Size: int64(len(content)), Digest: sandbox.Digest(canonical.Digest(content))})
	}
	if f.lieListing != nil {
		f.lieListing(&listing)
	}
	return listing, nil
}

// keep registers a snapshot and hands it over. The caller holds mu.
func (f *fake) keep(op sandbox.Operation, s sandbox.Snapshot) sandbox.Handoff[sandbox.Snapshot] {
	id := sandbox.SnapshotID(f.mint("s"))
	s.SnapshotID, s.CreatedAt = id, f.now()
	f.snapshots[id] = s
	if f.lieSnapshot != nil {
		f.lieSnapshot(op, &s)
	}
	return sandbox.Handoff[sandbox.Snapshot]{Value: s, Rollback: f.undo(func() { delete(f.snapshots, id) })}
}

func (f *fake) shot(id sandbox.InstanceID, expires sandbox.Timestamp) sandbox.Snapshot {
	r := f.instances[id].request
	return sandbox.Snapshot{
		Provider: "fake", Placement: sandbox.PlacementTest, SourceInstanceID: id, WorkspaceID: r.WorkspaceID, SessionID: r.SessionID,
		ProfileID: r.Profile.ProfileID, ProfileVersion: r.Profile.ProfileVersion, ProfileDigest: digestOf(r.Profile), ExpiresAt: expires,
	}
}

func (f *fake) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (h sandbox.Handoff[sandbox.Snapshot], err error) {
	if err := f.enter(ctx, sandbox.OpSnapshot); err != nil {
		return h, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.instances[id] == nil {
		return h, sandbox.NoInstance(sandbox.OpSnapshot, id)
	}
	return f.keep(sandbox.OpSnapshot, f.shot(id, r.ExpiresAt)), nil
}

func (f *fake) CloneSnapshot(ctx context.Context, r sandbox.CloneRequest) (h sandbox.Handoff[sandbox.Snapshot], err error) {
	if err := f.enter(ctx, sandbox.OpCloneSnapshot); err != nil {
		return h, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := r.Snapshot
	s.SessionID = r.TargetSessionID
	return f.keep(sandbox.OpCloneSnapshot, s), nil
}

func (f *fake) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (h sandbox.Handoff[sandbox.Released], err error) {
	if err := f.enter(ctx, sandbox.OpRelease); err != nil {
		return h, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.instances[id] == nil {
		return h, sandbox.NoInstance(sandbox.OpRelease, id)
	}
	h.Value.Disposition = sandbox.DispositionDestroyed
	undo := func() {}
	if f.instances[id].request.Profile.RetentionMode == sandbox.RetentionDurable {
		s := f.keep(sandbox.OpRelease, f.shot(id, r.ExpiresAt)).Value
		h.Value = sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &s}
		kept := sandbox.SnapshotID("s" + strconv.Itoa(f.serial))
		undo = func() { delete(f.snapshots, kept) }
	}
	delete(f.instances, id)
	if f.lieReleased != nil {
		f.lieReleased(&h.Value)
	}
	h.Rollback = f.undo(undo)
	return h, nil
}

func (f *fake) Resume(ctx context.Context, r sandbox.ResumeRequest) (h sandbox.Handoff[sandbox.Instance], err error) {
	if err := f.enter(ctx, sandbox.OpResume); err != nil {
		return h, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := sandbox.InstanceID(f.mint("i"))
	f.instances[id] = &fakeInstance{request: r.Request, state: sandbox.StateActive, files: map[string][]byte{}}
	return f.hand(sandbox.OpResume, id), nil
}

func (f *fake) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	if err := f.enter(ctx, sandbox.OpDestroy); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instances, id)
	return nil
}

func (f *fake) DestroySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	if err := f.enter(ctx, sandbox.OpDestroySnapshot); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.snapshots, id)
	return nil
}

func (f *fake) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	if err := f.enter(ctx, sandbox.OpCleanup); err != nil {
		return sandbox.Swept{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	swept := sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
	for id, i := range f.instances {
		if !r.Now.Before(i.request.ExpiresAt) {
			swept.InstanceIDs = append(swept.InstanceIDs, id)
			delete(f.instances, id)
		}
	}
	if f.lieSwept != nil {
		f.lieSwept(&swept)
	}
	return swept, nil
}

// newBench selects f's runtime after prepare has changed the provider.
func newBench(t *testing.T, prepare ...func(*fake)) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	b := &bench{T: t, ctx: ctx, clock: clocktest.New(epoch), reports: make(chan error, 16)}
	b.fake = newFake(b.clock)
	for _, p := range prepare {
		p(b.fake)
	}
	var err error
	b.runtime, err = b.selector(sandboxruntime.Adapter{Provider: b.fake}).Attach(ctx, b.fake.envelope.Target())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func profile(mode sandbox.RetentionMode) sandbox.Profile {
	return sandbox.Profile{
		ProfileID: "prof", ProfileVersion: 3, Tier: sandbox.TierContainer, BaseImage: image,
		Packages: []sandbox.Package{{Manager: sandbox.ManagerApt, Name: "git"}, {Manager: sandbox.ManagerPip, Name: "ruff", Version: "1.0"}},
		NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{
			{Host: "example.test", Port: 443}, {Host: "db.example.test", Port: 5432}}},
		ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 1 << 30, MaxProcesses: 64, MaxDurationSeconds: 60},
		RetentionMode:  mode,
	}
}

func request(f *fake, mode sandbox.RetentionMode) sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "w1", SessionID: "sess1", RunID: "run1", AttemptID: "att1", LeaseID: "lease1", LeaseEpoch: 7,
		Target: f.envelope.Target(), Profile: profile(mode), Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts: []sandbox.Mount{
			{MountPath: repo, Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit},
			{MountPath: notes, Access: sandbox.AccessReadOnly, Kind: sandbox.MountMemory},
			{MountPath: cache, Access: sandbox.AccessReadOnly, Kind: sandbox.MountProject},
		},
		ExpiresAt: sandbox.At(epoch.Add(time.Hour)),
	}
}
