package crosscheck

import (
	"iter"
	"slices"

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

// InstanceChecks names the twenty-one, in order.
func InstanceChecks() []string { return names(instanceChecks) }

// SnapshotChecks names the nine, in order.
func SnapshotChecks() []string { return names(snapshotChecks) }

// CloneChecks names what a clone is held to beyond the nine.
func CloneChecks() []string { return []string{"snapshot_id", "created_at"} }

func names[T any](checks []check[T]) []string {
	all := make([]string, len(checks))
	for n := range checks {
		all[n] = checks[n].field
	}
	return all
}

// Instance yields every check that got fails against want, which the Runner
// made from its own request.
func Instance(want, got *sandbox.Instance) iter.Seq[Difference] {
	return differences(instanceChecks, want, got)
}

// Snapshot yields every check that got fails against want. The id and the time
// of creation are the provider's.
func Snapshot(want, got *sandbox.Snapshot) iter.Seq[Difference] {
	return differences(snapshotChecks, want, got)
}

// Clone yields every check that a clone fails against its request. That it was
// made before its own expiry is a rule of every snapshot.
// Source: contract "Identity is cross-checked, not trusted", last paragraph.
func Clone(r *sandbox.CloneRequest, got *sandbox.Snapshot) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		want := r.Snapshot
		want.SessionID = r.TargetSessionID
		for d := range Snapshot(&want, got) {
			if !yield(d) {
				return
			}
		}
		if got.SnapshotID == want.SnapshotID &&
			!yield(Difference{0, "snapshot_id", "snapshot_id", "an id other than the source's", string(got.SnapshotID)}) {
			return
		}
		if got.CreatedAt.Before(want.CreatedAt) {
			yield(Difference{0, "created_at", "created_at", "at or after the source's " + string(want.CreatedAt), string(got.CreatedAt)})
		}
	}
}

func differences[T any](checks []check[T], want, got *T) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		for n := range checks {
			if c := &checks[n]; !c.same(want, got) {
				path, w, g := difference(c.field, c.of(want), c.of(got))
				if !yield(Difference{n + 1, c.field, path, w, g}) {
					return
				}
			}
		}
	}
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
