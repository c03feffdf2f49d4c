package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// lifetime is that of a machine whose expiry a drill waits for: long enough to
// be made, short enough to be waited for.
const lifetime = 3 * time.Second

// moments is how often a census is taken again, a second apart, before what it
// names counts: a host needs a moment to reap.
const moments = 3

// touch asks whether the target knows an instance, by the one member that both
// states accept. It returns the target's error.
func touch(t *probe.T, id sandbox.InstanceID) error {
	return t.Provider().WriteFile(t.Context(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/" + t.Nonce(), Content: []byte("x")})
}

// unknown says that no instance has that name.
var unknown = &sandbox.Error{Kind: sandbox.InstanceNotFound}

// gone checks that nothing of an instance is left that could be seen now.
func gone(t *probe.T, id sandbox.InstanceID) {
	t.Refused("gone", touch(t, id), unknown)
	unlisted(t, string(id))
}

// goneSnapshot is gone for a snapshot of m.
func goneSnapshot(t *probe.T, m *probe.Machine, s sandbox.Snapshot) {
	_, err := resume(t, m, s)
	t.Refused("gone", err, &sandbox.Error{Kind: sandbox.SnapshotNotFound})
	unlisted(t, string(s.SnapshotID))
}

// unlisted checks that the census, where there is one, does not name id.
func unlisted(t *probe.T, id string) {
	left, counted := census(t, func(line string) bool { return id != "" && strings.Contains(line, id) })
	if counted {
		t.Check("census", len(left) == 0, "nothing on the host that bears the id", strings.Join(left, ", "))
	}
}

// census returns the lines that still match after a few moments.
func census(t *probe.T, match func(string) bool) (left []string, counted bool) {
	for n := 0; ; n++ {
		lines, counted := t.Census()
		left := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !match(line) })
		if len(left) == 0 || n == moments {
			return left, counted
		}
		t.Sleep(time.Second)
	}
}

// stock is what a target holds before a drill that may leave something that
// no id names.
type stock struct {
	t     *probe.T
	lines []string
	known []string
}

// count takes stock.
func count(t *probe.T) *stock {
	lines, _ := t.Census()
	return &stock{t: t, lines: lines}
}

// returned rolls back what a call of the drill did return after all. How well
// that works is another drill's to say.
func (s *stock) returned(id string, rollback func(context.Context) error) {
	s.known = append(s.known, id)
	_ = rollback(s.t.Context())
}

// unchanged checks that nothing is there that was not there before, also past
// the expiry of all that was asked for: an id that only a cleanup knows was
// left by somebody. On a provider that others use too it may be theirs.
func (s *stock) unchanged(expires sandbox.Timestamp) {
	left, counted := census(s.t, func(line string) bool {
		return !slices.Contains(s.lines, line) && !slices.ContainsFunc(s.known, func(id string) bool { return id != "" && strings.Contains(line, id) })
	})
	s.t.Check("census", len(left) == 0, "nothing on the host that was not there before", strings.Join(left, ", "))
	s.t.Until(expires)
	swept := sweep(s.t)
	for _, id := range slices.Concat(names(swept.InstanceIDs), names(swept.SnapshotIDs)) {
		switch {
		case slices.Contains(s.known, id):
		case counted:
			s.t.Check("swept", false, "nothing that nobody was told of", id)
		default:
			s.t.Observe("a cleanup returned %s, which this run never saw", id)
		}
	}
	s.t.Check("swept", true, "", nil)
}

func names[S ~string](ids []S) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// sweep cleans up what has expired by now, and nothing for its age.
func sweep(t *probe.T) sandbox.Swept {
	got, err := t.Provider().Cleanup(t.Context(), sandbox.CleanupRequest{Now: sandbox.At(t.Now()), OrphanedBefore: "1970-01-01T00:00:00.000Z"})
	t.Need("cleanup", err)
	return got
}

// settled checks that a rollback came back in time and without an error.
func settled(t *probe.T, err error) {
	if !t.Check("in-time", !probe.Hung(err), "a rollback that ends within 30 seconds", err) {
		t.Stop()
	}
	t.Check("settles", err == nil, "a rollback that succeeds", err)
}

// resume asks for a machine like m out of s.
func resume(t *probe.T, m *probe.Machine, s sandbox.Snapshot) (sandbox.Handoff[sandbox.Instance], error) {
	q := another(t, m)
	q.SessionID = s.SessionID
	return t.Provider().Resume(t.Context(), sandbox.ResumeRequest{Request: q, Snapshot: s})
}

// another is a request like that of m for another Run.
func another(t *probe.T, m *probe.Machine) sandbox.ProvisionRequest {
	q := m.Request
	q.RunID, q.AttemptID, q.LeaseID = t.ID("run_"), t.ID("att_"), t.ID("lease_")
	return q
}

// deadline is an hour from now, when a snapshot may go.
func deadline(t *probe.T) sandbox.Timestamp { return sandbox.At(t.Now().Add(time.Hour)) }

// snapshot captures m. The probe stops if the target refuses.
func snapshot(t *probe.T, m *probe.Machine) sandbox.Handoff[sandbox.Snapshot] {
	h, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: deadline(t)})
	t.Need("snapshot", err)
	return h
}

// cloned copies s into another Session.
func cloned(t *probe.T, s sandbox.Snapshot) sandbox.Handoff[sandbox.Snapshot] {
	h, err := t.Provider().CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: s, TargetSessionID: t.ID("ses_")})
	t.Need("clone", err)
	return h
}

// resumed makes a machine like m out of s.
func resumed(t *probe.T, m *probe.Machine, s sandbox.Snapshot) sandbox.Handoff[sandbox.Instance] {
	h, err := resume(t, m, s)
	t.Need("resume", err)
	return h
}

// released gives m back.
func released(t *probe.T, m *probe.Machine) sandbox.Handoff[sandbox.Released] {
	var q sandbox.ReleaseRequest
	if m.Request.Profile.RetentionMode == sandbox.RetentionDurable {
		q.ExpiresAt = deadline(t)
	}
	h, err := t.Provider().Release(t.Context(), m.ID, q)
	t.Need("release", err)
	return h
}

// isUnknown reports whether err says that no instance has that name.
func isUnknown(err error) bool { return errors.Is(err, unknown) }
