package memory

import (
	"context"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/google/go-cmp/cmp"
)

func (f *fixture) snapshot(id sandbox.InstanceID, expires time.Duration) sandbox.Snapshot {
	f.Helper()
	h, err := f.p.Snapshot(f.ctx(), id, sandbox.SnapshotRequest{ExpiresAt: at(expires)})
	f.must(err)
	f.must(h.Value.Validate())
	return h.Value
}

func (f *fixture) resume(r sandbox.ProvisionRequest, s sandbox.Snapshot) sandbox.InstanceID {
	f.Helper()
	h, err := f.p.Resume(f.ctx(), sandbox.ResumeRequest{Request: r, Snapshot: s})
	f.must(err)
	return h.Value.InstanceID
}

func TestDurableRoundTrip(t *testing.T) {
	f := newFixture(t)
	id := f.provision(request())
	f.write(id, "/workspace/ro/given", "given\n")
	f.activate(id)
	f.sh(id, `echo m >/workspace/rw/m; echo o >/mnt/session/outputs/o; echo h >$HOME/h; echo t >/tmp/t; ln -s m /workspace/rw/l; chmod 700 /workspace/rw/m`)
	h, err := f.p.Release(f.ctx(), id, sandbox.ReleaseRequest{ExpiresAt: at(48 * time.Hour)})
	f.must(err)
	f.must(h.Value.Validate())
	if h.Value.Disposition != sandbox.DispositionReleased || h.Value.Snapshot.ExpiresAt != at(48*time.Hour) || h.Value.Snapshot.SourceInstanceID != id {
		t.Errorf("%+v", h.Value)
	}
	_, err = f.p.Execute(f.ctx(), id, shellCommand("true"))
	f.want(err, sandbox.NoInstance(sandbox.OpExecute, id))

	next := with(func(r *sandbox.ProvisionRequest) { r.RunID, r.AttemptID, r.LeaseID, r.LeaseEpoch = "r2", "a2", "l2", 7 })
	r, err := f.p.Resume(f.ctx(), sandbox.ResumeRequest{Request: next, Snapshot: *h.Value.Snapshot})
	f.must(err)
	want := sandbox.InstanceOf(next, r.Value.InstanceID, sandbox.StateActive, digestOf(next.Profile.ImageIdentity()))
	if diff := cmp.Diff(want, r.Value); diff != "" || r.Value.InstanceID == id {
		t.Error(r.Value.InstanceID, diff)
	}
	if got := f.sh(r.Value.InstanceID, "cat /workspace/ro/given /workspace/rw/l /mnt/session/outputs/o $HOME/h; test -x /workspace/rw/m && test ! -e /tmp/t && echo x"); got != "given\nm\no\nh\nx\n" {
		t.Errorf("%q", got)
	}
	if s := f.run(r.Value.InstanceID, "echo >/workspace/ro/given"); *s.Exit.ExitCode == 0 {
		t.Error("the resumed mount is not sealed")
	}
	f.sh(r.Value.InstanceID, "echo changed >/workspace/rw/m")
	if got := f.sh(f.resume(next, *h.Value.Snapshot), "cat /workspace/rw/m"); got != "m\n" {
		t.Errorf("a resumed instance changed its snapshot: %q", got)
	}
}

func TestCloneIsIndependent(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	f.sh(id, "echo m >/workspace/rw/m")
	source := f.snapshot(id, 24*time.Hour)
	f.clock.Advance(time.Minute)
	h, err := f.p.CloneSnapshot(f.ctx(), sandbox.CloneRequest{Snapshot: source, TargetSessionID: "other"})
	f.must(err)
	want := source
	want.SnapshotID, want.SessionID, want.CreatedAt = h.Value.SnapshotID, "other", at(time.Minute)
	if h.Value != want || h.Value.SnapshotID == source.SnapshotID {
		t.Errorf("%+v", h.Value)
	}
	f.must(h.Value.Validate())
	f.must(f.p.DestroySnapshot(f.ctx(), source.SnapshotID))
	f.must(f.p.DestroySnapshot(f.ctx(), source.SnapshotID))
	f.must(f.p.Destroy(f.ctx(), id))
	f.must(f.p.Destroy(f.ctx(), id))
	if got := f.sh(f.resume(with(func(r *sandbox.ProvisionRequest) { r.SessionID = "other" }), h.Value), "cat /workspace/rw/m"); got != "m\n" {
		t.Errorf("%q", got)
	}
	_, err = f.p.CloneSnapshot(f.ctx(), sandbox.CloneRequest{Snapshot: source, TargetSessionID: "third"})
	f.want(err, sandbox.NoSnapshot(sandbox.OpCloneSnapshot, source.SnapshotID))
	f.clock.Advance(24 * time.Hour)
	_, err = f.p.CloneSnapshot(f.ctx(), sandbox.CloneRequest{Snapshot: h.Value, TargetSessionID: "third"})
	f.want(err, sandbox.NoSnapshot(sandbox.OpCloneSnapshot, h.Value.SnapshotID))
}

