package contract

import (
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// clones are the probes of copies for another Session.
func clones() []probe.Probe {
	const operations = `contract "The operations"`
	requires := []report.Token{report.SnapshotToken, report.Durable, report.SnapshotClone}
	return []probe.Probe{
		{
			ID: "clone.outlives-source", Suite: report.Contract, Clause: "CF-SN-14", Source: operations, Run: cloneOutlives, Requires: requires,
			Title: "a clone resumes in its Session when its source has been destroyed",
		},
		{
			ID: "clone.independent", Suite: report.Contract, Clause: "CF-SN-15", Source: operations, Run: cloneIndependent, Requires: requires,
			Title: "what is written over a clone does not show in its source, nor the other way round",
		},
		{
			ID: "clone.of-clone", Suite: report.Contract, Clause: "CF-SN-16", Source: operations, Run: cloneOfClone, Requires: requires,
			Title: "a clone can be cloned",
		},
		{
			ID: "clone.other-session", Suite: report.Contract, Clause: "CF-SN-17", Source: operations, Run: cloneOtherSession, Requires: requires, Level: report.Should,
			Title: "a clone is not resumed in the Session of its source, whoever asks",
		},
		{
			ID: "clone.outlives-sweep", Suite: report.Contract, Clause: "CF-SN-19", Source: `contract "Cleanup and pinning"`, Run: cloneOutlivesSweep,
			Requires: append(slices.Clone(requires), report.Cleanup),
			Title:    "a clone that is pinned survives the sweep that takes its source",
		},
	}
}

// clone copies a snapshot into a Session of its own and returns the copy and
// the request that resumes it.
func clone(t *probe.T, q sandbox.ProvisionRequest, s sandbox.Snapshot) (sandbox.Snapshot, sandbox.ProvisionRequest) {
	q.SessionID = t.ID("ses_")
	h, err := t.Provider().CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: s, TargetSessionID: q.SessionID})
	t.Need("clone", err)
	return h.Value, q
}

func cloneOutlives(t *probe.T) {
	m := retainable(t, probe.Shape{})
	n := newNote(t)
	n.put(t, m.ID)
	source := capture(t, m.ID, kept)
	copied, q := clone(t, m.Request, source)
	t.Need("destroy", t.Provider().DestroySnapshot(t.Context(), source.SnapshotID))
	h, err := t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: following(t, q), Snapshot: copied})
	if t.Check("resumes", err == nil, "a machine of the clone", err) {
		n.in(t, h.Value.InstanceID, "files")
	}
}

func cloneOutlivesSweep(t *probe.T) {
	m := retainable(t, probe.Shape{})
	source := capture(t, m.ID, kept)
	copied, q := clone(t, m.Request, source)
	sweep(t, after(t, source, copied), copied.SnapshotID)
	if resumes(t, m.Request, source) == nil {
		t.NotHere("no sweep takes a snapshot before its own deadline")
	}
	err := resumes(t, q, copied)
	t.Check("resumes", err == nil, "a machine of the clone", err)
}

func cloneIndependent(t *probe.T) {
	m := retainable(t, probe.Shape{})
	n, a, b := newNote(t), newNote(t), newNote(t)
	n.put(t, m.ID)
	source := capture(t, m.ID, kept)
	first, q := clone(t, m.Request, source)
	second, other := clone(t, m.Request, source)
	// Written over the first clone, looked for in the source; written over the
	// source, looked for in the second clone.
	a.put(t, resume(t, q, first))
	id := resume(t, m.Request, source)
	n.in(t, id, "files")
	a.absent(t, id, "source")
	b.put(t, id)
	b.absent(t, resume(t, other, second), "clone")
}

func cloneOfClone(t *probe.T) {
	m := retainable(t, probe.Shape{})
	n := newNote(t)
	n.put(t, m.ID)
	first, q := clone(t, m.Request, capture(t, m.ID, kept))
	second, q := clone(t, q, first)
	n.in(t, resume(t, q, second), "files")
}

func cloneOtherSession(t *probe.T) {
	m := retainable(t, probe.Shape{})
	copied, q := clone(t, m.Request, capture(t, m.ID, kept))
	err := resumes(t, q, copied)
	t.Control("the clone resumes in its own", err == nil, err)
	t.Check("refused", resumes(t, m.Request, copied) != nil, "a refusal: the clone is of Session "+q.SessionID, "a machine in "+m.Request.SessionID)
}
