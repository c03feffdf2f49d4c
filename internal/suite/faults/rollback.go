package faults

import (
	"errors"
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

func rollbacks() []probe.Probe {
	return []probe.Probe{
		drill("rollback.provision", "01", handoff, "a machine whose provision is rolled back is gone", always, rollbackProvision),
		drill("rollback.activate", "02", handoff, "a machine whose activation is rolled back does not run", always, rollbackActivate),
		drill("rollback.snapshot", "03", handoff, "a snapshot that is rolled back is gone", durable, rollbackSnapshot),
		drill("rollback.snapshot-keeps-machine", "04", handoff, "the rollback of a snapshot leaves the machine as it was", durable, snapshotKeepsMachine),
		drill("rollback.clone", "05", handoff, "a clone that is rolled back is gone", clone, rollbackClone),
		drill("rollback.clone-keeps-source", "06", handoff, "the rollback of a clone leaves its source", clone, cloneKeepsSource),
		drill("rollback.resume", "07", handoff, "a machine whose resumption is rolled back is gone", durable, rollbackResume),
		drill("rollback.resume-keeps-snapshot", "08", handoff, "the rollback of a resumption leaves the snapshot", durable, resumeKeepsSnapshot),
		drill("rollback.release", "09", handoff, "the rollback of a durable release strands no snapshot", durable, rollbackRelease),
		drill("rollback.release-ends", "10", handoff, "the rollback of a zero-retention release brings nothing back", []report.Token{report.ZDR}, releaseEnds),
		drill("rollback.staged", "11", handoff, "a machine with staged files is rolled back within 30 seconds", always, rollbackStaged),
		drill("rollback.cold", "12", handoff, "a rollback takes nothing from the value that was handed over", always, rollbackCold),
		drill("rollback.spares-neighbour", "13", handoff, "a rollback spares a machine of the same lease", always, sparesNeighbour),
		drill("rollback.again", "14", handoff, "a rollback that is delivered again settles the same way", always, rollbackAgain),
		once(drill("rollback.unswept", "15", sweeping, "what was rolled back is not swept again", always, rollbackUnswept)),
	}
}

func rollbackProvision(t *probe.T) {
	m := t.Provision(probe.Shape{})
	settled(t, m.Rollback())
	gone(t, m.ID)
}

// The contract does not say whether a machine returns to provisioning. That it
// may not run is what the Runner relies on: it has rejected it.
func rollbackActivate(t *probe.T) {
	m := t.Machine(probe.Shape{})
	settled(t, m.Rollback())
	_, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("true"))
	if errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}) {
		t.Observe("the rollback of an activation leaves the machine in another state than active: %v", err)
		return
	}
	t.Refused("gone", err, unknown)
	unlisted(t, string(m.ID))
}

func rollbackSnapshot(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	h := snapshot(t, m)
	settled(t, h.Rollback(t.Context()))
	goneSnapshot(t, m, h.Value)
}

func snapshotKeepsMachine(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	nonce := t.Nonce()
	file := sandbox.OutputPath + "/" + nonce
	m.Sh("echo " + nonce + " > " + file)
	_ = snapshot(t, m).Rollback(t.Context())
	got, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("cat "+file))
	t.Check("runs", err == nil, "the machine still runs commands", err)
	t.Check("holds", string(got.Stdout) == nonce+"\n", "the file that was there before", got.Stdout)
}

func rollbackClone(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	h := cloned(t, snapshot(t, m).Value)
	settled(t, h.Rollback(t.Context()))
	goneSnapshot(t, m, h.Value)
}

func cloneKeepsSource(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	source := snapshot(t, m).Value
	_ = cloned(t, source).Rollback(t.Context())
	_, err := resume(t, m, source)
	t.Check("source", err == nil, "the source resumes", err)
}

func rollbackResume(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	h := resumed(t, m, snapshot(t, m).Value)
	settled(t, h.Rollback(t.Context()))
	gone(t, h.Value.InstanceID)
}

func resumeKeepsSnapshot(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	source := snapshot(t, m).Value
	_ = resumed(t, m, source).Rollback(t.Context())
	_, err := resume(t, m, source)
	t.Check("snapshot", err == nil, "the snapshot resumes again", err)
}

// What was allocated by a durable release is the snapshot. Whether the machine
// comes back is not said.
// Source: docs/divergences.md row 18.
func rollbackRelease(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	h := released(t, m)
	settled(t, h.Rollback(t.Context()))
	if h.Value.Snapshot == nil {
		t.Fatal("snapshot", "a settled snapshot", "none")
	}
	goneSnapshot(t, m, *h.Value.Snapshot)
	if err := touch(t, m.ID); !isUnknown(err) {
		t.Observe("the rollback of a durable release gives the machine back (%v)", err)
	}
}

// Zero retention has destroyed every trace before there was anything to roll
// back.
// Source: docs/divergences.md row 18.
func releaseEnds(t *probe.T) {
	m := t.Machine(probe.Shape{Retention: sandbox.RetentionEphemeralZDR})
	h := released(t, m)
	settled(t, h.Rollback(t.Context()))
	gone(t, m.ID)
}

