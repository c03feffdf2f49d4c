package sandboxruntime_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// identity is the contract's list: seventeen top-level fields, of which the
// last expands into five.
var identity = []string{
	"provider", "placement", "state", "workspace_id", "session_id", "run_id", "attempt_id", "lease_id", "lease_epoch",
	"target", "profile", "platform", "root_image", "mounts", "output_path", "expires_at",
	"materialization.profile_digest", "materialization.image_reference", "materialization.image_digest",
	"materialization.provider_revision", "materialization.materialization_revision",
}

// number returns which of checks covers path, from 1.
func number(checks []string, path string) int {
	return 1 + slices.IndexFunc(checks, func(c string) bool {
		rest, ok := strings.CutPrefix(path, c)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// TestIdentityIsCrossCheckedNotTrusted breaks every leaf of an instance, one
// at a time, on each of the three members that return one. The runtime must
// name that leaf, and the allocation must be rolled back exactly once.
func TestIdentityIsCrossCheckedNotTrusted(t *testing.T) {
	sample := newFake(nil)
	q := request(sample, durable)
	seen := map[int]bool{}
	for _, l := range leaves(sandbox.InstanceOf(q, "i1", sandbox.StateActive, digestOf(q.Profile))) {
		if l.path == "instance_id" {
			continue // the provider's to choose: see below
		}
		for _, op := range []sandbox.Operation{sandbox.OpProvision, sandbox.OpActivate, sandbox.OpResume} {
			t.Run(string(op)+"/"+l.path, func(t *testing.T) {
				b := newBench(t)
				b.fake.lieInstance = func(on sandbox.Operation, i *sandbox.Instance) {
					if on == op {
						l.sabotage(i)
					}
				}
				err := driveInstance(b, op)
				got, ok := errors.AsType[*sandboxruntime.Error](err)
				if !ok || got.Kind != sandboxruntime.ProtocolInvalid || got.Operation != sandboxruntime.OpInstanceIdentity {
					t.Fatalf("got %v", err)
				}
				if got.Field != l.path || got.Check != number(identity, l.path) || got.Expected == got.Got {
					t.Errorf("named %q, check %d, expected %q, got %q; want %q, check %d", got.Field, got.Check, got.Expected, got.Got, l.path, number(identity, l.path))
				}
				seen[got.Check] = true
				unwound(b, 1)
			})
		}
	}
	for n := range identity {
		if !seen[n+1] {
			t.Errorf("check %d (%s) has no saboteur", n+1, identity[n])
		}
	}
	if len(seen) != 21 {
		t.Errorf("%d checks have failed, want 21", len(seen))
	}
}

// driveInstance reaches op and returns its error.
func driveInstance(b *bench, op sandbox.Operation) error {
	b.Helper()
	switch op {
	case sandbox.OpProvision:
		_, err := b.runtime.Provision(b.ctx, request(b.fake, durable))
		return err
	case sandbox.OpActivate:
		_, err := b.runtime.Activate(b.ctx, b.provision(durable))
		return err
	}
	_, err := b.runtime.Resume(b.ctx, sandbox.ResumeRequest{Request: request(b.fake, durable), Snapshot: snapshot(b)})
	return err
}

// snapshot is one that the provider made earlier.
func snapshot(b *bench) sandbox.Snapshot {
	q := request(b.fake, durable)
	return sandbox.Snapshot{
		SnapshotID: "s0", Provider: "fake", Placement: sandbox.PlacementTest, SourceInstanceID: "i0", WorkspaceID: q.WorkspaceID,
		SessionID: q.SessionID, ProfileID: q.Profile.ProfileID, ProfileVersion: q.Profile.ProfileVersion,
		ProfileDigest: digestOf(q.Profile), CreatedAt: sandbox.At(epoch.Add(-time.Hour)), ExpiresAt: later,
	}
}

// unwound demands exactly n rollbacks and that nothing is left.
func unwound(b *bench, n int) {
	b.Helper()
	if got := b.rolledBack(); got != n {
		b.Errorf("rolled back %d times, want %d", got, n)
	}
	if instances, snapshots := b.alive(); instances != 0 || snapshots != 0 {
		b.Errorf("%d instances and %d snapshots are left", instances, snapshots)
	}
}

// TestIdentity_InstanceID: the id is checked for its form, must not name a
// neighbour, and must stay.
func TestIdentity_InstanceID(t *testing.T) {
	for name, forged := range map[string]sandbox.InstanceID{"empty": "", "space": "i 1", "newline": "i1\n", "long": sandbox.InstanceID(strings.Repeat("i", 256))} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) { i.InstanceID = forged }
			_, err := b.runtime.Provision(b.ctx, request(b.fake, zdr))
			wantField(t, err, sandboxruntime.OpInstanceIdentity, "instance_id")
			unwound(b, 1)
		})
	}
	t.Run("a neighbour's", func(t *testing.T) {
		b := newBench(t)
		neighbour := b.activate(durable)
		b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) { i.InstanceID = neighbour }
		_, err := b.runtime.Provision(b.ctx, request(b.fake, durable))
		wantField(t, err, sandboxruntime.OpInstanceIdentity, "instance_id")
		if _, err := b.runtime.Execute(b.ctx, neighbour, command); err != nil {
			t.Error("the neighbour was hit:", err)
		}
		if instances, _ := b.alive(); instances != 1 || b.rolledBack() != 1 {
			t.Errorf("%d instances, %d rollbacks", instances, b.rolledBack())
		}
	})
	t.Run("changed by activate", func(t *testing.T) {
		b := newBench(t)
		id := b.provision(durable)
		b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) { i.InstanceID += "x" }
		_, err := b.runtime.Activate(b.ctx, id)
		wantField(t, err, sandboxruntime.OpInstanceIdentity, "instance_id")
		unwound(b, 1)
	})
}

