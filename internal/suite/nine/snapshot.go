package nine

import (
	"errors"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// checkpointClone clones a checkpoint twice into Sessions of their own. Of one
// clone an instance writes, then everything but the other clone is destroyed:
// what that still holds is its own.
func checkpointClone(t *probe.T) {
	m := durable(t, probe.Shape{})
	file := sandbox.OutputPath + "/" + t.Nonce()
	mark := fill(t, "written", m.ID, file)
	checkpoint := capture(t, m.ID, sandbox.At(t.Now().Add(time.Hour)))
	fill(t, "written", m.ID, file) // the source goes on and is not what is cloned
	if !t.Envelope().SnapshotClone {
		_, err := t.Provider().CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: checkpoint, TargetSessionID: t.ID("ses_")})
		t.Refused("clone-refused", err, sandbox.Unavailable(sandbox.OpCloneSnapshot, sandbox.RequireSnapshotClone, "", ""))
		t.NotHere("snapshot_clone is false: snapshots are kept and not cloned")
	}
	first, second := clone(t, checkpoint), clone(t, checkpoint)

	used := resume(t, m, second, second.SessionID)
	has(t, "clone-content", used, file, mark)
	fill(t, "written", used, file)
	source := resume(t, m, checkpoint, checkpoint.SessionID)
	has(t, "source-unchanged", source, file, mark)

	for _, id := range []sandbox.InstanceID{used, source, m.ID} {
		t.Need("destroy", t.Provider().Destroy(t.Context(), id))
	}
	for _, s := range []sandbox.Snapshot{checkpoint, second} {
		t.Need("destroy-snapshot", t.Provider().DestroySnapshot(t.Context(), s.SnapshotID))
	}
	holds(t, "clone-survives", m, first, file, mark)
}

// durableRoundTrip captures a machine, changes it, releases it, and resumes
// both states.
func durableRoundTrip(t *probe.T) {
	shape := probe.Shape{}
	places := []string{sandbox.OutputPath}
	sealed := ""
	if t.Envelope().MaxMounts > 0 {
		work := "/workspace/" + t.Nonce()
		shape.Mounts = append(shape.Mounts, sandbox.Mount{MountPath: work, Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject})
		places = append(places, work)
	}
	content := lines(t)
	if t.Envelope().MaxMounts > 1 {
		work := "/workspace/" + t.Nonce()
		sealed = work + "/" + t.Nonce()
		shape.Mounts = append(shape.Mounts, sandbox.Mount{MountPath: work, Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit})
		shape.Files = []sandbox.FileWrite{{Path: sealed, Content: content}}
	}
	m := durable(t, shape)
	name, early, late := t.Nonce(), t.Nonce(), t.Nonce()
	places = append(places, writable(t, m.ID, sandbox.HomePath)...)
	// In each place a program that prints the mark, beside a plain file and a
	// link to it.
	for _, dir := range places {
		got := sh(t, m.ID, "cd "+dir+" && echo '#!/bin/sh' > "+name+".run && echo echo "+early+" >> "+name+".run && chmod 755 "+name+".run"+
			" && echo "+early+" > "+name+" && ln -s "+name+" "+name+".link && ./"+name+".run")
		must(t, "written", printed(got, early+"\n"), "a program, a file and a link in "+dir, says(got))
	}
	hour := sandbox.At(t.Now().Add(time.Hour))
	before := capture(t, m.ID, hour)
	for _, dir := range places {
		got := sh(t, m.ID, "echo "+late+" > "+dir+"/"+name+".late && rm "+dir+"/"+name)
		must(t, "written", probe.Code(got) == 0, "a file more and a file less in "+dir, says(got))
	}
	h, err := t.Provider().Release(t.Context(), m.ID, sandbox.ReleaseRequest{ExpiresAt: hour})
	t.Need("release", err)
	_, err = t.Provider().Execute(t.Context(), m.ID, probe.Command("echo "+late))
	t.Refused("released", err, &sandbox.Error{Kind: sandbox.InstanceNotFound, Operation: sandbox.OpExecute})
	if h.Value.Snapshot == nil {
		t.Fatal("release-snapshot", "a snapshot of what was released", "none")
	}

	old := resume(t, m, before, before.SessionID)
	last := resume(t, m, *h.Value.Snapshot, h.Value.Snapshot.SessionID)
	for _, dir := range places {
		check := "files"
		if dir == sandbox.HomePath {
			check = "home"
		}
		at := dir + "/" + name
		has(t, check, old, at, early)
		has(t, check, last, at+".late", late)
		got := sh(t, old, at+".run && test ! -x "+at)
		t.Check(check+"-modes", printed(got, early+"\n"), "the program still one, and the plain file none, in "+dir, says(got))
		got = sh(t, old, "readlink "+at+".link")
		t.Check(check+"-links", printed(got, name+"\n"), "the link in "+dir, says(got))
		got = sh(t, old, "test -e "+at+".late")
		t.Check("snapshot-is-then", probe.Code(got) == 1, "nothing that came after the snapshot in "+dir, says(got))
		got = sh(t, last, "test -e "+at)
		t.Check("release-is-now", probe.Code(got) == 1, "nothing that was removed before the release in "+dir, says(got))
	}
	if sealed != "" {
		got := sh(t, last, "cat "+sealed)
		t.Check("sealed-files", printed(got, string(content)), "the staged file of the read-only mount", says(got))
		got = sh(t, last, "echo "+late+" >> "+sealed)
		t.Check("sealed-again", probe.Code(got) != 0, "a refusal to write to the read-only mount", says(got))
	}
}