// A clock that was turned back makes no clone older than its source.
func TestCloneIsNotOlder(t *testing.T) {
	f := newFixture(t)
	source := f.snapshot(f.active(request()), time.Hour)
	f.clock.Advance(-time.Minute)
	h, err := f.p.CloneSnapshot(f.ctx(), sandbox.CloneRequest{Snapshot: source, TargetSessionID: "other"})
	f.must(err)
	if h.Value.CreatedAt != source.CreatedAt {
		t.Errorf("%s, source %s", h.Value.CreatedAt, source.CreatedAt)
	}
}

func TestResumeRefuses(t *testing.T) {
	conflict := func(field string) *sandbox.Error {
		return &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpResume, Expected: field}
	}
	for _, c := range []struct {
		name    string
		request func(*sandbox.ProvisionRequest)
		ref     func(*sandbox.Snapshot)
		want    *sandbox.Error
	}{
		{"workspace", func(r *sandbox.ProvisionRequest) { r.WorkspaceID = "x" }, nil, conflict("snapshot.workspace_id w")},
		{"session", func(r *sandbox.ProvisionRequest) { r.SessionID = "x" }, nil, conflict("snapshot.session_id s")},
		{"profile", func(r *sandbox.ProvisionRequest) { r.Profile.ProfileID = "x" }, nil, conflict("snapshot.profile_id p")},
		{"profile version", func(r *sandbox.ProvisionRequest) { r.Profile.ProfileVersion = 2 }, nil, conflict("snapshot.profile_version 1")},
		{"profile digest", func(r *sandbox.ProvisionRequest) { r.Profile.BaseImage = "y@" + string(digestOf(nil)) }, nil, &sandbox.Error{Kind: sandbox.LifecycleConflict}},
		{"provider", func(r *sandbox.ProvisionRequest) { r.Target.Provider = "x" }, nil, &sandbox.Error{Kind: sandbox.LifecycleConflict}},
		{"placement", func(r *sandbox.ProvisionRequest) { r.Target.Placement = sandbox.PlacementLocal }, nil, &sandbox.Error{Kind: sandbox.LifecycleConflict}},
		{"retention", zdr, nil, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireRetention}},
		{"a mount less", func(r *sandbox.ProvisionRequest) { r.Mounts = r.Mounts[:1] }, nil, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireMounts}},
		{"a sealed mount opened", func(r *sandbox.ProvisionRequest) { r.Mounts[0].Access = sandbox.AccessReadWrite }, nil, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireMounts}},
		{"smaller disk", func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.DiskBytes = 100 }, nil, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireResources}},
		{"unknown", nil, func(s *sandbox.Snapshot) { s.SnapshotID = "x" }, sandbox.NoSnapshot(sandbox.OpResume, "x")},
		{"later expiry", nil, func(s *sandbox.Snapshot) { s.ExpiresAt = at(99 * time.Hour) }, conflict("snapshot.expires_at " + string(at(24*time.Hour)))},
		{"another session's", nil, func(s *sandbox.Snapshot) { s.SessionID = "x" }, conflict("snapshot.session_id s")},
		{"malformed", nil, func(s *sandbox.Snapshot) { s.ProfileDigest = "x" }, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			id := f.active(request())
			f.write(id, sandbox.OutputPath+"/f", "some content that takes room")
			r := sandbox.ResumeRequest{Request: request(), Snapshot: f.snapshot(id, 24*time.Hour)}
			if c.request != nil {
				c.request(&r.Request)
			}
			if c.ref != nil {
				c.ref(&r.Snapshot)
			}
			_, err := f.p.Resume(f.ctx(), r)
			f.want(err, c.want)
			if len(f.p.instances) != 1 || len(f.p.snapshots) != 1 {
				t.Error("something was left or lost")
			}
		})
	}
}