func wantField(t *testing.T, err error, op sandbox.Operation, field string) {
	t.Helper()
	if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid, Operation: op, Field: field}) {
		t.Errorf("got %v, want SandboxProtocolInvalid{%s} naming %s", err, op, field)
	}
}

// TestIdentity_EmptyListsHaveOneForm: nil and [] are one canonical form for
// mounts and packages; for destinations absence means something.
func TestIdentity_EmptyListsHaveOneForm(t *testing.T) {
	b := newBench(t)
	q := request(b.fake, durable)
	q.Mounts, q.Profile.Packages = nil, nil
	q.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
	b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) {
		i.Mounts, i.Profile.Packages = []sandbox.Mount{}, []sandbox.Package{}
	}
	if _, err := b.runtime.Provision(b.ctx, q); err != nil {
		t.Error(err)
	}
	b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) {
		i.Profile.NetworkPolicy.Destinations = []sandbox.Destination{}
	}
	_, err := b.runtime.Provision(b.ctx, q)
	wantField(t, err, sandboxruntime.OpInstanceIdentity, "profile.network_policy.destinations")
	// The form of an empty list is not what is named beside a real difference.
	b.fake.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) {
		i.Profile.Packages = []sandbox.Package{}
		i.Profile.ResourceLimits.DiskBytes++
	}
	_, err = b.runtime.Provision(b.ctx, q)
	wantField(t, err, sandboxruntime.OpInstanceIdentity, "profile.resource_limits.disk_bytes")
}

// snapshotIdentity is the contract's list of nine.
var snapshotIdentity = []string{"provider", "placement", "source_instance_id", "workspace_id", "session_id",
	"profile_id", "profile_version", "profile_digest", "expires_at"}

// TestIdentity_SnapshotsGetTheSameTreatment breaks every leaf of a snapshot on
// each of the three members that return one.
func TestIdentity_SnapshotsGetTheSameTreatment(t *testing.T) {
	for _, l := range leaves(sandbox.Snapshot{}) {
		for _, op := range []sandbox.Operation{sandbox.OpSnapshot, sandbox.OpCloneSnapshot, sandbox.OpRelease} {
			t.Run(string(op)+"/"+l.path, func(t *testing.T) {
				b := newBench(t)
				b.fake.lieSnapshot = func(on sandbox.Operation, s *sandbox.Snapshot) {
					if on == op {
						l.sabotage(s)
						if l.path == "snapshot_id" {
							s.SnapshotID = "" // its form is all that is checked
						}
					}
				}
				err := driveSnapshot(b, op)
				wantField(t, err, sandboxruntime.OpSnapshotIdentity, l.path)
				if got, ok := errors.AsType[*sandboxruntime.Error](err); ok && got.Check != max(0, number(snapshotIdentity, l.path)) {
					t.Errorf("check %d", got.Check)
				}
				if b.rolledBack() != 1 {
					t.Errorf("rolled back %d times", b.rolledBack())
				}
				if _, snapshots := b.alive(); snapshots != 0 {
					t.Error("the snapshot is left")
				}
				instances, _ := b.alive()
				if op == sandbox.OpSnapshot && instances != 1 {
					t.Error("the source of a refused snapshot is gone")
				}
			})
		}
	}
}

