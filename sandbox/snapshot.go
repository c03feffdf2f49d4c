package sandbox

import "strconv"

// Snapshot is a reference to captured state.
// Source: contract "Identity is cross-checked, not trusted".
type Snapshot struct {
	SnapshotID       SnapshotID `json:"snapshot_id"`
	Provider         string     `json:"provider"`
	Placement        Placement  `json:"placement"`
	SourceInstanceID InstanceID `json:"source_instance_id"`
	WorkspaceID      string     `json:"workspace_id"`
	SessionID        string     `json:"session_id"`
	ProfileID        string     `json:"profile_id"`
	ProfileVersion   int64      `json:"profile_version"`
	ProfileDigest    Digest     `json:"profile_digest"`
	CreatedAt        Timestamp  `json:"created_at"`
	ExpiresAt        Timestamp  `json:"expires_at"`
}

// Validate checks the form of every field and that the snapshot was created
// strictly before it expires.
func (s Snapshot) Validate() error {
	err := first(
		checkIdentity("snapshot_id", string(s.SnapshotID)),
		checkCoordinate("provider", s.Provider),
		checkMember("placement", s.Placement),
		checkIdentity("source_instance_id", string(s.SourceInstanceID)),
		checkIdentity("workspace_id", s.WorkspaceID),
		checkIdentity("session_id", s.SessionID),
		checkIdentity("profile_id", s.ProfileID),
		checkInteger("profile_version", s.ProfileVersion, 1, MaxInteger),
		checkDigest("profile_digest", s.ProfileDigest),
		checkTimestamp("created_at", s.CreatedAt),
		checkTimestamp("expires_at", s.ExpiresAt),
	)
	if err == nil && !s.CreatedAt.Before(s.ExpiresAt) {
		err = invalid("created_at", "before expires_at "+string(s.ExpiresAt), string(s.CreatedAt))
	}
	return err
}

// SnapshotRequest captures one instance. The retention deadline is governed
// independently of the instance's own expiry and must come back unchanged.
// Source: contract "The operations", row snapshot.
type SnapshotRequest struct {
	ExpiresAt Timestamp `json:"expires_at"`
}

// Validate checks the deadline's form.
func (r SnapshotRequest) Validate() error { return checkTimestamp("expires_at", r.ExpiresAt) }

// CloneRequest copies a snapshot into another Session.
// Source: contract "The operations", row cloneSnapshot.
type CloneRequest struct {
	Snapshot        Snapshot `json:"snapshot"`
	TargetSessionID string   `json:"target_session_id"`
}

// Validate checks both sides and that the Sessions differ.
func (r CloneRequest) Validate() error {
	err := first(prefix("snapshot", r.Snapshot.Validate()), checkIdentity("target_session_id", r.TargetSessionID))
	if err == nil && r.TargetSessionID == r.Snapshot.SessionID {
		err = invalid("target_session_id", "a Session other than the source's", r.TargetSessionID)
	}
	return err
}

// ReleaseRequest gives an instance back. ExpiresAt is the deadline of the
// settled snapshot on a durable profile and absent otherwise.
// Source: contract "The operations", row release.
type ReleaseRequest struct {
	ExpiresAt Timestamp `json:"expires_at,omitzero"`
}

// Validate checks the deadline where it is given.
func (r ReleaseRequest) Validate() error {
	if r.ExpiresAt == "" {
		return nil
	}
	return checkTimestamp("expires_at", r.ExpiresAt)
}

// Released is how a release ended: released with a snapshot, or destroyed
// without.
type Released struct {
	Disposition Disposition `json:"disposition"`
	Snapshot    *Snapshot   `json:"snapshot,omitzero"`
}

// Validate checks the union.
func (r Released) Validate() error {
	if err := checkMember("disposition", r.Disposition); err != nil {
		return err
	}
	if (r.Disposition == DispositionReleased) != (r.Snapshot != nil) {
		return invalid("snapshot", "present exactly when released", string(r.Disposition))
	}
	if r.Snapshot != nil {
		return prefix("snapshot", r.Snapshot.Validate())
	}
	return nil
}

// ResumeRequest rehydrates a snapshot into a fresh active instance.
// Source: contract "The operations", row resume.
type ResumeRequest struct {
	Request  ProvisionRequest `json:"request"`
	Snapshot Snapshot         `json:"snapshot"`
}

// Validate checks both sides.
func (r ResumeRequest) Validate() error {
	return first(prefix("request", r.Request.Validate()), prefix("snapshot", r.Snapshot.Validate()))
}

// CleanupRequest sweeps what was orphaned before a cutoff. A pin exempts a
// snapshot from the cutoff, never from its own expiry.
// Source: contract "Cleanup and pinning".
type CleanupRequest struct {
	Now             Timestamp    `json:"now"`
	OrphanedBefore  Timestamp    `json:"orphaned_before"`
	PinnedSnapshots []SnapshotID `json:"pinned_snapshots,omitzero"`
}

// Validate checks that the cutoff is no later than now and the pins' bound.
func (r CleanupRequest) Validate() error {
	if err := first(checkTimestamp("now", r.Now), checkTimestamp("orphaned_before", r.OrphanedBefore)); err != nil {
		return err
	}
	if r.Now.Before(r.OrphanedBefore) {
		return invalid("orphaned_before", "no later than now "+string(r.Now), string(r.OrphanedBefore))
	}
	if len(r.PinnedSnapshots) > MaxPinnedSnapshots {
		return invalid("pinned_snapshots", "at most "+strconv.Itoa(MaxPinnedSnapshots), strconv.Itoa(len(r.PinnedSnapshots)))
	}
	for i, id := range r.PinnedSnapshots {
		if err := CheckSnapshotID(at("pinned_snapshots", i), id); err != nil {
			return err
		}
	}
	return nil
}

// Swept is what a cleanup destroyed.
type Swept struct {
	InstanceIDs []InstanceID `json:"instance_ids"`
	SnapshotIDs []SnapshotID `json:"snapshot_ids"`
}

// Validate checks that the result is two lists of well-formed, distinct ids.
func (s Swept) Validate() error {
	if s.InstanceIDs == nil || s.SnapshotIDs == nil {
		return invalid("swept", "two id lists, possibly empty", "an absent list")
	}
	seen := map[string]bool{}
	for i, id := range s.InstanceIDs {
		if err := CheckInstanceID(at("instance_ids", i), id); err != nil {
			return err
		}
		if seen[string(id)] {
			return invalid(at("instance_ids", i), "no duplicate", string(id))
		}
		seen[string(id)] = true
	}
	clear(seen)
	for i, id := range s.SnapshotIDs {
		if err := CheckSnapshotID(at("snapshot_ids", i), id); err != nil {
			return err
		}
		if seen[string(id)] {
			return invalid(at("snapshot_ids", i), "no duplicate", string(id))
		}
		seen[string(id)] = true
	}
	return nil
}
