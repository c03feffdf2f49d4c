package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestIdentity_SnapshotForm(t *testing.T) {
	cases := []broken[Snapshot]{
		{"provider", func(s *Snapshot) { s.Provider = "Fake" }},
		{"placement", func(s *Snapshot) { s.Placement = "moon" }},
		{"profile_version", func(s *Snapshot) { s.ProfileVersion = 0 }},
		{"profile_digest", func(s *Snapshot) { s.ProfileDigest = "sha256:" }},
		{"created_at", func(s *Snapshot) { s.CreatedAt = "" }},
		{"created_at", func(s *Snapshot) { s.CreatedAt = one }},
		{"created_at", func(s *Snapshot) { s.ExpiresAt = noon }},
		{"expires_at", func(s *Snapshot) { s.ExpiresAt = "" }},
	}
	cases = append(cases, identities("snapshot_id", func(s *Snapshot) *string { return (*string)(&s.SnapshotID) })...)
	cases = append(cases, identities("source_instance_id", func(s *Snapshot) *string { return (*string)(&s.SourceInstanceID) })...)
	cases = append(cases, identities("workspace_id", func(s *Snapshot) *string { return &s.WorkspaceID })...)
	cases = append(cases, identities("session_id", func(s *Snapshot) *string { return &s.SessionID })...)
	cases = append(cases, identities("profile_id", func(s *Snapshot) *string { return &s.ProfileID })...)
	rules(t, goodSnapshot, "", cases)
}

func TestOperations_SnapshotRequests(t *testing.T) {
	rules(t, func() SnapshotRequest { return SnapshotRequest{noon} }, "", []broken[SnapshotRequest]{
		{"expires_at", func(r *SnapshotRequest) { r.ExpiresAt = "" }},
	})
	rules(t, func() ReleaseRequest { return ReleaseRequest{noon} }, "", []broken[ReleaseRequest]{
		{"", func(r *ReleaseRequest) { r.ExpiresAt = "" }},
		{"expires_at", func(r *ReleaseRequest) { r.ExpiresAt = "tomorrow" }},
	})
	rules(t, func() CloneRequest { return CloneRequest{goodSnapshot(), "s2"} }, "", []broken[CloneRequest]{
		{"snapshot.snapshot_id", func(r *CloneRequest) { r.Snapshot.SnapshotID = "" }},
		{"target_session_id", func(r *CloneRequest) { r.TargetSessionID = "" }},
		{"target_session_id", func(r *CloneRequest) { r.TargetSessionID = "s" }},
	})
	rules(t, func() ResumeRequest { return ResumeRequest{goodRequest(), goodSnapshot()} }, "", []broken[ResumeRequest]{
		{"request.run_id", func(r *ResumeRequest) { r.Request.RunID = "" }},
		{"snapshot.expires_at", func(r *ResumeRequest) { r.Snapshot.ExpiresAt = "" }},
	})
}

func TestOperations_Released(t *testing.T) {
	s := goodSnapshot()
	rules(t, func() Released { return Released{DispositionReleased, &s} }, "", []broken[Released]{
		{"disposition", func(r *Released) { r.Disposition = "" }},
		{"snapshot", func(r *Released) { r.Snapshot = nil }},
		{"snapshot", func(r *Released) { r.Disposition = DispositionDestroyed }},
		{"", func(r *Released) { *r = Released{Disposition: DispositionDestroyed} }},
		{"snapshot.session_id", func(r *Released) { own := s; own.SessionID = ""; r.Snapshot = &own }},
	})
}

func TestCleanup_RequestAndResult(t *testing.T) {
	rules(t, func() CleanupRequest { return CleanupRequest{one, noon, []SnapshotID{"s"}} }, "", []broken[CleanupRequest]{
		{"now", func(r *CleanupRequest) { r.Now = "" }},
		{"orphaned_before", func(r *CleanupRequest) { r.OrphanedBefore = "" }},
		{"orphaned_before", func(r *CleanupRequest) { r.Now, r.OrphanedBefore = noon, one }},
		{"", func(r *CleanupRequest) { r.OrphanedBefore = one }},
		{"", func(r *CleanupRequest) { r.PinnedSnapshots = nil }},
		{"pinned_snapshots[1]", func(r *CleanupRequest) { r.PinnedSnapshots = []SnapshotID{"a", "b c"} }},
		{"pinned_snapshots", func(r *CleanupRequest) { r.PinnedSnapshots = make([]SnapshotID, 1025) }},
	})
	bound(t, "pinned_snapshots", MaxPinnedSnapshots, func(n int) error {
		return CleanupRequest{one, noon, slices.Repeat([]SnapshotID{"s"}, n)}.Validate()
	})
	long := strings.Repeat("a", 256)
	rules(t, func() Swept { return Swept{[]InstanceID{"i", "j"}, []SnapshotID{"i", "s"}} }, "", []broken[Swept]{
		{"swept", func(s *Swept) { s.InstanceIDs = nil }},
		{"swept", func(s *Swept) { s.SnapshotIDs = nil }},
		{"", func(s *Swept) { *s = Swept{[]InstanceID{}, []SnapshotID{}} }},
		{"instance_ids[1]", func(s *Swept) { s.InstanceIDs[1] = "i" }},
		{"instance_ids[0]", func(s *Swept) { s.InstanceIDs[0] = InstanceID(long) }},
		{"snapshot_ids[1]", func(s *Swept) { s.SnapshotIDs[1] = "i" }},
		{"snapshot_ids[0]", func(s *Swept) { s.SnapshotIDs[0] = "" }},
	})
}
