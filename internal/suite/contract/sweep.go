package contract

import (
	"errors"
	"slices"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// sweeps are the probes of cleanup and of teardown. A sweep is not scoped to
// a Workspace, so on a shared provider it takes the orphans of others too: no
// cutoff here is later than the present, and only a run's own ids are asserted.
func sweeps() []probe.Probe {
	const pinning = `contract "Cleanup and pinning"`
	snapshots := []report.Token{report.Cleanup, report.SnapshotToken, report.Durable}
	return []probe.Probe{
		{
			ID: "cleanup.spares-live", Suite: report.Contract, Clause: "CF-SW-01", Source: pinning, Run: sparesLive,
			Requires: []report.Token{report.Cleanup},
			Title:    "a sweep leaves an instance that is owned and not expired",
		},
		{
			ID: "cleanup.names-destroyed-only", Suite: report.Contract, Clause: "CF-SW-02", Source: pinning, Run: namesDestroyedOnly,
			Requires: []report.Token{report.Cleanup},
			Title:    "a sweep returns no id of what is still there",
		},
		{
			ID: "cleanup.reclaims-expired", Suite: report.Contract, Clause: "CF-SW-03", Source: pinning, Run: reclaimsExpired, Once: true,
			Requires: []report.Token{report.Cleanup},
			Title:    "a sweep destroys an expired instance and returns its id",
		},
		{
			ID: "cleanup.honours-cutoff", Suite: report.Contract, Clause: "CF-SW-04", Source: pinning, Run: honoursCutoff, Requires: snapshots,
			Title: "a sweep leaves a snapshot that is younger than the cutoff",
		},
		{
			ID: "cleanup.honours-pin", Suite: report.Contract, Clause: "CF-SW-05", Source: pinning, Run: honoursPin, Requires: snapshots,
			Title: "a pinned snapshot survives every sweep by cutoff, and what does not is returned",
		},
		{
			ID: "cleanup.honours-all-pins", Suite: report.Contract, Clause: "CF-SW-06", Source: `contract "Bounds"`, Run: honoursAllPins, Requires: snapshots,
			Title: "the last of 1,024 pins counts like the first",
		},
		{
			ID: "cleanup.pin-expires", Suite: report.Contract, Clause: "CF-SW-07", Source: pinning, Run: pinExpires, Requires: snapshots, Once: true,
			Title: "a pin does not keep a snapshot past its own deadline",
		},
		{
			ID: "cleanup.too-many-pins", Suite: report.Contract, Clause: "CF-SW-08", Source: `contract "Bounds"`, Run: tooManyPins, Level: report.Should,
			Requires: []report.Token{report.Cleanup},
			Title:    "a sweep with 1,025 pins is refused, whoever asks",
		},
		{
			ID: "cleanup.future-cutoff", Suite: report.Contract, Clause: "CF-SW-09", Source: pinning, Run: futureCutoff, Level: report.Should,
			Requires: []report.Token{report.Cleanup},
			Title:    "a sweep whose cutoff is later than its own now is refused, whoever asks",
		},
		{
			ID: "destroy.idempotent", Suite: report.Contract, Clause: "CF-SW-10", Source: `contract "Allocation handoff"`, Run: destroyAgain,
			Title: "destroying an instance again, or one that never was, is a success",
		},
	}
}

// sweep runs one and stops the probe if the target refuses.
func sweep(t *probe.T, cutoff sandbox.Timestamp, pins ...sandbox.SnapshotID) sandbox.Swept {
	now := sandbox.At(t.Now())
	if now.Before(cutoff) {
		now = cutoff
	}
	swept, err := t.Provider().Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: cutoff, PinnedSnapshots: pins})
	t.Need("cleanup", err)
	return swept
}

// before and after are cutoffs that snapshots are younger and older than. The
// times of creation are the target's own, so that a clock that differs from
// ours by a little changes nothing.
func before(t *probe.T, s sandbox.Snapshot) sandbox.Timestamp {
	return sandbox.At(created(t, s).Add(-time.Second))
}

func after(t *probe.T, all ...sandbox.Snapshot) sandbox.Timestamp {
	t.Sleep(2 * time.Millisecond)
	latest := t.Now()
	for _, s := range all {
		if at := created(t, s).Add(time.Millisecond); at.After(latest) {
			latest = at
		}
	}
	return sandbox.At(latest)
}

// created is when a snapshot was made, as the target says if that can be.
func created(t *probe.T, s sandbox.Snapshot) time.Time {
	const skew = time.Minute
	at, err := s.CreatedAt.Time()
	if now := t.Now(); err != nil || at.Before(now.Add(-skew)) || at.After(now.Add(skew)) {
		return now
	}
	return at
}

// there reports whether an instance answers at all.
func there(t *probe.T, id sandbox.InstanceID) bool {
	_, err := t.Provider().Execute(t.Context(), id, probe.Command("true"))
	return !errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound})
}

func sparesLive(t *probe.T) {
	m, staged := t.Machine(probe.Shape{}), t.Provision(probe.Shape{})
	sweep(t, after(t))
	s, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("true"))
	t.Check("runs", err == nil && probe.Code(s) == 0, "a command that runs", err)
	_, err = t.Provider().Activate(t.Context(), staged.ID)
	t.Check("staged", err == nil, "an instance that can still be activated", err)
}

func namesDestroyedOnly(t *probe.T) {
	m := t.Machine(probe.Shape{})
	named := slices.Contains(sweep(t, after(t)).InstanceIDs, m.ID)
	t.Check("instances", !named || !there(t, m.ID), "only what was destroyed", "the id of an instance that still answers")
}