func TestSnapshotRefuses(t *testing.T) {
	f := newFixture(t)
	id := f.active(with(zdr))
	_, err := f.p.Snapshot(f.ctx(), id, sandbox.SnapshotRequest{ExpiresAt: at(time.Hour)})
	f.want(err, sandbox.Forbidden(sandbox.OpSnapshot, id))
	id = f.active(request())
	_, err = f.p.Snapshot(f.ctx(), id, sandbox.SnapshotRequest{ExpiresAt: at(0)})
	f.want(err, sandbox.Conflict(sandbox.OpSnapshot, "before expires_at "+string(at(0)), sandbox.ActualExpired))
	for _, expires := range []sandbox.Timestamp{"", "2026-03-02T00:00:00Z"} {
		_, err = f.p.Snapshot(f.ctx(), id, sandbox.SnapshotRequest{ExpiresAt: expires})
		f.want(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInvalidRequest})
	}
	_, err = f.p.Release(f.ctx(), id, sandbox.ReleaseRequest{})
	f.want(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInvalidRequest})
	_, err = f.p.Release(f.ctx(), f.active(with(zdr)), sandbox.ReleaseRequest{ExpiresAt: at(time.Hour)})
	f.want(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInvalidRequest})
	if len(f.p.snapshots) != 0 {
		t.Error("a snapshot was left")
	}
}

// A zero data retention release leaves no byte, not even for somebody who
// kept the memory.
func TestZDRReleaseErases(t *testing.T) {
	f := newFixture(t)
	id := f.active(with(zdr))
	f.sh(id, "printf secret >/workspace/rw/s")
	i := f.p.instances[id]
	root := i.m.tree.root
	kept := root.kids["workspace"].kids["rw"].kids["s"].data
	w, err := f.p.BeginActiveWrite(f.ctx(), id, []string{"/workspace/rw/x"})
	f.must(err)
	f.must(w.Stage(f.ctx(), sandbox.FileWrite{Path: "/workspace/rw/x", Content: []byte("secret")}))
	body := w.(*activeWrite).bodies["/workspace/rw/x"].data
	if string(kept) != "secret" || string(body) != "secret" {
		t.Fatalf("%q %q", kept, body)
	}
	h, err := f.p.Release(f.ctx(), id, sandbox.ReleaseRequest{})
	f.must(err)
	f.must(h.Value.Validate())
	if h.Value.Disposition != sandbox.DispositionDestroyed {
		t.Error(h.Value.Disposition)
	}
	if string(kept) != "\x00\x00\x00\x00\x00\x00" || string(body) != "\x00\x00\x00\x00\x00\x00" || len(root.kids) != 0 || len(f.p.instances) != 0 || len(f.p.snapshots) != 0 {
		t.Errorf("%q %q %v", kept, body, root.kids)
	}
	f.must(h.Rollback(f.ctx()))
}

// Each of the six handoffs: the rollback undoes exactly what was allocated,
// whatever became of the value, and again when it is called again.
func TestRollback(t *testing.T) {
	type world struct {
		*fixture
		id       sandbox.InstanceID
		snapshot sandbox.Snapshot
	}
	for _, c := range []struct {
		name string
		do   func(w world) func(context.Context) error // allocates, spoils the value, returns the rollback
		// What must be left of the instance and the snapshot that were there before.
		instance bool
	}{
		{"provision", func(w world) func(context.Context) error {
			h, err := w.p.Provision(w.ctx(), request())
			w.must(err)
			h.Value.InstanceID = w.id
			return h.Rollback
		}, true},
		{"activate", func(w world) func(context.Context) error {
			// Of the instance nothing is left: nobody could take it over.
			h, err := w.p.Activate(w.ctx(), w.provision(request()))
			w.must(err)
			h.Value.InstanceID = w.id
			return h.Rollback
		}, true},
		{"snapshot", func(w world) func(context.Context) error {
			h, err := w.p.Snapshot(w.ctx(), w.id, sandbox.SnapshotRequest{ExpiresAt: at(time.Hour)})
			w.must(err)
			h.Value.SnapshotID = w.snapshot.SnapshotID
			return h.Rollback
		}, true},
		{"clone", func(w world) func(context.Context) error {
			h, err := w.p.CloneSnapshot(w.ctx(), sandbox.CloneRequest{Snapshot: w.snapshot, TargetSessionID: "t"})
			w.must(err)
			h.Value.SnapshotID = w.snapshot.SnapshotID
			return h.Rollback
		}, true},
		{"release", func(w world) func(context.Context) error {
			h, err := w.p.Release(w.ctx(), w.id, sandbox.ReleaseRequest{ExpiresAt: at(time.Hour)})
			w.must(err)
			h.Value.Snapshot.SnapshotID = w.snapshot.SnapshotID
			return h.Rollback
		}, false},
		{"resume", func(w world) func(context.Context) error {
			h, err := w.p.Resume(w.ctx(), sandbox.ResumeRequest{Request: request(), Snapshot: w.snapshot})
			w.must(err)
			h.Value.InstanceID = w.id
			return h.Rollback
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			id := f.active(request())
			w := world{f, id, f.snapshot(id, 24*time.Hour)}
			rollback := c.do(w)
			for range 2 {
				f.must(rollback(f.ctx()))
			}
			if len(f.p.snapshots) != 1 || f.p.snapshots[w.snapshot.SnapshotID] == nil {
				t.Errorf("snapshots: %v", f.p.snapshots)
			}
			if (f.p.instances[id] != nil) != c.instance || len(f.p.instances) > 1 {
				t.Errorf("instances: %v", f.p.instances)
			}
		})
	}
}