func driveSnapshot(b *bench, op sandbox.Operation) error {
	b.Helper()
	switch op {
	case sandbox.OpCloneSnapshot:
		_, err := b.runtime.CloneSnapshot(b.ctx, sandbox.CloneRequest{Snapshot: snapshot(b), TargetSessionID: "sess2"})
		return err
	case sandbox.OpRelease:
		_, err := b.runtime.Release(b.ctx, b.activate(durable), sandbox.ReleaseRequest{ExpiresAt: later})
		return err
	}
	_, err := b.runtime.Snapshot(b.ctx, b.activate(durable), sandbox.SnapshotRequest{ExpiresAt: later})
	return err
}

// TestIdentity_Clone: what a clone must be beyond a snapshot.
func TestIdentity_Clone(t *testing.T) {
	cases := map[string]struct {
		lie   func(*sandbox.Snapshot)
		field string
	}{
		"reuses the source id":       {func(s *sandbox.Snapshot) { s.SnapshotID = "s0" }, "snapshot_id"},
		"stays in the source":        {func(s *sandbox.Snapshot) { s.SessionID = "sess1" }, "session_id"},
		"moves the expiry":           {func(s *sandbox.Snapshot) { s.ExpiresAt = sandbox.At(epoch.Add(25 * time.Hour)) }, "expires_at"},
		"predates the source by 1ms": {func(s *sandbox.Snapshot) { s.CreatedAt = sandbox.At(epoch.Add(-time.Hour - time.Millisecond)) }, "created_at"},
		"created at its own expiry":  {func(s *sandbox.Snapshot) { s.CreatedAt = later }, "created_at"},
		"made with the source":       {func(s *sandbox.Snapshot) { s.CreatedAt = sandbox.At(epoch.Add(-time.Hour)) }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.fake.lieSnapshot = func(_ sandbox.Operation, s *sandbox.Snapshot) { c.lie(s) }
			err := driveSnapshot(b, sandbox.OpCloneSnapshot)
			if c.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantField(t, err, sandboxruntime.OpSnapshotIdentity, c.field)
			unwound(b, 1)
		})
	}
}

// TestOperations_ReleaseDisposition: released only when durable, destroyed
// only when not.
func TestOperations_ReleaseDisposition(t *testing.T) {
	stray := sandbox.Snapshot{SnapshotID: "stray"}
	cases := map[string]struct {
		mode  sandbox.RetentionMode
		lie   func(*sandbox.Released)
		op    sandbox.Operation
		field string
	}{
		"destroyed on durable": {durable, func(r *sandbox.Released) { *r = sandbox.Released{Disposition: sandbox.DispositionDestroyed} }, sandbox.OpRelease, "disposition"},
		"released on zdr": {zdr, func(r *sandbox.Released) {
			*r = sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &stray}
		}, sandbox.OpRelease, "disposition"},
		"a third disposition":       {zdr, func(r *sandbox.Released) { r.Disposition = "kept" }, sandbox.OpRelease, "disposition"},
		"released without snapshot": {durable, func(r *sandbox.Released) { r.Snapshot = nil }, sandbox.OpRelease, "snapshot"},
		"destroyed with snapshot":   {zdr, func(r *sandbox.Released) { r.Snapshot = &stray }, sandbox.OpRelease, "snapshot"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id := b.activate(c.mode)
			b.fake.lieReleased = c.lie
			_, err := b.runtime.Release(b.ctx, id, releaseOf(c.mode))
			wantField(t, err, c.op, c.field)
			unwound(b, 1)
		})
	}
}

func releaseOf(mode sandbox.RetentionMode) sandbox.ReleaseRequest {
	if mode == durable {
		return sandbox.ReleaseRequest{ExpiresAt: later}
	}
	return sandbox.ReleaseRequest{}
}