func reclaimsExpired(t *probe.T) {
	lifetime := brief(t, func() { t.Machine(probe.Shape{}) })
	m := t.Machine(probe.Shape{Lifetime: lifetime})
	t.Until(m.Request.ExpiresAt)
	if !there(t, m.ID) {
		t.Check("gone", true, "", nil)
		t.Observe("the instance was gone at its deadline, before any sweep")
		return
	}
	named := slices.Contains(sweep(t, sandbox.At(t.Now())).InstanceIDs, m.ID)
	gone := !there(t, m.ID)
	t.Check("gone", gone, "no instance", "an instance that still answers")
	t.Check("named", named || !gone || endsAlone(t, lifetime), "its id among those destroyed", "a list without it")
}

// endsAlone reports whether the provider takes an expired instance without any
// sweep, a moment after its deadline: then it can be quicker than one.
func endsAlone(t *probe.T, lifetime time.Duration) bool {
	m := t.Machine(probe.Shape{Lifetime: lifetime})
	t.Until(m.Request.ExpiresAt)
	t.Sleep(2 * time.Second)
	return !there(t, m.ID)
}

func honoursCutoff(t *probe.T) {
	m := retainable(t, probe.Shape{})
	s := capture(t, m.ID, kept)
	cutoff := before(t, s)
	t.Sleep(2 * time.Millisecond)
	sweep(t, cutoff)
	err := resumes(t, m.Request, s)
	t.Check("younger", err == nil, "a snapshot that resumes", err)
}

// honoursPin sweeps twice: a pin holds for as long as it is given. What is swept is
// returned, and nothing else.
func honoursPin(t *probe.T) {
	m := retainable(t, probe.Shape{})
	pinned, loose := capture(t, m.ID, kept), capture(t, m.ID, kept)
	cutoff := after(t, pinned, loose)
	swept := sweep(t, cutoff, pinned.SnapshotID).SnapshotIDs
	again := sweep(t, cutoff, pinned.SnapshotID).SnapshotIDs
	t.Control("its twin without a pin is swept", resumes(t, m.Request, loose) != nil, "it still resumes")
	t.Check("returned", slices.Contains(swept, loose.SnapshotID), "the id of what was swept", swept)
	err := resumes(t, m.Request, pinned)
	t.Check("pinned", err == nil, "a snapshot that resumes", err)
	named := slices.Contains(slices.Concat(swept, again), pinned.SnapshotID)
	t.Check("named", err != nil || !named, "no id of what was kept", "that of the pinned snapshot")
}

// manyPins are n pins of which the last is last.
func manyPins(t *probe.T, n int, last sandbox.SnapshotID) []sandbox.SnapshotID {
	pins := make([]sandbox.SnapshotID, n)
	for i := range pins {
		pins[i] = sandbox.SnapshotID(t.ID("snap_"))
	}
	pins[n-1] = last
	return pins
}

func honoursAllPins(t *probe.T) {
	m := retainable(t, probe.Shape{})
	pinned, loose := capture(t, m.ID, kept), capture(t, m.ID, kept)
	sweep(t, after(t, pinned, loose), manyPins(t, sandbox.MaxPinnedSnapshots, pinned.SnapshotID)...)
	t.Control("its twin without a pin is swept", resumes(t, m.Request, loose) != nil, "it still resumes")
	err := resumes(t, m.Request, pinned)
	t.Check("last", err == nil, "a snapshot that resumes", err)
}

// pinExpires tells a provider that keeps the pin too long from one that takes
// what has expired before anybody sweeps: the latter has nothing left to return
// when the pin is no longer given.
func pinExpires(t *probe.T) {
	m := retainable(t, probe.Shape{})
	lifetime := brief(t, func() { capture(t, m.ID, kept) })
	s := capture(t, m.ID, lifetime)
	t.Until(s.ExpiresAt)
	now := sandbox.At(t.Now())
	pinned := slices.Contains(sweep(t, now, s.SnapshotID).SnapshotIDs, s.SnapshotID)
	loose := slices.Contains(sweep(t, now).SnapshotIDs, s.SnapshotID)
	t.Check("swept", pinned || !loose, "a sweep that takes it at "+string(s.ExpiresAt), "one that takes it only without its pin")
}

// The cutoffs of the next two are of a time before there was anything to sweep:
// a provider that goes on takes nothing of anybody's.
func tooManyPins(t *probe.T) {
	const early = "1970-01-01T00:00:00.000Z"
	pins := manyPins(t, sandbox.MaxPinnedSnapshots+1, "snap_"+sandbox.SnapshotID(t.Nonce()))
	_, err := t.Provider().Cleanup(t.Context(), sandbox.CleanupRequest{Now: sandbox.At(t.Now()), OrphanedBefore: early, PinnedSnapshots: pins})
	t.Check("refused", err != nil, "a refusal: a shortened list would sweep what is pinned", "a sweep")
}

func futureCutoff(t *probe.T) {
	_, err := t.Provider().Cleanup(t.Context(), sandbox.CleanupRequest{Now: "1970-01-01T00:00:00.000Z", OrphanedBefore: "1970-01-01T00:00:00.001Z"})
	t.Check("refused", err != nil, "a refusal: the cutoff is later than now", "a sweep")
}

func destroyAgain(t *probe.T) {
	m, neighbour := t.Machine(probe.Shape{}), t.Machine(probe.Shape{})
	for _, c := range []struct {
		check string
		id    sandbox.InstanceID
	}{{"first", m.ID}, {"again", m.ID}, {"unknown", sandbox.InstanceID(t.ID("inst_"))}} {
		err := t.Provider().Destroy(t.Context(), c.id)
		t.Check(c.check, err == nil, "success", err)
	}
	_, err := t.Provider().Execute(t.Context(), neighbour.ID, probe.Command("true"))
	t.Check("neighbour", err == nil, "another instance of the Session, which still works", err)
}