func TestCleanup(t *testing.T) {
	f := newFixture(t)
	never := with(func(r *sandbox.ProvisionRequest) { r.ExpiresAt = at(1000 * time.Hour) })
	old := f.active(never)                                                                                             // not expired, idle for long, owned
	expired := f.active(request())                                                                                     // expires in an hour
	staged := f.provision(request())                                                                                   // likewise, never activated
	fenced := f.active(with(func(r *sandbox.ProvisionRequest) { r.LeaseID, r.ExpiresAt = "fenced", never.ExpiresAt })) // epoch 1
	f.clock.Advance(30 * time.Minute)
	heir := f.active(with(func(r *sandbox.ProvisionRequest) { r.LeaseID, r.LeaseEpoch, r.ExpiresAt = "fenced", 2, never.ExpiresAt }))
	pinned := f.snapshot(old, 10*time.Hour).SnapshotID
	loose := f.snapshot(old, 10*time.Hour).SnapshotID
	short := f.snapshot(old, 52*time.Minute).SnapshotID
	f.clock.Advance(20 * time.Minute)
	young := f.snapshot(old, 10*time.Hour).SnapshotID

	sweep := func(now, before time.Duration, pins ...sandbox.SnapshotID) sandbox.Swept {
		t.Helper()
		s, err := f.p.Cleanup(f.ctx(), sandbox.CleanupRequest{Now: at(now), OrphanedBefore: at(before), PinnedSnapshots: pins})
		f.must(err)
		f.must(s.Validate())
		return s
	}
	check := func(got sandbox.Swept, instances []sandbox.InstanceID, snapshots []sandbox.SnapshotID) {
		t.Helper()
		want := sandbox.Swept{InstanceIDs: instances, SnapshotIDs: snapshots}
		has := map[string]bool{}
		for _, id := range got.InstanceIDs {
			has[string(id)] = true
		}
		for _, id := range got.SnapshotIDs {
			has[string(id)] = true
		}
		for _, id := range want.InstanceIDs {
			if !has[string(id)] {
				t.Errorf("instance %s not swept", id)
			}
		}
		for _, id := range want.SnapshotIDs {
			if !has[string(id)] {
				t.Errorf("snapshot %s not swept", id)
			}
		}
		if len(has) != len(instances)+len(snapshots) {
			t.Errorf("swept %v", got)
		}
	}
	// An early cutoff and a time before every deadline: nothing.
	check(sweep(10*time.Minute, 0), nil, nil)
	// Its own deadline ends even a pinned snapshot.
	check(sweep(52*time.Minute, 0, pinned, short), nil, []sandbox.SnapshotID{short})
	// The cutoff takes what is old, unpinned and not owned.
	check(sweep(53*time.Minute, 40*time.Minute, pinned), []sandbox.InstanceID{fenced}, []sandbox.SnapshotID{loose})
	// The own deadline of instances, to the millisecond.
	check(sweep(time.Hour-time.Millisecond, 0, pinned), nil, nil)
	check(sweep(time.Hour, 0, pinned), []sandbox.InstanceID{expired, staged}, nil)
	check(sweep(10*time.Hour, 0, pinned), nil, []sandbox.SnapshotID{pinned, young})
	// An owned instance that has not expired is never swept.
	check(sweep(999*time.Hour, 999*time.Hour), nil, nil)
	if len(f.p.instances) != 2 || f.p.instances[old] == nil || f.p.instances[heir] == nil {
		t.Errorf("%v", f.p.instances)
	}
}

func TestCleanupRefuses(t *testing.T) {
	f := newFixture(t)
	kept := f.snapshot(f.active(request()), time.Minute).SnapshotID
	pins := make([]sandbox.SnapshotID, sandbox.MaxPinnedSnapshots+1)
	for n := range pins {
		pins[n] = kept
	}
	for _, r := range []sandbox.CleanupRequest{
		{Now: at(time.Hour), OrphanedBefore: at(time.Hour), PinnedSnapshots: pins},
		{Now: at(time.Hour), OrphanedBefore: at(2 * time.Hour)},
		{Now: "now", OrphanedBefore: at(0)},
	} {
		_, err := f.p.Cleanup(f.ctx(), r)
		f.want(err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpCleanup, Reason: sandbox.ReasonInvalidRequest})
	}
	if len(f.p.snapshots) != 1 {
		t.Error("something was swept")
	}
}
