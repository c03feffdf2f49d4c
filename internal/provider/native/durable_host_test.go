package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
)

// reopened opens another provider over the state of p, as the next process does.
func reopened(t *testing.T, p *Provider, change func(*Options)) *Provider {
	t.Helper()
	opt := p.opt
	change(&opt)
	other, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// kept puts a snapshot into the store of p that no machine was needed for.
func kept(t *testing.T, p *Provider, expires sandbox.Timestamp) sandbox.Snapshot {
	t.Helper()
	ref, err := p.snapshots.Capture(t.Context(), sandbox.Snapshot{
		Provider: Name, Placement: sandbox.PlacementLocal, SourceInstanceID: newInstanceID(), WorkspaceID: "ws", SessionID: "ses",
		ProfileID: "profile", ProfileVersion: 1, ProfileDigest: "sha256:" + sandbox.Digest(sha256Hex(nil)), ExpiresAt: expires,
	}, nil, snapshot.Source{Form: snapshot.FormTree, Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestDurable_AHostThatLostWhatKeepingNeeds: nothing new is kept, and what was kept
// is destroyed and swept as before. The same where nobody asks for it any more.
func TestDurable_AHostThatLostWhatKeepingNeeds(t *testing.T) {
	p := newProvider(t, "runc")
	p.opt.Durable = true
	p.openSnapshots()
	type choose = func(context.Context, string) (snapshot.Choice, error)
	for name, lost := range map[string]struct {
		asked  bool
		choose choose
	}{
		"not asked for": {false, snapshot.Choose},
		"no loop devices": {true, func(context.Context, string) (snapshot.Choice, error) {
			return snapshot.Choice{Method: snapshot.MethodTree, Form: snapshot.FormTree, Reason: "no loop devices"}, nil
		}},
		"a probe that fails": {true, func(context.Context, string) (snapshot.Choice, error) { return snapshot.Choice{}, errInjected }},
	} {
		t.Run(name, func(t *testing.T) {
			destroyed, expired, stays := kept(t, p, later(time.Hour)), kept(t, p, later(time.Minute)), kept(t, p, later(time.Hour))
			other := reopened(t, p, func(o *Options) { o.Durable = lost.asked })
			other.choose = lost.choose
			if err := other.Durable(); err == nil {
				t.Error("it says that it can")
			}
			c := other.envelope()
			if slices.Contains(c.RetentionModes, sandbox.RetentionDurable) || c.Snapshots || c.SnapshotClone {
				t.Errorf("it offers %v, %v, %v", c.RetentionModes, c.Snapshots, c.SnapshotClone)
			}
			unavailable := func(op sandbox.Operation, err error) {
				t.Helper()
				if !errors.Is(err, sandbox.Unavailable(op, sandbox.RequireSnapshots, "true", "false")) {
					t.Errorf("%s: %v", op, err)
				}
			}
			_, err := other.CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: stays, TargetSessionID: "other"})
			unavailable(sandbox.OpCloneSnapshot, err)
			_, err = other.Resume(t.Context(), sandbox.ResumeRequest{Request: retained(p), Snapshot: stays})
			unavailable(sandbox.OpResume, err)
			if err := other.DestroySnapshot(t.Context(), destroyed.SnapshotID); err != nil {
				t.Error(err)
			}
			now := later(2 * time.Minute)
			swept, err := other.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now, PinnedSnapshots: []sandbox.SnapshotID{stays.SnapshotID, expired.SnapshotID}})
			if err != nil || !slices.Equal(swept.SnapshotIDs, []sandbox.SnapshotID{expired.SnapshotID}) {
				t.Errorf("swept %v, %v", swept.SnapshotIDs, err)
			}
			if left := all(t, p); !slices.Equal(left, []sandbox.SnapshotID{stays.SnapshotID}) {
				t.Errorf("left %v", left)
			}
			if err := other.DestroySnapshot(t.Context(), stays.SnapshotID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDurable_AFaultOfTheStore: zero retention goes on, and nobody is told that
// what cannot be looked at is gone.
func TestDurable_AFaultOfTheStore(t *testing.T) {
	p := newProvider(t, "runc")
	if err := os.WriteFile(filepath.Join(p.opt.Dir, "snapshots"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, durable := range []bool{false, true} {
		other := reopened(t, p, func(o *Options) { o.Durable = durable })
		if err := other.Durable(); err == nil {
			t.Error("durable sessions can be kept")
		} else {
			t.Log(err)
		}
		if got := other.envelope().RetentionModes; slices.Contains(got, sandbox.RetentionDurable) {
			t.Errorf("offered: %v", got)
		}
		id := activated(t, other)
		mustExit(t, sh(t, other, id, "true"), 0)
		if _, err := other.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
		failed := func(op sandbox.Operation, err error) {
			t.Helper()
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.OperationFailed || e.Operation != op {
				t.Errorf("%s: %v", op, err)
			}
		}
		failed(sandbox.OpDestroySnapshot, other.DestroySnapshot(t.Context(), sandbox.SnapshotID(newInstanceID())))
		past := provision(t, other, request(p))
		now := later(time.Hour)
		swept, err := other.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
		failed(sandbox.OpCleanup, err)
		if !slices.Equal(swept.InstanceIDs, []sandbox.InstanceID{past}) {
			t.Errorf("swept %v", swept.InstanceIDs)
		}
		if _, err := other.Snapshots(t.Context()); err == nil {
			t.Error("no snapshots, it says")
		}
	}
}
