package contract

import (
	"slices"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// snapshots are the probes of capture, release and resumption. What a
// reference says is a standing check; these look at what it leads to.
func snapshots() []probe.Probe {
	const operations = `contract "The operations"`
	retained := []report.Token{report.SnapshotToken, report.Durable}
	return append([]probe.Probe{
		{
			ID: "snapshot.keeps-files", Suite: report.Contract, Clause: "CF-SN-01", Source: operations, Run: keepsFiles,
			Requires: append(slices.Clone(retained), report.Mounts),
			Title:    "what lies in mounts, in the output tree and in the home directory is there again after release and resume",
		},
		{
			ID: "snapshot.leaves-instance-running", Suite: report.Contract, Clause: "CF-SN-02", Source: operations, Run: leavesRunning,
			Requires: retained,
			Title:    "an instance goes on when it has been captured",
		},
		{
			ID: "snapshot.point-in-time", Suite: report.Contract, Clause: "CF-SN-03", Source: operations, Run: pointInTime,
			Requires: retained,
			Title:    "what an instance does after its capture is not in the snapshot",
		},
		{
			ID: "snapshot.outlives-instance", Suite: report.Contract, Clause: "CF-SN-04", Source: operations, Run: outlivesInstance,
			Requires: retained,
			Title:    "a snapshot is there when the instance that it was taken of has been destroyed",
		},
		{
			ID: "snapshot.own-deadline", Suite: report.Contract, Clause: "CF-SN-05", Source: `contract "Identity is cross-checked, not trusted"`, Run: ownDeadline,
			Requires: retained, Once: true,
			Title: "a snapshot's retention does not end with the deadline of the instance that it was taken of",
		},
		{
			ID: "snapshot.destroyed-is-gone", Suite: report.Contract, Clause: "CF-SN-06", Source: operations, Run: destroyedIsGone,
			Requires: retained,
			Title:    "a snapshot that was destroyed cannot be resumed",
		},
		{
			ID: "snapshot.destroy-idempotent", Suite: report.Contract, Clause: "CF-SN-07", Source: `contract "Allocation handoff"`, Run: destroySnapshotAgain,
			Requires: retained,
			Title:    "destroying a snapshot again, or one that never was, is a success",
		},
		{
			ID: "release.settles-present-state", Suite: report.Contract, Clause: "CF-SN-08", Source: operations, Run: settlesPresent,
			Requires: retained,
			Title:    "a durable release settles the state at the release, not an earlier capture",
		},
		{
			ID: "resume.fresh", Suite: report.Contract, Clause: "CF-SN-09", Source: operations, Run: resumesFresh,
			Requires: retained,
			Title:    "a snapshot can be resumed again, and the second machine shows nothing of the first",
		},
		{
			ID: "resume.expired", Suite: report.Contract, Clause: "CF-SN-10", Source: `contract "Cleanup and pinning"`, Run: refusesExpired,
			Requires: retained, Once: true,
			Title: "a snapshot past its own deadline is not resumed",
		},
		{
			ID: "resume.mismatch", Suite: report.Contract, Clause: "CF-SN-11", Source: operations, Run: refusesMismatch,
			Requires: retained, Level: report.Should,
			Title: "a snapshot is not resumed in another Workspace or Session, or under another profile, whoever asks",
		},
		{
			ID: "resume.network-policy", Suite: report.Contract, Clause: "CF-SN-12", Source: `concept "Network posture"`, Run: keepsNetworkPolicy,
			Requires: retained,
			Title:    "a resumed instance has the network policy of its request",
		},
		{
			ID: "resume.cycles", Suite: report.Contract, Clause: "CF-SN-13", Source: operations, Run: cycles,
			Requires: retained, Once: true,
			Title: "several rounds of release and resume lose nothing",
		},
		{
			ID: "snapshot.time", Suite: report.Contract, Clause: "CF-SN-18", Source: `contract "Cleanup and pinning"`, Run: snapshotTime,
			Requires: retained, Level: report.Should,
			Title: "a snapshot says when it was taken: sweeps go by that",
		},
	}, clones()...)
}

func snapshotTime(t *probe.T) {
	s := capture(t, retainable(t, probe.Shape{}).ID, kept)
	t.Check("created", t.Present(s.CreatedAt), "a time within 5 minutes of now", string(s.CreatedAt))
}

// kept is how long a snapshot is retained that is not to expire: longer than
// the instance that it is taken of, so that the two deadlines are told apart.
const kept = 90 * time.Minute

// retainable makes an active machine that can be captured.
func retainable(t *probe.T, s probe.Shape) *probe.Machine { return t.Machine(probe.Durable(s)) }

// capture takes a snapshot that is retained for d.
func capture(t *probe.T, id sandbox.InstanceID, d time.Duration) sandbox.Snapshot {
	h, err := t.Provider().Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: sandbox.At(t.Now().Add(d))})
	t.Need("snapshot", err)
	return h.Value
}

