package sandboxruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// TestOptionalCapabilities_AbsentIsATypedRefusal.
func TestOptionalCapabilities_AbsentIsATypedRefusal(t *testing.T) {
	listing := sandbox.Listing{Root: repo, MaxEntries: 1}
	listDir := func(b *bench, id sandbox.InstanceID) error {
		_, err := b.runtime.ListDir(b.ctx, id, listing)
		return err
	}
	for name, c := range map[string]struct {
		absent func(*fake)
		drive  func(*bench, sandbox.InstanceID) error
		want   error
	}{
		"list_dir false, no listDir": {func(f *fake) { f.envelope.ListDir, f.optional.ListDir = false, nil }, listDir, sandbox.Conflict(sandbox.OpListDir, "", "list_dir_unsupported")},
		"list_dir true, no listDir":  {func(f *fake) { f.optional.ListDir = nil }, listDir, sandbox.Conflict(sandbox.OpListDir, "", "list_dir_unsupported")},
		"list_dir false, listDir":    {func(f *fake) { f.envelope.ListDir = false }, listDir, sandbox.Conflict(sandbox.OpListDir, "", "list_dir_unsupported")},
		"listProjectDir": {func(f *fake) { f.optional.ListProjectDir = nil }, func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.ListProjectDir(b.ctx, id, listing)
			return err
		}, sandbox.Conflict(sandbox.OpListProjectDir, "", "list_project_dir_unsupported")},
		"openProcess": {func(f *fake) { f.optional.OpenProcess = nil }, func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.OpenProcess(b.ctx, id, program)
			return err
		}, sandbox.Conflict(sandbox.OpOpenProcess, "", "open_process_unsupported")},
		"active_mount_write": {func(f *fake) { f.envelope.ActiveMountWrite = false }, beginActiveWrite, sandbox.Unavailable(sandbox.OpBeginActiveWrite, "active_mount_write", "", "")},
		"beginActiveWrite":   {func(f *fake) { f.optional.ActiveWrite = nil }, beginActiveWrite, sandbox.Conflict(sandbox.OpBeginActiveWrite, "", "begin_active_write_unsupported")},
		"snapshot_clone": {func(f *fake) { f.envelope.SnapshotClone = false }, func(b *bench, id sandbox.InstanceID) error {
			return driveSnapshot(b, sandbox.OpCloneSnapshot)
		}, sandbox.Unavailable(sandbox.OpCloneSnapshot, "snapshot_clone", "", "")},
	} {
		b := newBench(t, c.absent)
		if err := c.drive(b, b.activate(durable)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	// Without snapshots neither clone nor resume reaches the provider.
	b := newBench(t, func(f *fake) {
		f.envelope.Snapshots, f.envelope.SnapshotClone, f.envelope.RetentionModes = false, false, []sandbox.RetentionMode{zdr}
	})
	want := &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireSnapshots}
	if err := driveSnapshot(b, sandbox.OpCloneSnapshot); !errors.Is(err, want) {
		t.Error(err)
	}
	if _, err := b.runtime.Resume(b.ctx, sandbox.ResumeRequest{Request: request(b.fake, zdr), Snapshot: snapshot(b)}); !errors.Is(err, want) {
		t.Error(err)
	}
}

func beginActiveWrite(b *bench, id sandbox.InstanceID) error {
	_, err := b.runtime.BeginActiveWrite(b.ctx, id, []string{repo + "/a"})
	return err
}

// TestOperations_ExecuteSettlement: two causes or none, an interval that runs
// backwards, a stream over its limit.
func TestOperations_ExecuteSettlement(t *testing.T) {
	code := int64(256)
	for name, c := range map[string]struct {
		lie   func(*sandbox.Settlement)
		field string
	}{
		"two causes":         {func(s *sandbox.Settlement) { s.Exit.Signal = "SIGKILL" }, "exit"},
		"no cause":           {func(s *sandbox.Settlement) { s.Exit = sandbox.Exit{} }, "exit"},
		"timeout and code":   {func(s *sandbox.Settlement) { s.TimedOut = true }, "exit"},
		"code over 255":      {func(s *sandbox.Settlement) { s.Exit.ExitCode = &code }, "exit_code"},
		"signal of no form":  {func(s *sandbox.Settlement) { s.Exit = sandbox.Signaled("KILL") }, "signal"},
		"backwards":          {func(s *sandbox.Settlement) { s.StartedAt = later }, "finished_at"},
		"no canonical start": {func(s *sandbox.Settlement) { s.StartedAt = "yesterday" }, "started_at"},
		"stdout + 1":         {func(s *sandbox.Settlement) { s.Stdout = make([]byte, 101) }, "stdout"},
		"stderr + 1":         {func(s *sandbox.Settlement) { s.Stderr = make([]byte, 101) }, "stderr"},
		"both at the limit":  {func(s *sandbox.Settlement) { s.Stdout, s.Stderr = make([]byte, 100), make([]byte, 100) }, ""},
		"a timeout":          {func(s *sandbox.Settlement) { s.Exit, s.TimedOut = sandbox.Exit{}, true }, ""},
		"a signal":           {func(s *sandbox.Settlement) { s.Exit = sandbox.Signaled("SIGSEGV") }, ""},
	} {
		b := newBench(t)
		id := b.activate(durable)
		b.fake.lieSettled = c.lie
		q := command
		q.OutputLimitBytes = 100
		_, err := b.runtime.Execute(b.ctx, id, q)
		if c.field == "" && err != nil {
			t.Error(name, err)
		} else if c.field != "" {
			wantField(t, err, sandbox.OpExecute, c.field)
		}
	}
}

