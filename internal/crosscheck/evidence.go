package crosscheck

import (
	"iter"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// Subject is what the Runner holds about a process that was just opened.
type Subject struct {
	Instance   sandbox.Instance
	ProcessID  string
	Advertised sandbox.Enforcement // as the provider said it, not as it was admitted
}

// clause is one of the sixteen. holds returns the field and both values of
// the first part that does not hold.
type clause func(s *Subject, e *sandbox.Evidence) (field, want, got string, ok bool)

// equal is the clause that one field is what the Runner holds.
func equal[V comparable](name string, want func(*Subject) V, got func(*sandbox.Evidence) V) clause {
	return func(s *Subject, e *sandbox.Evidence) (string, string, string, bool) {
		w, g := want(s), got(e)
		if w == g {
			return "", "", "", true
		}
		field, ws, gs := difference(name, w, g)
		return field, ws, gs, false
	}
}

// evidenceClauses are the sixteen, in order: nine bind evidence to state that
// the Runner holds, six are its own consistency, and the last compares two
// statements of one party. What crossed a wire is, by the last, checked for
// self-consistency only: no clause is an isolation check there.
// Source: grading "evidence stops being an isolation cross-check"; seven of
// them are inferred (docs/divergences.md).
var evidenceClauses = []clause{
	equal("instance_id", func(s *Subject) sandbox.InstanceID { return s.Instance.InstanceID }, func(e *sandbox.Evidence) sandbox.InstanceID { return e.InstanceID }),
	equal("provider", func(s *Subject) string { return s.Instance.Provider }, func(e *sandbox.Evidence) string { return e.Provider }),
	equal("provider_revision", func(s *Subject) string { return s.Instance.Materialization.ProviderRevision }, func(e *sandbox.Evidence) string { return e.ProviderRevision }),
	equal("materialization_revision", func(s *Subject) string { return s.Instance.Materialization.MaterializationRevision }, func(e *sandbox.Evidence) string { return e.MaterializationRevision }),
	equal("root_image", func(s *Subject) string { return s.Instance.RootImage }, func(e *sandbox.Evidence) string { return e.RootImage }),
	equal("platform", func(s *Subject) sandbox.Platform { return s.Instance.Platform }, func(e *sandbox.Evidence) sandbox.Platform { return e.Platform }),
	equal("profile_digest", func(s *Subject) sandbox.Digest { return s.Instance.Materialization.ProfileDigest }, func(e *sandbox.Evidence) sandbox.Digest { return e.ProfileDigest }),
	equal("network_mode", func(s *Subject) sandbox.NetworkMode { return s.Instance.Profile.NetworkPolicy.Mode }, func(e *sandbox.Evidence) sandbox.NetworkMode { return e.NetworkMode }),
	equal("resource_limits", func(s *Subject) sandbox.Resources { return s.Instance.Profile.ResourceLimits }, func(e *sandbox.Evidence) sandbox.Resources { return e.ResourceLimits }),

	equal("schema", func(*Subject) string { return sandbox.EvidenceSchema }, func(e *sandbox.Evidence) string { return e.Schema }),
	equal("process_id", func(s *Subject) string { return s.ProcessID }, func(e *sandbox.Evidence) string { return e.ProcessID }),
	func(_ *Subject, e *sandbox.Evidence) (string, string, string, bool) {
		want := sandbox.ImageDigest(e.RootImage)
		return "image_digest", string(want), string(e.ImageDigest), want != "" && e.ImageDigest == want
	},
	func(_ *Subject, e *sandbox.Evidence) (string, string, string, bool) {
		const form = "YYYY-MM-DDTHH:MM:SS.mmmZ"
		switch {
		case !e.StartedAt.Valid():
			return "started_at", form, string(e.StartedAt), false
		case !e.ObservedAt.Valid():
			return "observed_at", form, string(e.ObservedAt), false
		}
		return "observed_at", "at or after started_at " + string(e.StartedAt), string(e.ObservedAt), !e.ObservedAt.Before(e.StartedAt)
	},
	func(_ *Subject, e *sandbox.Evidence) (string, string, string, bool) {
		for _, axis := range sandbox.Axes() {
			if a := e.Enforcement.On(axis); !a.Valid() {
				return "enforcement." + string(axis), "one of the four authorities", string(a), false
			}
		}
		return "", "", "", true
	},
	// A restriction that the envelope claims to enforce must be enforced here.
	func(s *Subject, e *sandbox.Evidence) (string, string, string, bool) {
		return "enforcement.network_policy", string(s.Advertised.NetworkPolicy), string(e.Enforcement.NetworkPolicy), !lapsed(s, e)
	},
	// Word for word what was advertised, save what the two before this one have
	// refused already: one fault is one clause.
	func(s *Subject, e *sandbox.Evidence) (string, string, string, bool) {
		for _, axis := range sandbox.Axes() {
			w, g := s.Advertised.On(axis), e.Enforcement.On(axis)
			if w != g && g.Valid() && (axis != sandbox.AxisNetworkPolicy || !lapsed(s, e)) {
				return "enforcement." + string(axis), string(w), string(g), false
			}
		}
		return "", "", "", true
	},
}

// lapsed reports whether a restricted network is not enforced although the
// envelope claims that it is. An authority that is none is another clause's.
func lapsed(s *Subject, e *sandbox.Evidence) bool {
	got := e.Enforcement.NetworkPolicy
	return e.NetworkMode != sandbox.NetworkUnrestricted && s.Advertised.NetworkPolicy.Enforces() && got.Valid() && !got.Enforces()
}

// EvidenceClauses is how many clauses there are.
const EvidenceClauses = 16

// Evidence yields every clause that e does not hold. The fields are those of
// the evidence, without a prefix.
func Evidence(s *Subject, e *sandbox.Evidence) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		for n, holds := range evidenceClauses {
			if field, want, got, ok := holds(s, e); !ok && !yield(Difference{n + 1, "clause-" + strconv.Itoa(n+1), field, want, got}) {
				return
			}
		}
	}
}