// durable makes a machine that can be captured.
func durable(t *probe.T, s probe.Shape) *probe.Machine {
	if !slices.Contains(t.Envelope().RetentionModes, sandbox.RetentionDurable) {
		t.NotHere("retention_modes has no durable: there is no instance that may be captured")
	}
	return t.Machine(probe.Durable(s))
}

func capture(t *probe.T, id sandbox.InstanceID, expires sandbox.Timestamp) sandbox.Snapshot {
	h, err := t.Provider().Snapshot(t.Context(), id, sandbox.SnapshotRequest{ExpiresAt: expires})
	t.Need("snapshot", err)
	return h.Value
}

func clone(t *probe.T, s sandbox.Snapshot) sandbox.Snapshot {
	h, err := t.Provider().CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: s, TargetSessionID: t.ID("ses_")})
	t.Need("clone", err)
	return h.Value
}

// again is the request that resumes a snapshot of m in a Session.
func again(t *probe.T, m *probe.Machine, s sandbox.Snapshot, session string) sandbox.ResumeRequest {
	q := m.Request
	q.SessionID, q.RunID, q.AttemptID, q.LeaseID = session, t.ID("run_"), t.ID("att_"), t.ID("lease_")
	q.ExpiresAt = sandbox.At(t.Now().Add(time.Hour))
	return sandbox.ResumeRequest{Request: q, Snapshot: s}
}

func resume(t *probe.T, m *probe.Machine, s sandbox.Snapshot, session string) sandbox.InstanceID {
	h, err := t.Provider().Resume(t.Context(), again(t, m, s, session))
	t.Need("resume", err)
	return h.Value.InstanceID
}

// has holds that a file has one line.
func has(t *probe.T, check string, id sandbox.InstanceID, file, line string) {
	got := sh(t, id, "cat "+file)
	t.Check(check, printed(got, line+"\n"), "the line "+line+" in "+file, says(got))
}

// holds holds that a snapshot can be resumed and has its file.
func holds(t *probe.T, check string, m *probe.Machine, s sandbox.Snapshot, file, line string) {
	h, err := t.Provider().Resume(t.Context(), again(t, m, s, s.SessionID))
	if err != nil {
		t.Check(check, false, "a snapshot that can be resumed", err)
		return
	}
	has(t, check, h.Value.InstanceID, file, line)
}

// lost holds that a snapshot is no more. Of one past its deadline it may be
// said that it expired.
func lost(t *probe.T, check string, m *probe.Machine, s sandbox.Snapshot) {
	_, err := t.Provider().Resume(t.Context(), again(t, m, s, s.SessionID))
	expired := sandbox.Conflict(sandbox.OpResume, "", sandbox.ActualExpired)
	if s.ExpiresAt.Before(sandbox.At(t.Now())) && errors.Is(err, expired) {
		t.Check(check, true, "", nil)
	} else {
		t.Refused(check, err, &sandbox.Error{Kind: sandbox.SnapshotNotFound, Operation: sandbox.OpResume})
	}
	uncounted(t, check, string(s.SnapshotID))
}
