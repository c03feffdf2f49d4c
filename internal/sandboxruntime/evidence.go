package sandboxruntime

import (
	"github.com/checkfu/checkfu/sandbox"
)

// subject is what the Runner holds about a process that was just opened.
type subject struct {
	instance   sandbox.Instance
	processID  string
	advertised sandbox.Enforcement // as the provider said it, not as it was admitted
}

// clause is one of the sixteen. holds returns the field and both values of
// the first part that does not hold.
type clause func(s *subject, e *sandbox.Evidence) (field, want, got string, ok bool)

// equal is the clause that one field is what the Runner holds.
func equal[V comparable](name string, want func(*subject) V, got func(*sandbox.Evidence) V) clause {
	return func(s *subject, e *sandbox.Evidence) (string, string, string, bool) {
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
	equal("instance_id", func(s *subject) sandbox.InstanceID { return s.instance.InstanceID }, func(e *sandbox.Evidence) sandbox.InstanceID { return e.InstanceID }),
	equal("provider", func(s *subject) string { return s.instance.Provider }, func(e *sandbox.Evidence) string { return e.Provider }),
	equal("provider_revision", func(s *subject) string { return s.instance.Materialization.ProviderRevision }, func(e *sandbox.Evidence) string { return e.ProviderRevision }),
	equal("materialization_revision", func(s *subject) string { return s.instance.Materialization.MaterializationRevision }, func(e *sandbox.Evidence) string { return e.MaterializationRevision }),
	equal("root_image", func(s *subject) string { return s.instance.RootImage }, func(e *sandbox.Evidence) string { return e.RootImage }),
	equal("platform", func(s *subject) sandbox.Platform { return s.instance.Platform }, func(e *sandbox.Evidence) sandbox.Platform { return e.Platform }),
	equal("profile_digest", func(s *subject) sandbox.Digest { return s.instance.Materialization.ProfileDigest }, func(e *sandbox.Evidence) sandbox.Digest { return e.ProfileDigest }),
	equal("network_mode", func(s *subject) sandbox.NetworkMode { return s.instance.Profile.NetworkPolicy.Mode }, func(e *sandbox.Evidence) sandbox.NetworkMode { return e.NetworkMode }),
	equal("resource_limits", func(s *subject) sandbox.Resources { return s.instance.Profile.ResourceLimits }, func(e *sandbox.Evidence) sandbox.Resources { return e.ResourceLimits }),

	equal("schema", func(*subject) string { return sandbox.EvidenceSchema }, func(e *sandbox.Evidence) string { return e.Schema }),
	equal("process_id", func(s *subject) string { return s.processID }, func(e *sandbox.Evidence) string { return e.ProcessID }),
	func(_ *subject, e *sandbox.Evidence) (string, string, string, bool) {
		want := sandbox.ImageDigest(e.RootImage)
		return "image_digest", string(want), string(e.ImageDigest), want != "" && e.ImageDigest == want
	},
	func(_ *subject, e *sandbox.Evidence) (string, string, string, bool) {
		const form = "YYYY-MM-DDTHH:MM:SS.mmmZ"
		switch {
		case !e.StartedAt.Valid():
			return "started_at", form, string(e.StartedAt), false
		case !e.ObservedAt.Valid():
			return "observed_at", form, string(e.ObservedAt), false
		}
		return "observed_at", "at or after started_at " + string(e.StartedAt), string(e.ObservedAt), !e.ObservedAt.Before(e.StartedAt)
	},
	func(_ *subject, e *sandbox.Evidence) (string, string, string, bool) {
		for _, axis := range sandbox.Axes() {
			if a := e.Enforcement.On(axis); !a.Valid() {
				return "enforcement." + string(axis), "one of the four authorities", string(a), false
			}
		}
		return "", "", "", true
	},
	// A restriction that the envelope claims to enforce must be enforced here.
	func(s *subject, e *sandbox.Evidence) (string, string, string, bool) {
		restricted := e.NetworkMode != sandbox.NetworkUnrestricted
		claimed, got := s.advertised.NetworkPolicy, e.Enforcement.NetworkPolicy
		return "enforcement.network_policy", string(claimed), string(got), !restricted || got.Enforces() || !claimed.Enforces()
	},
	func(s *subject, e *sandbox.Evidence) (string, string, string, bool) {
		for _, axis := range sandbox.Axes() {
			if w, g := s.advertised.On(axis), e.Enforcement.On(axis); w != g {
				return "enforcement." + string(axis), string(w), string(g), false
			}
		}
		return "", "", "", true
	},
}

// checkEvidence holds evidence to the sixteen clauses.
// Errors: ProtocolInvalid{open_process_identity} with the clause's number.
// Source: contract "Optional capabilities: absent versus wrong", row openProcess.
func checkEvidence(s subject, e sandbox.Evidence) error {
	for n, holds := range evidenceClauses {
		if field, want, got, ok := holds(&s, &e); !ok {
			err := protocolInvalid(OpOpenProcessIdentity, "evidence."+field, want, got)
			err.Check = n + 1
			return err
		}
	}
	return nil
}
