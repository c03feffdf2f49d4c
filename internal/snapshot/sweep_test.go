package snapshot

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/sandbox"
)

func ids(refs ...sandbox.Snapshot) []sandbox.SnapshotID {
	all := []sandbox.SnapshotID{}
	for _, r := range refs {
		all = append(all, r.SnapshotID)
	}
	slices.Sort(all)
	return all
}

// TestSweep_ByCutoff: made, cloned and restored are all uses; a pin holds.
func TestSweep_ByCutoff(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	idle, pinned, used, cloned, held := capture(t, s, c.in(time.Hour)), capture(t, s, c.in(time.Hour)), capture(t, s, c.in(time.Hour)), capture(t, s, c.in(time.Hour)), capture(t, s, c.in(time.Hour))
	h, err := s.Hold(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c.pass(10 * time.Minute)
	restored(t, s, used)
	clone, err := s.Clone(t.Context(), cloned, "other")
	if err != nil {
		t.Fatal(err)
	}
	c.pass(time.Minute)
	broken := capture(t, s, c.in(time.Hour)) // whose expiry nobody can read
	if err := os.Truncate(s.path("snapshots", string(broken.SnapshotID), "manifest.json"), 3); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		cutoff sandbox.Timestamp
		pins   []sandbox.SnapshotID
		want   []sandbox.SnapshotID
	}{
		{c.in(-11 * time.Minute), nil, ids()}, // to the millisecond: they were made at that time
		{c.in(-11*time.Minute + time.Millisecond), ids(pinned, clone), ids(idle)},
		{c.in(-11*time.Minute + time.Millisecond), ids(pinned), ids()},
		{c.in(0), ids(pinned, clone), ids(used, cloned)},
		{c.in(time.Millisecond), ids(pinned, clone), ids(broken)},
		{c.in(time.Millisecond), nil, ids(pinned, clone)},
	} {
		got, err := s.Sweep(t.Context(), c.in(0), step.cutoff, step.pins)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
	h.Close()
	if got, err := s.Sweep(t.Context(), c.in(0), c.in(time.Millisecond), nil); err != nil || !slices.Equal(got, ids(held)) {
		t.Errorf("swept %v, %v", got, err)
	}
	if got := left(t, s.dir); got != nil {
		t.Errorf("left: %v", got)
	}
}

// TestSweep_MorePinsThanAreAllowed sweeps nothing by cutoff, and what is expired
// all the same.
func TestSweep_MorePinsThanAreAllowed(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	short, long := capture(t, s, c.in(time.Minute)), capture(t, s, c.in(24*time.Hour))
	c.pass(time.Hour)
	pins := make([]sandbox.SnapshotID, sandbox.MaxPinnedSnapshots+1)
	for i := range pins {
		pins[i] = newID()
	}
	got, err := s.Sweep(t.Context(), c.in(0), c.in(0), pins)
	if err != nil || !slices.Equal(got, ids(short)) {
		t.Errorf("swept %v, %v", got, err)
	}
	got, err = s.Sweep(t.Context(), c.in(0), c.in(0), pins[1:]) // one less is a list
	if err != nil || !slices.Equal(got, ids(long)) {
		t.Errorf("swept %v, %v", got, err)
	}
}

// TestSweep_LeavesWhatIsNotOurs and takes no part of what is being made.
func TestSweep_LeavesWhatIsNotOurs(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	for _, name := range []string{"snapshots/notes", "snapshots/0123"} {
		if err := os.WriteFile(s.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.stage(t.Context(), "capture")
	if err != nil {
		t.Fatal(err)
	}
	// Another process of the same store.
	other := open(t, s.dir, c)
	if got, err := other.Sweep(t.Context(), c.in(0), c.in(0), nil); err != nil || len(got) != 0 {
		t.Errorf("swept %v, %v", got, err)
	}
	if _, err := os.Stat(st.dir); err != nil {
		t.Error(err)
	}
	if err := st.close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"snapshots/0123", "snapshots/notes"}, left(t, s.dir)); diff != "" {
		t.Error(diff)
	}
}

// TestDestroy_AsOftenAsOneLikes, by any id, and under a reader.
func TestDestroy_AsOftenAsOneLikes(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := capture(t, s, c.in(time.Hour))
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, id := range []sandbox.SnapshotID{ref.SnapshotID, ref.SnapshotID, newID(), "", "..", "../lock", "/"} {
		if err := s.Destroy(t.Context(), id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := h.Verify(t.Context()); err != nil {
		t.Errorf("a reader lost what it held: %v", err)
	}
	if _, err := s.Hold(t.Context(), ref); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if got := left(t, s.dir); got != nil {
		t.Errorf("left: %v", got)
	}
	if _, err := os.Stat(s.path("version")); err != nil {
		t.Error(err)
	}
}

// TestDestroy_NotBeforeItIsOnTheDisk: whoever asks again is not told that it is gone
// as long as a power cut could bring it back, and a sweep names what it took away.
func TestDestroy_NotBeforeItIsOnTheDisk(t *testing.T) {
	c, dir := noon(), t.TempDir()
	away := func(from, to string) {
		t.Helper()
		if err := os.Rename(dir+"/"+from, dir+"/"+to); err != nil {
			t.Fatal(err)
		}
	}
	fail := false
	s, err := Open(dir, Options{Now: c.now, Step: func(step string) {
		if fail && step == "destroy: renamed" { // so that it cannot be forced to the disk
			away("snapshots", "elsewhere")
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	destroyed, swept := capture(t, s, c.in(time.Hour)), capture(t, s, c.in(time.Minute))
	fail = true
	for range 2 {
		if err := s.Destroy(t.Context(), destroyed.SnapshotID); err == nil {
			t.Error("acknowledged, and not on the disk")
		}
	}
	away("elsewhere", "snapshots")
	c.pass(time.Minute)
	got, err := s.Sweep(t.Context(), c.in(0), c.in(-time.Hour), nil)
	if err == nil || !slices.Equal(got, ids(swept)) {
		t.Errorf("swept %v, %v", got, err)
	}
	// What is not on the disk yet is not made away with for good.
	if _, err := os.Stat(s.path("trash", string(swept.SnapshotID), "content")); err != nil {
		t.Error(err)
	}
	away("elsewhere", "snapshots")
	fail = false
	if err := s.Destroy(t.Context(), destroyed.SnapshotID); err != nil {
		t.Error(err)
	}
	if got, err := s.Sweep(t.Context(), c.in(0), c.in(-time.Hour), nil); err != nil || len(got) != 0 {
		t.Errorf("swept %v, %v", got, err)
	}
	if got := left(t, s.dir); got != nil {
		t.Errorf("left: %v", got)
	}
}

// TestALockIsWaitedForNoLongerThanAllowed: a process that hangs with the lock
// hangs nobody else.
func TestALockIsWaitedForNoLongerThanAllowed(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	source := image(t)
	unlock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Capture(ctx, reference(c.in(time.Hour)), plan, Source{Form: FormImage, Path: source}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