// released ends an instance and returns what it settled. Without a snapshot
// the probe has nothing to look at: that is the finding of a standing check.
func released(t *probe.T, id sandbox.InstanceID) sandbox.Snapshot {
	h, err := t.Provider().Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(t.Now().Add(2 * time.Hour))})
	t.Need("release", err)
	if h.Value.Snapshot == nil {
		t.NotHere("the release settled no snapshot, which the standing check release.disposition reports")
	}
	return *h.Value.Snapshot
}

// following is the request of a later Run on the state of an earlier one.
func following(t *probe.T, q sandbox.ProvisionRequest) sandbox.ProvisionRequest {
	q.RunID, q.AttemptID, q.LeaseID, q.LeaseEpoch = t.ID("run_"), t.ID("att_"), t.ID("lease_"), 1
	q.ExpiresAt = sandbox.At(t.Now().Add(time.Hour))
	return q
}

// resume makes a machine of a snapshot.
func resume(t *probe.T, q sandbox.ProvisionRequest, s sandbox.Snapshot) sandbox.InstanceID {
	h, err := t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: following(t, q), Snapshot: s})
	t.Need("resume", err)
	return h.Value.InstanceID
}

// resumes reports how an attempt to resume ends.
func resumes(t *probe.T, q sandbox.ProvisionRequest, s sandbox.Snapshot) error {
	_, err := t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: following(t, q), Snapshot: s})
	return err
}

// shell runs a script in a machine that came of a resumption.
func shell(t *probe.T, id sandbox.InstanceID, script string) sandbox.Settlement {
	s, err := t.Provider().Execute(t.Context(), id, probe.Command(script))
	t.Need("execute", err)
	return s
}

// content is what the workload reads at path, "" if there is nothing.
func content(t *probe.T, id sandbox.InstanceID, path string) string {
	return string(shell(t, id, "cat "+path).Stdout)
}

// note is a file of the output tree, where the trusted port may write at any
// time, with a content that nobody can know.
type note struct{ path, text string }

func newNote(t *probe.T) note {
	return note{sandbox.OutputPath + "/" + t.Nonce(), t.Nonce()}
}

// put writes the note into a machine.
func (n note) put(t *probe.T, id sandbox.InstanceID) {
	t.Need("write", t.Provider().WriteFile(t.Context(), id, sandbox.FileWrite{Path: n.path, Content: []byte(n.text)}))
}

// in records whether the machine has the note.
func (n note) in(t *probe.T, id sandbox.InstanceID, check string) {
	got := content(t, id, n.path)
	t.Check(check, got == n.text, n.text+" in "+n.path, strconv.Quote(got))
}

// absent records whether the machine lacks the note.
func (n note) absent(t *probe.T, id sandbox.InstanceID, check string) {
	got := content(t, id, n.path)
	t.Check(check, got == "", "no "+n.path, strconv.Quote(got))
}