// TestBounds_ExecuteTimeout: above max_duration_seconds is refused here, and a
// provider that does not settle 30 s after the timeout is left.
func TestBounds_ExecuteTimeout(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	q := command
	q.TimeoutSeconds = 61
	if _, err := b.runtime.Execute(b.ctx, id, q); !errors.Is(err, sandbox.Unavailable(sandbox.OpExecute, sandbox.RequireResources, "timeout_seconds 61", "max_duration_seconds 60")) || b.called(sandbox.OpExecute) != 0 {
		t.Error(err)
	}
	q.TimeoutSeconds = 60
	let := make(chan struct{})
	b.fake.on[sandbox.OpExecute] = func(context.Context) error { <-let; return nil }
	failed := make(chan error, 1)
	go func() { _, err := b.runtime.Execute(b.ctx, id, q); failed <- err }()
	b.await(1)
	b.clock.Advance(90 * time.Second)
	if err := <-failed; !errors.Is(err, &sandbox.Error{Operation: sandbox.OpExecute, Reason: sandbox.ReasonTimedOut}) {
		t.Error(err)
	}
	// It may still be running: the instance stays busy until it has returned.
	release := func() error {
		_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
		return err
	}
	if err := release(); !errors.Is(err, sandbox.Conflict(sandbox.OpRelease, "active", "busy")) {
		t.Error(err)
	}
	close(let)
	b.eventually(func() bool { return release() == nil })
}

// TestIdentity_HardExpiry: past its expiry an instance starts nothing, but
// what it holds can still be read and released.
func TestIdentity_HardExpiry(t *testing.T) {
	expired := &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: sandbox.ActualExpired}
	b := newBench(t)
	staged, id := b.provision(durable), b.staged()
	b.clock.Advance(time.Hour - time.Millisecond)
	if _, err := b.runtime.Execute(b.ctx, id, command); err != nil {
		t.Error("refused before its expiry:", err)
	}
	b.clock.Advance(time.Millisecond)
	_, execute := b.runtime.Execute(b.ctx, id, command)
	_, open := b.runtime.OpenProcess(b.ctx, id, program)
	_, activate := b.runtime.Activate(b.ctx, staged)
	_, shot := b.runtime.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
	for op, err := range map[string]error{"execute": execute, "openProcess": open, "activate": activate, "snapshot": shot,
		"writeFile":        b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/x"}),
		"beginActiveWrite": beginActiveWrite(b, id)} {
		if !errors.Is(err, expired) {
			t.Error(op, err)
		}
	}
	if _, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", 1); err != nil {
		t.Error("the result cannot be rescued:", err)
	}
	if _, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); err != nil {
		t.Error(err)
	}
	// Deadlines of requests that lie in the past.
	two := newBench(t)
	id = two.activate(durable)
	two.clock.Advance(time.Minute)
	old := sandbox.At(two.clock.Now())
	_, shot = two.runtime.Snapshot(two.ctx, id, sandbox.SnapshotRequest{ExpiresAt: old})
	_, release := two.runtime.Release(two.ctx, id, sandbox.ReleaseRequest{ExpiresAt: old})
	dead := snapshot(two)
	dead.ExpiresAt = old
	_, clone := two.runtime.CloneSnapshot(two.ctx, sandbox.CloneRequest{Snapshot: dead, TargetSessionID: "sess2"})
	_, resume := two.runtime.Resume(two.ctx, sandbox.ResumeRequest{Request: request(two.fake, durable), Snapshot: dead})
	for op, err := range map[string]error{"snapshot": shot, "release": release, "clone": clone, "resume": resume} {
		if !errors.Is(err, expired) {
			t.Error(op, err)
		}
	}
}

// TestOperations_ZeroDataRetention: no snapshot, and a release that destroys.
func TestOperations_ZeroDataRetention(t *testing.T) {
	b := newBench(t)
	id := b.activate(zdr)
	if _, err := b.runtime.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later}); !errors.Is(err, sandbox.Forbidden(sandbox.OpSnapshot, id)) || b.called(sandbox.OpSnapshot) != 0 {
		t.Error(err)
	}
	if _, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}) {
		t.Error(err)
	}
	r, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{})
	if err != nil || r.Disposition != sandbox.DispositionDestroyed || r.Snapshot != nil {
		t.Error(r, err)
	}
}

