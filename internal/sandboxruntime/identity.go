package sandboxruntime

import (
	"slices"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// check is one equality between what a provider returned and what the Runner
// holds. Only a failed one pays for finding out where the two differ.
type check[T any] struct {
	field string
	same  func(want, got *T) bool
	of    func(*T) any
}

func field[T any, V comparable](name string, of func(*T) V) check[T] {
	return check[T]{name, func(w, g *T) bool { return of(w) == of(g) }, func(v *T) any { return of(v) }}
}

// instanceChecks are the twenty-one equality checks over seventeen top-level
// fields, in the order of the contract. instance_id is not one of them: it is
// the provider's to choose.
// Source: contract "Identity is cross-checked, not trusted".
var instanceChecks = []check[sandbox.Instance]{
	field("provider", func(i *sandbox.Instance) string { return i.Provider }),
	field("placement", func(i *sandbox.Instance) sandbox.Placement { return i.Placement }),
	field("state", func(i *sandbox.Instance) sandbox.State { return i.State }),
	field("workspace_id", func(i *sandbox.Instance) string { return i.WorkspaceID }),
	field("session_id", func(i *sandbox.Instance) string { return i.SessionID }),
	field("run_id", func(i *sandbox.Instance) string { return i.RunID }),
	field("attempt_id", func(i *sandbox.Instance) string { return i.AttemptID }),
	field("lease_id", func(i *sandbox.Instance) string { return i.LeaseID }),
	field("lease_epoch", func(i *sandbox.Instance) int64 { return i.LeaseEpoch }),
	field("target", func(i *sandbox.Instance) sandbox.Target { return i.Target }),
	{"profile", func(w, g *sandbox.Instance) bool { return sameProfile(&w.Profile, &g.Profile) }, func(i *sandbox.Instance) any { return i.Profile }},
	field("platform", func(i *sandbox.Instance) sandbox.Platform { return i.Platform }),
	field("root_image", func(i *sandbox.Instance) string { return i.RootImage }),
	{"mounts", func(w, g *sandbox.Instance) bool { return slices.Equal(w.Mounts, g.Mounts) }, func(i *sandbox.Instance) any { return i.Mounts }},
	field("output_path", func(i *sandbox.Instance) string { return i.OutputPath }),
	field("expires_at", func(i *sandbox.Instance) sandbox.Timestamp { return i.ExpiresAt }),
	field("materialization.profile_digest", func(i *sandbox.Instance) sandbox.Digest { return i.Materialization.ProfileDigest }),
	field("materialization.image_reference", func(i *sandbox.Instance) string { return i.Materialization.ImageReference }),
	field("materialization.image_digest", func(i *sandbox.Instance) sandbox.Digest { return i.Materialization.ImageDigest }),
	field("materialization.provider_revision", func(i *sandbox.Instance) string { return i.Materialization.ProviderRevision }),
	field("materialization.materialization_revision", func(i *sandbox.Instance) string { return i.Materialization.MaterializationRevision }),
}

// snapshotChecks are the nine equality checks of a snapshot. A clone gets the
// same nine against its source, with session_id and the rest replaced by what
// the clone request says.
// Source: contract "Identity is cross-checked, not trusted".
var snapshotChecks = []check[sandbox.Snapshot]{
	field("provider", func(s *sandbox.Snapshot) string { return s.Provider }),
	field("placement", func(s *sandbox.Snapshot) sandbox.Placement { return s.Placement }),
	field("source_instance_id", func(s *sandbox.Snapshot) sandbox.InstanceID { return s.SourceInstanceID }),
	field("workspace_id", func(s *sandbox.Snapshot) string { return s.WorkspaceID }),
	field("session_id", func(s *sandbox.Snapshot) string { return s.SessionID }),
	field("profile_id", func(s *sandbox.Snapshot) string { return s.ProfileID }),
	field("profile_version", func(s *sandbox.Snapshot) int64 { return s.ProfileVersion }),
	field("profile_digest", func(s *sandbox.Snapshot) sandbox.Digest { return s.ProfileDigest }),
	field("expires_at", func(s *sandbox.Snapshot) sandbox.Timestamp { return s.ExpiresAt }),
}

// mismatch runs checks in order and returns the first that fails.
func mismatch[T any](op sandbox.Operation, checks []check[T], want, got *T) error {
	for n := range checks {
		if c := &checks[n]; !c.same(want, got) {
			path, w, g := difference(c.field, c.of(want), c.of(got))
			e := protocolInvalid(op, path, w, g)
			e.Check = n + 1
			return e
		}
	}
	return nil
}

// checkInstance cross-checks an instance. known is the id that it must keep,
// or "" if the provider may choose one now.
func checkInstance(want, got sandbox.Instance, known sandbox.InstanceID) error {
	if err := mismatch(OpInstanceIdentity, instanceChecks, &want, &got); err != nil {
		return err
	}
	if err := sandbox.CheckInstanceID("instance_id", got.InstanceID); err != nil {
		return rejected(OpInstanceIdentity, err)
	}
	if known != "" && got.InstanceID != known {
		return protocolInvalid(OpInstanceIdentity, "instance_id", string(known), string(got.InstanceID))
	}
	return nil
}

// checkSnapshot cross-checks a snapshot against the one that was asked for,
// then its form.
func checkSnapshot(want, got sandbox.Snapshot) error {
	if err := mismatch(OpSnapshotIdentity, snapshotChecks, &want, &got); err != nil {
		return err
	}
	if err := got.Validate(); err != nil {
		return rejected(OpSnapshotIdentity, err)
	}
	return nil
}

// snapshotOf is what a snapshot of i must look like, apart from its id and the
// time it was made.
func (i *instance) snapshotOf(expires sandbox.Timestamp) sandbox.Snapshot {
	r := &i.request
	return sandbox.Snapshot{
		Provider: r.Target.Provider, Placement: r.Target.Placement, SourceInstanceID: i.id,
		WorkspaceID: r.WorkspaceID, SessionID: r.SessionID,
		ProfileID: r.Profile.ProfileID, ProfileVersion: r.Profile.ProfileVersion, ProfileDigest: i.digest,
		ExpiresAt: expires,
	}
}

// checkClone cross-checks a clone against its source.
// Source: contract "Identity is cross-checked, not trusted", last paragraph.
func checkClone(r sandbox.CloneRequest, got sandbox.Snapshot) error {
	want := r.Snapshot
	want.SessionID = r.TargetSessionID
	if err := checkSnapshot(want, got); err != nil {
		return err
	}
	if got.SnapshotID == r.Snapshot.SnapshotID {
		return protocolInvalid(OpSnapshotIdentity, "snapshot_id", "an id other than the source's", string(got.SnapshotID))
	}
	// That it lies before its own expiry is a rule of every snapshot.
	if got.CreatedAt.Before(r.Snapshot.CreatedAt) {
		return protocolInvalid(OpSnapshotIdentity, "created_at", "at or after the source's "+string(r.Snapshot.CreatedAt), string(got.CreatedAt))
	}
	return nil
}

// profileDigest is the identity of the derived image.
// Source: contract "Identity is cross-checked, not trusted".
func profileDigest(p sandbox.Profile) sandbox.Digest {
	return sandbox.Digest(canonical.Digest(p.ImageIdentity()))
}

// sameProfile compares as canonical JSON would: an empty list of packages has
// one form, an absent list of destinations differs from an empty one.
func sameProfile(w, g *sandbox.Profile) bool {
	return w.ProfileID == g.ProfileID && w.ProfileVersion == g.ProfileVersion && w.Tier == g.Tier &&
		w.BaseImage == g.BaseImage && slices.Equal(w.Packages, g.Packages) &&
		w.NetworkPolicy.Mode == g.NetworkPolicy.Mode &&
		w.NetworkPolicy.RequiredEgressCertification == g.NetworkPolicy.RequiredEgressCertification &&
		(w.NetworkPolicy.Destinations == nil) == (g.NetworkPolicy.Destinations == nil) &&
		slices.Equal(w.NetworkPolicy.Destinations, g.NetworkPolicy.Destinations) &&
		w.ResourceLimits == g.ResourceLimits && w.RetentionMode == g.RetentionMode
}
