package nine

import (
	"errors"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// orphanReclaim lets one instance expire beside one that does not, and sweeps.
// On a provider that others use the sweep takes only what is expired or
// orphaned by now, and only this run's ids are judged.
func orphanReclaim(t *probe.T) {
	began := t.Now()
	owned := t.Machine(probe.Shape{})
	file := sandbox.OutputPath + "/" + t.Nonce()
	mark := fill(t, "written", owned.ID, file)
	expired := t.Machine(probe.Shape{Lifetime: lifetime(t, began)})
	t.Until(expired.Request.ExpiresAt)
	// One that ended on its own is reclaimed, and no sweep has to say so.
	ended, refused := absent(t, expired.ID)

	swept := sweep(t, nil)
	foreign(t, swept, string(expired.ID), string(owned.ID))
	if ended {
		t.Observe("the instance was gone at its deadline, before any sweep")
	} else {
		named := slices.Contains(swept.InstanceIDs, expired.ID)
		t.Check("expired-returned", named || endsAlone(t), "the expired instance among the swept", swept.InstanceIDs)
		ended, refused = absent(t, expired.ID)
		ended = ended && !named
	}
	if ended && refused { // a Runner that no sweep told learns it so
		t.Need("destroy", t.Provider().Destroy(t.Context(), expired.ID))
	}
	gone(t, "expired-gone", expired.ID)
	t.Check("owned-kept", !slices.Contains(swept.InstanceIDs, owned.ID), "no instance that is owned and not expired", "it was swept")
	got, err := t.Provider().Execute(t.Context(), owned.ID, probe.Command("cat "+file))
	t.Check("owned-kept", err == nil && printed(got, mark+"\n"), "the owned instance as it was", answer(got, err))
	again := sweep(t, nil)
	t.Check("swept-once", !slices.Contains(again.InstanceIDs, expired.ID), "nothing that was swept before", again.InstanceIDs)
}

// endsAlone reports whether the provider takes an expired instance without any
// sweep, a moment after its deadline: then it can be quicker than one.
func endsAlone(t *probe.T) bool {
	began := t.Now()
	m := t.Machine(probe.Shape{Lifetime: lifetime(t, began)})
	t.Until(m.Request.ExpiresAt)
	t.Sleep(2 * time.Second)
	ended, _ := absent(t, m.ID)
	return ended
}

// absent reports whether the provider has no such instance. refused is that a Runner
// sets nothing going in one past its deadline, and did not ask: it passes on a read.
func absent(t *probe.T, id sandbox.InstanceID) (absent, refused bool) {
	missing, expired := &sandbox.Error{Kind: sandbox.InstanceNotFound}, &sandbox.Error{Kind: sandbox.LifecycleConflict}
	_, err := t.Provider().Execute(t.Context(), id, probe.Command("echo "+t.Nonce()))
	if !errors.Is(err, expired) {
		return errors.Is(err, missing), false
	}
	_, err = t.Provider().ReadFile(t.Context(), id, sandbox.FileRead{Path: sandbox.OutputPath + "/" + t.Nonce(), AllowedRoot: sandbox.OutputPath, MaximumBytes: 1})
	return errors.Is(err, missing), true
}

// pausePinning takes two snapshots that live long and one that does not, pins
// the first and the last, and sweeps before and after the last one's deadline.
func pausePinning(t *probe.T) {
	m := durable(t, probe.Shape{})
	file := sandbox.OutputPath + "/" + t.Nonce()
	mark := fill(t, "written", m.ID, file)
	hour := sandbox.At(t.Now().Add(time.Hour))
	began := t.Now()
	pinned, loose := capture(t, m.ID, hour), capture(t, m.ID, hour)
	short := capture(t, m.ID, sandbox.At(t.Now().Add(lifetime(t, began))))
	pins := []sandbox.SnapshotID{pinned.SnapshotID, short.SnapshotID}
	// As in a pause there is no instance left: nothing but the pin holds them.
	t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
	t.Sleep(time.Second) // so that the last use of each lies before the cutoff

	swept := sweep(t, pins)
	foreign(t, swept, string(pinned.SnapshotID), string(loose.SnapshotID), string(short.SnapshotID))
	t.Check("pin-kept", !slices.Contains(swept.SnapshotIDs, pinned.SnapshotID), "no pinned snapshot among the swept", "it was swept")
	holds(t, "pin-kept", m, pinned, file, mark)
	t.Check("unpinned-swept", slices.Contains(swept.SnapshotIDs, loose.SnapshotID), "the unpinned snapshot among the swept", swept.SnapshotIDs)
	lost(t, "unpinned-swept", m, loose)
	late := swept
	if !slices.Contains(swept.SnapshotIDs, short.SnapshotID) { // else a slow provider reached the deadline first
		t.Until(short.ExpiresAt)
		late = sweep(t, pins)
	}
	t.Check("pin-expires", slices.Contains(late.SnapshotIDs, short.SnapshotID), "the pinned snapshot past its own deadline among the swept", late.SnapshotIDs)
	lost(t, "pin-expires", m, short)
	t.Check("pin-kept", !slices.Contains(late.SnapshotIDs, pinned.SnapshotID), "no pinned snapshot among the swept", "it was swept")
	holds(t, "pin-kept", m, pinned, file, mark)
}

// lifetime is short, and long enough for one more of what took since began.
func lifetime(t *probe.T, began time.Time) time.Duration {
	return 3*time.Second + 3*t.Now().Sub(began)
}

// sweep cleans up with a cutoff of now: the latest that there may be.
func sweep(t *probe.T, pins []sandbox.SnapshotID) sandbox.Swept {
	now := sandbox.At(t.Now())
	swept, err := t.Provider().Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now, PinnedSnapshots: pins})
	t.Need("cleanup", err)
	return swept
}

// foreign notes what a sweep took beside this run's own: it is asked for a
// whole account, so whoever shares one should know.
func foreign(t *probe.T, swept sandbox.Swept, own ...string) {
	others := 0
	for _, id := range swept.InstanceIDs {
		if !slices.Contains(own, string(id)) {
			others++
		}
	}
	for _, id := range swept.SnapshotIDs {
		if !slices.Contains(own, string(id)) {
			others++
		}
	}
	if others > 0 {
		t.Observe("the sweep took %d instances and snapshots that are not of this case: a sweep knows no owner", others)
	}
}

// answer is a settlement or the error instead.
func answer(s sandbox.Settlement, err error) string {
	if err != nil {
		return err.Error()
	}
	return says(s)
}