// TestOperations_ResumeMismatch: on provider, placement, Workspace, Session or
// profile, and before the provider is called.
func TestOperations_ResumeMismatch(t *testing.T) {
	for _, l := range leaves(sandbox.Snapshot{}) {
		if l.path == "snapshot_id" || l.path == "source_instance_id" || l.path == "created_at" || l.path == "expires_at" {
			continue // the snapshot's own
		}
		b := newBench(t)
		s := snapshot(b)
		switch l.path {
		case "placement":
			s.Placement = sandbox.PlacementLocal
		case "profile_digest":
			s.ProfileDigest = sandbox.ImageDigest(image)
		default:
			l.sabotage(&s)
		}
		_, err := b.runtime.Resume(b.ctx, sandbox.ResumeRequest{Request: request(b.fake, durable), Snapshot: s})
		e, ok := errors.AsType[*sandbox.Error](err)
		if !ok || e.Kind != sandbox.LifecycleConflict || !strings.Contains(e.Expected, l.path) || b.called(sandbox.OpResume) != 0 {
			t.Error(l.path, err)
		}
	}
}

// TestCleanup: bounds of the request, form of the result.
func TestCleanup(t *testing.T) {
	now, before := sandbox.At(epoch), sandbox.At(epoch.Add(-time.Minute))
	pins := func(n int) (ids []sandbox.SnapshotID) {
		for range n {
			ids = append(ids, "s")
		}
		return ids
	}
	b := newBench(t)
	for name, q := range map[string]sandbox.CleanupRequest{
		"cutoff after now": {Now: before, OrphanedBefore: now},
		"1025 pins":        {Now: now, OrphanedBefore: before, PinnedSnapshots: pins(1025)},
		"no time":          {OrphanedBefore: before},
	} {
		if _, err := b.runtime.Cleanup(b.ctx, q); !errors.Is(err, &sandbox.Error{Operation: sandbox.OpCleanup, Reason: sandbox.ReasonInvalidRequest}) {
			t.Error(name, err)
		}
	}
	if n := b.called(sandbox.OpCleanup); n != 0 {
		t.Error("the provider was called")
	}
	for _, q := range []sandbox.CleanupRequest{{Now: now, OrphanedBefore: now}, {Now: now, OrphanedBefore: before, PinnedSnapshots: pins(1024)}} {
		if _, err := b.runtime.Cleanup(b.ctx, q); err != nil {
			t.Error(err)
		}
	}
	for field, lie := range map[string]func(*sandbox.Swept){
		"swept":           func(s *sandbox.Swept) { s.InstanceIDs = nil },
		"instance_ids[1]": func(s *sandbox.Swept) { s.InstanceIDs = []sandbox.InstanceID{"a", "a"} },
		"snapshot_ids[0]": func(s *sandbox.Swept) { s.SnapshotIDs = []sandbox.SnapshotID{""} },
	} {
		b.fake.lieSwept = lie
		_, err := b.runtime.Cleanup(b.ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
		wantField(t, err, sandbox.OpCleanup, field)
	}
}

// TestProvider_View: a suite may drive the runtime like a provider.
func TestProvider_View(t *testing.T) {
	b := newBench(t)
	v := b.runtime.Provider()
	h, err := v.Provision(b.ctx, request(b.fake, durable))
	if err != nil {
		t.Fatal(err)
	}
	id := h.Value.InstanceID
	if _, err := v.Activate(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := v.ReadFile(b.ctx, id, sandbox.FileRead{Path: repo + "/a", AllowedRoot: "/workspace", MaximumBytes: 1}); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonOutsideRoot}) {
		t.Error("a wider root was taken:", err)
	}
	const pid = "pr_0123456789abcdef0123456789abcdef"
	p, err := v.Optional().OpenProcess.OpenProcess(b.ctx, id, pid, program)
	if err != nil || p.Evidence().ProcessID != pid {
		t.Error(err)
	}
	if _, err := v.Optional().OpenProcess.OpenProcess(b.ctx, id, "pr_", program); err == nil {
		t.Error("a malformed process id was taken")
	}
	if err := errors.Join(h.Rollback(b.ctx), h.Rollback(b.ctx)); err != nil {
		t.Error(err)
	}
	unwound(b, 0)
	two := newBench(t, func(f *fake) { f.optional = sandbox.Optional{}; f.envelope.ListDir = false })
	if o := two.runtime.Provider().Optional(); o != (sandbox.Optional{}) {
		t.Error("absence did not survive:", o)
	}
	unclaimed := newBench(t, func(f *fake) { f.envelope.ListDir = false })
	claimed := newBench(t, func(f *fake) { f.optional.ListDir = nil })
	if unclaimed.runtime.Provider().Optional().ListDir != nil || claimed.runtime.Provider().Optional().ListDir != nil {
		t.Error("listDir is offered by half")
	}
	if c, err := v.Capabilities(b.ctx); err != nil || c.Target() != b.fake.envelope.Target() {
		t.Error(c, err)
	}
}