// A provider that unmounts what was staged is the one that can wait for ever.
func rollbackStaged(t *probe.T) {
	m := t.Provision(probe.Shape{Files: []sandbox.FileWrite{{Path: sandbox.OutputPath + "/" + t.Nonce(), Content: t.Bytes(1 << 16)}}})
	err := m.Rollback()
	t.Check("in-time", !probe.Hung(err), "a rollback that ends within 30 seconds", err)
}

// The same rollback twice, once with every field of the value made to name a
// neighbour: both must do the same, and the neighbour lives. That a rollback
// does anything at all is another drill's to say.
func rollbackCold(t *probe.T) {
	neighbour := t.Provision(probe.Shape{})
	var shape probe.Shape
	if t.Has(report.Mounts) {
		shape.Mounts = []sandbox.Mount{{MountPath: "/" + t.Nonce(), Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}}
	}
	var left [2]bool
	for n := range left {
		h, err := t.Provider().Provision(t.Context(), t.Request(shape))
		t.Need("provision", err)
		id := h.Value.InstanceID
		if n == 1 {
			tamper(&h.Value, neighbour.Instance)
		}
		_ = h.Rollback(t.Context())
		left[n] = !isUnknown(touch(t, id))
	}
	t.Check("own", left[0] == left[1], "the machine that was allocated goes, whatever the value says", "it stayed")
	_, err := t.Provider().Activate(t.Context(), neighbour.ID)
	t.Check("neighbour", err == nil, "a neighbour that the value was made to name lives", err)
	if t.Has(report.SnapshotToken) && t.Has(report.Durable) {
		coldRelease(t)
	}
}

// tamper makes got name another machine, also in what it shares with the
// provider.
func tamper(got *sandbox.Instance, other sandbox.Instance) {
	for i := range got.Mounts {
		got.Mounts[i].MountPath = "/" + string(other.InstanceID)
	}
	*got = other
}

// A release hands over a pointer, so what the provider keeps and what the
// Runner rejects can be one value.
func coldRelease(t *probe.T) {
	m := t.Machine(probe.Durable(probe.Shape{}))
	neighbour := snapshot(t, m).Value
	h := released(t, m)
	if h.Value.Snapshot == nil {
		t.Fatal("snapshot", "a settled snapshot", "none")
	}
	*h.Value.Snapshot = neighbour
	_ = h.Rollback(t.Context())
	_, err := resume(t, m, neighbour)
	t.Check("neighbour", err == nil, "a snapshot that the value was made to name lives", err)
}

func sparesNeighbour(t *probe.T) {
	q := t.Request(probe.Shape{})
	first, err := t.Provider().Provision(t.Context(), q)
	t.Need("provision", err)
	q.AttemptID = t.ID("att_")
	second, err := t.Provider().Provision(t.Context(), q)
	t.Need("provision", err)
	_ = first.Rollback(t.Context())
	_, err = t.Provider().Activate(t.Context(), second.Value.InstanceID)
	t.Check("neighbour", err == nil, "the other machine of this lease lives", err)
}

func rollbackAgain(t *probe.T) {
	same := func(op sandbox.Operation, rollback func() error) {
		first := rollback()
		second := rollback()
		t.Check(string(op), (first == nil) == (second == nil), "the second delivery settles like the first: "+outcome(first), outcome(second))
	}
	m := t.Provision(probe.Shape{})
	same(sandbox.OpProvision, m.Rollback)
	m = t.Machine(probe.Shape{})
	same(sandbox.OpActivate, m.Rollback)
	if !t.Has(report.SnapshotToken) || !t.Has(report.Durable) {
		return
	}
	// What a rollback takes with it is another drill's to say: each has a
	// snapshot of its own.
	m = t.Machine(probe.Durable(probe.Shape{}))
	again := resumed(t, m, snapshot(t, m).Value)
	same(sandbox.OpResume, func() error { return again.Rollback(t.Context()) })
	if t.Has(report.SnapshotClone) {
		copied := cloned(t, snapshot(t, m).Value)
		same(sandbox.OpCloneSnapshot, func() error { return copied.Rollback(t.Context()) })
	}
	taken := snapshot(t, m)
	same(sandbox.OpSnapshot, func() error { return taken.Rollback(t.Context()) })
	last := released(t, t.Machine(probe.Durable(probe.Shape{})))
	same(sandbox.OpRelease, func() error { return last.Rollback(t.Context()) })
}

func outcome(err error) string {
	if err == nil {
		return "success"
	}
	return err.Error()
}

// The machine that is left to expire is the control: a cleanup that returns
// nothing at all shows nothing.
func rollbackUnswept(t *probe.T) {
	rolled := t.Provision(probe.Shape{Lifetime: lifetime})
	_ = rolled.Rollback()
	kept := t.Provision(probe.Shape{Lifetime: lifetime})
	t.Until(kept.Request.ExpiresAt)
	swept := sweep(t).InstanceIDs
	t.Control("expired-machine", slices.Contains(swept, kept.ID) || isUnknown(touch(t, kept.ID)), "a machine past its expiry was not swept")
	t.Check("unswept", !slices.Contains(swept, rolled.ID), "no id that was rolled back", string(rolled.ID))
}