func keepsFiles(t *probe.T) {
	open, sealed := "/workspace/"+t.Nonce(), "/workspace/"+t.Nonce()
	given, made, tool := t.Nonce(), t.Nonce(), t.Nonce()
	void, hollow, hidden := t.Nonce(), t.Nonce(), "."+t.Nonce()
	m := retainable(t, probe.Shape{
		Mounts: []sandbox.Mount{
			{MountPath: open, Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory},
			{MountPath: sealed, Access: sandbox.AccessReadOnly, Kind: sandbox.MountMemory},
		},
		Files: []sandbox.FileWrite{
			{Path: sealed + "/given", Content: []byte(given)},
			{Path: open + "/tool", Content: []byte("#!/bin/sh\necho " + tool + "\n"), Executable: true},
		},
	})
	s := m.Sh("mkdir -p " + open + "/a/b && printf %s " + made + " >" + open + "/a/b/made && printf %s " + made + ` >"$HOME"/made && printf %s ` + made + " >" + sandbox.OutputPath + "/made" +
		" && cd " + sandbox.OutputPath + " && : >" + void + " && mkdir " + hollow + " && echo >" + hidden)
	if probe.Code(s) != 0 {
		t.Fatal("write", "the workload writes into its own places", s.Stderr)
	}
	id := resume(t, m.Request, released(t, m.ID))
	for _, f := range []struct{ check, path, want string }{
		{"read-write-mount", open + "/a/b/made", made}, {"read-only-mount", sealed + "/given", given},
		{"output-tree", sandbox.OutputPath + "/made", made}, {"home", `"$HOME"/made`, made},
	} {
		got := content(t, id, f.path)
		t.Check(f.check, got == f.want, f.want+" in "+f.path, strconv.Quote(got))
	}
	got := shell(t, id, open+"/tool")
	t.Check("executable", string(got.Stdout) == tool+"\n", "a file that can still be executed", got.Stderr)
	for _, c := range []struct{ check, condition string }{
		{"empty-file", "[ -f " + void + " ] && [ ! -s " + void + " ]"}, {"empty-directory", "[ -d " + hollow + " ]"}, {"hidden-file", "[ -s " + hidden + " ]"},
	} {
		s := shell(t, id, "cd "+sandbox.OutputPath+" && "+c.condition)
		t.Check(c.check, probe.Code(s) == 0, "what was in the output tree: "+c.condition, "nothing, or something else")
	}
}

func leavesRunning(t *probe.T) {
	m := retainable(t, probe.Shape{})
	n := newNote(t)
	n.put(t, m.ID)
	capture(t, m.ID, kept)
	s, err := t.Provider().Execute(t.Context(), m.ID, probe.Command("cat "+n.path))
	if t.Check("runs", err == nil, "a command that runs", err) {
		t.Check("files", string(s.Stdout) == n.text, n.text, s.Stdout)
	}
}

func pointInTime(t *probe.T) {
	m := retainable(t, probe.Shape{})
	before, after := newNote(t), newNote(t)
	before.put(t, m.ID)
	s := capture(t, m.ID, kept)
	after.put(t, m.ID)
	id := resume(t, m.Request, s)
	before.in(t, id, "before")
	after.absent(t, id, "after")
}

func outlivesInstance(t *probe.T) {
	m := retainable(t, probe.Shape{})
	n := newNote(t)
	n.put(t, m.ID)
	s := capture(t, m.ID, kept)
	t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
	n.in(t, resume(t, m.Request, s), "files")
}

func ownDeadline(t *probe.T) {
	lifetime := brief(t, func() { retainable(t, probe.Shape{}) })
	m := retainable(t, probe.Shape{Lifetime: lifetime})
	n := newNote(t)
	n.put(t, m.ID)
	s := capture(t, m.ID, kept)
	t.Until(m.Request.ExpiresAt)
	h, err := t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: following(t, m.Request), Snapshot: s})
	if !t.Check("resumes", err == nil, "a machine: the snapshot is retained until "+string(s.ExpiresAt), err) {
		return
	}
	_, err = t.Provider().Execute(t.Context(), h.Value.InstanceID, probe.Command("true"))
	t.Check("works", err == nil, "a machine with a deadline of its own", err)
}

func destroyedIsGone(t *probe.T) {
	m := retainable(t, probe.Shape{})
	other, destroyed := capture(t, m.ID, kept), capture(t, m.ID, kept)
	t.Need("destroy", t.Provider().DestroySnapshot(t.Context(), destroyed.SnapshotID))
	err := resumes(t, m.Request, other)
	t.Check("other", err == nil, "the instance's other snapshot, which resumes", err)
	t.Check("refused", resumes(t, m.Request, destroyed) != nil, "a refusal", "a machine")
}

func destroySnapshotAgain(t *probe.T) {
	m := retainable(t, probe.Shape{})
	s := capture(t, m.ID, kept)
	for _, c := range []struct {
		check string
		id    sandbox.SnapshotID
	}{{"first", s.SnapshotID}, {"again", s.SnapshotID}, {"unknown", sandbox.SnapshotID(t.ID("snap_"))}} {
		err := t.Provider().DestroySnapshot(t.Context(), c.id)
		t.Check(c.check, err == nil, "success", err)
	}
}

func settlesPresent(t *probe.T) {
	m := retainable(t, probe.Shape{})
	early, late := newNote(t), newNote(t)
	early.put(t, m.ID)
	capture(t, m.ID, kept)
	late.put(t, m.ID)
	id := resume(t, m.Request, released(t, m.ID))
	early.in(t, id, "early")
	late.in(t, id, "late")
}
