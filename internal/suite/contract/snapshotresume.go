package contract

import (
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// brief is a lifetime that a probe can wait for: a few seconds, and several
// times what the target takes to make what is to live that long. It is what the
// default suites wait for most: a stranger tries them again after every change.
func brief(t *probe.T, allocate func()) time.Duration {
	began := t.Now()
	allocate()
	return 3*time.Second + 6*t.Now().Sub(began)
}

func resumesFresh(t *probe.T) {
	m := retainable(t, probe.Shape{})
	before, written := newNote(t), newNote(t)
	before.put(t, m.ID)
	s := capture(t, m.ID, kept)
	written.put(t, resume(t, m.Request, s))
	h, err := t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: following(t, m.Request), Snapshot: s})
	if !t.Check("again", err == nil, "a second machine", err) {
		return
	}
	before.in(t, h.Value.InstanceID, "files")
	written.absent(t, h.Value.InstanceID, "fresh")
}

func refusesExpired(t *probe.T) {
	m := retainable(t, probe.Shape{})
	var long sandbox.Snapshot
	lifetime := brief(t, func() { long = capture(t, m.ID, kept) })
	short := sandbox.At(t.Now().Add(lifetime))
	h, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: short})
	t.Need("snapshot", err)
	t.Until(short)
	err = resumes(t, m.Request, long)
	t.Control("a longer one resumes", err == nil, err)
	t.Check("refused", resumes(t, m.Request, h.Value) != nil, "a refusal after "+string(short), "a machine")
}

func refusesMismatch(t *probe.T) {
	m := retainable(t, probe.Shape{})
	s := capture(t, m.ID, kept)
	err := resumes(t, m.Request, s)
	t.Control("the right request resumes", err == nil, err)
	for _, c := range []struct {
		check  string
		change func(q *sandbox.ProvisionRequest)
	}{
		{"workspace", func(q *sandbox.ProvisionRequest) { q.WorkspaceID = t.ID("ws_") }},
		{"session", func(q *sandbox.ProvisionRequest) { q.SessionID = t.ID("ses_") }},
		{"profile", func(q *sandbox.ProvisionRequest) { q.Profile.ProfileID = t.ID("prof_") }},
	} {
		q := m.Request
		c.change(&q)
		t.Check(c.check, resumes(t, q, s) != nil, "a refusal: the snapshot is of another "+c.check, "a machine")
	}
}

// keepsNetworkPolicy compares what can be reached before and after. Whether
// something is out of reach can be judged only where the same tool reaches
// something.
func keepsNetworkPolicy(t *probe.T) {
	lab := t.Target().Network
	if lab == nil {
		t.NotHere("there is no lab of destinations to connect to")
	}
	connects := func(id sandbox.InstanceID, d sandbox.Destination) bool {
		return probe.Code(shell(t, id, lab.Connect(d))) == 0
	}
	policy := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{lab.Listed()}}
	granted := t.Has(report.NetworkAllowlist)
	if !granted {
		if !t.Has(report.NetworkNone) {
			t.NotHere("the envelope offers no mode that denies anything")
		}
		policy = sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
	}
	err := lab.Alive(t.Context(), lab.Unlisted())
	t.Control("the destination answers", err == nil, err)
	m := retainable(t, probe.Shape{Network: &policy})
	if granted {
		t.Control("a listed destination is reached from inside", connects(m.ID, lab.Listed()), "no connection")
	}
	id := resume(t, m.Request, capture(t, m.ID, kept))
	if granted {
		t.Check("granted", connects(id, lab.Listed()), "a connection to the listed destination", "none")
	}
	t.Check("denied", !connects(id, lab.Unlisted()), "no connection", "a connection to "+lab.Unlisted().Host)
}

func cycles(t *probe.T) {
	const rounds = 4
	m := retainable(t, probe.Shape{})
	id := m.ID
	notes := make([]note, rounds)
	for n := range notes {
		notes[n] = newNote(t)
		notes[n].put(t, id)
		id = resume(t, m.Request, released(t, id))
	}
	for _, n := range notes {
		n.in(t, id, "files")
	}
}
