package evidence

import (
	"slices"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Fact is one of the five that a security boundary needs.
// Source: grading "The five facts, and the three that cannot be self-attested".
type Fact string

// The five facts.
const (
	ExactDestinationMatch    Fact = "exact_destination_match"     // exact host and exact port, no subdomains
	ConnectTimePublicAddress Fact = "connect_time_public_address" // every answer and every connection public, at connect time
	RedirectRecheck          Fact = "redirect_recheck"            // the same after redirects and every other reconnect
	AuthoritySeparation      Fact = "authority_separation"        // workload and plane authorities separately sealed
	DefaultDeny              Fact = "default_deny"                // denial when any of these is absent
)

// Facts returns the five, in the order in which a receipt has them.
func Facts() []Fact {
	return []Fact{ExactDestinationMatch, ConnectTimePublicAddress, RedirectRecheck, AuthoritySeparation, DefaultDeny}
}

// Topology is how the workload's traffic reaches the guard.
type Topology string

// The three topologies.
const (
	TopologySocketFile     Topology = "socket_file"     // no network, and one socket file bound into the machine
	TopologyInsideListener Topology = "inside_listener" // a listener opened inside the machine's namespace
	TopologyVeth           Topology = "veth"            // a link to the guard alone, and a ruleset
)

// Topologies returns the three.
func Topologies() []Topology {
	return []Topology{TopologySocketFile, TopologyInsideListener, TopologyVeth}
}

// ECH says what the guard does with an encrypted ClientHello on a tls port.
type ECH string

// The two settings. Under lax the inner name is not seen, so a receipt names it.
const (
	ECHDeny ECH = "deny"
	ECHLax  ECH = "lax"
)

// MaxReceiptBytes bounds a receipt.
const MaxReceiptBytes = 256 << 10

// MaxValidDays bounds how long a receipt may stand: kernels, tables and
// resolvers change under it.
const MaxValidDays = 90

// Receipt is what one run of the egress matrix proved, of one exact provider
// revision on one topology. All five facts stand together or there is none.
// Source: grading "The five facts, and the three that cannot be self-attested".
type Receipt struct {
	Schema Domain `json:"schema"` // always EgressConformance
	Facts  []Fact `json:"facts"`  // the five, in the order of Facts

	Provider                string `json:"provider"`
	ProviderRevision        string `json:"provider_revision"`
	MaterializationRevision string `json:"materialization_revision"`

	Topology          Topology       `json:"topology"`
	TopologyDigest    sandbox.Digest `json:"topology_digest"`     // of the dump of its namespaces, links and routes
	GuardDigest       sandbox.Digest `json:"guard_digest"`        // of the guard's binary
	GuardConfigDigest sandbox.Digest `json:"guard_config_digest"` // of the bytes that it was given
	RulesetDigest     sandbox.Digest `json:"ruleset_digest"`      // of the kernel's ruleset as it was read back
	ECH               ECH            `json:"ech"`

	Cases   []Case   `json:"cases"`   // each of CaseIDs once, in that order
	Mutants []Mutant `json:"mutants"` // ascending by name, then configuration

	RunID      string `json:"run_id"` // the real Run during which authority_separation was taken
	LeaseID    string `json:"lease_id"`
	LeaseEpoch int64  `json:"lease_epoch"`

	StartedAt sandbox.Timestamp `json:"started_at"` // of the matrix
	IssuedAt  sandbox.Timestamp `json:"issued_at"`  // of this receipt
	ExpiresAt sandbox.Timestamp `json:"expires_at"` // at most MaxValidDays after IssuedAt
}

// Certificate is what r certifies once it is verified.
func (r Receipt) Certificate() grade.Certificate {
	return grade.Certificate{Provider: r.Provider, ProviderRevision: r.ProviderRevision, MaterializationRevision: r.MaterializationRevision}
}

// Validate checks all that can be checked without a clock and without a key.
// Errors: *Refused with ReasonDomain, ReasonFacts, ReasonField, ReasonCase,
// ReasonMutant or ReasonTime; the first, in the order of the fields.
func (r Receipt) Validate() error {
	if r.Schema != EgressConformance {
		return refuse(ReasonDomain, "schema", string(EgressConformance), string(r.Schema))
	}
	if !slices.Equal(r.Facts, Facts()) {
		return refuse(ReasonFacts, "facts", "the five facts in their order", missingFact(r.Facts))
	}
	if err := r.checkFields(); err != nil {
		return err
	}
	if err := checkCases(r.Cases); err != nil {
		return err
	}
	if err := checkMutants(r.Mutants, r.Cases); err != nil {
		return err
	}
	return r.checkTimes()
}

// missingFact says what is wrong with a list that is not the five.
func missingFact(have []Fact) string {
	for _, f := range Facts() {
		if !slices.Contains(have, f) {
			return "none of " + string(f)
		}
	}
	return "another order, or more than five"
}

func (r Receipt) checkFields() error {
	target := sandbox.Target{Provider: r.Provider, ProviderRevision: r.ProviderRevision,
		MaterializationRevision: r.MaterializationRevision, Placement: sandbox.PlacementTest}
	if err := target.Validate(); err != nil {
		return invalid(err)
	}
	if !slices.Contains(Topologies(), r.Topology) {
		return refuse(ReasonField, "topology", "a topology", string(r.Topology))
	}
	for _, d := range []struct {
		field string
		value sandbox.Digest
	}{
		{"topology_digest", r.TopologyDigest}, {"guard_digest", r.GuardDigest},
		{"guard_config_digest", r.GuardConfigDigest}, {"ruleset_digest", r.RulesetDigest},
	} {
		if !d.value.Valid() {
			return refuse(ReasonField, d.field, "sha256: and 64 lower-case hex digits", string(d.value))
		}
	}
	if r.ECH != ECHDeny && r.ECH != ECHLax {
		return refuse(ReasonField, "ech", "deny or lax", string(r.ECH))
	}
	for _, id := range []struct{ field, value string }{{"run_id", r.RunID}, {"lease_id", r.LeaseID}} {
		if !identity(id.value) {
			return refuse(ReasonField, id.field, "1 to 255 printable ASCII bytes without space, quote or backslash", id.value)
		}
	}
	if r.LeaseEpoch < 0 || r.LeaseEpoch > sandbox.MaxInteger {
		return refuse(ReasonField, "lease_epoch", "0 to 2^53-1", "another number")
	}
	return nil
}

func (r Receipt) checkTimes() error {
	const form = "YYYY-MM-DDTHH:MM:SS.mmmZ"
	issued, err := r.IssuedAt.Time()
	switch {
	case !r.StartedAt.Valid():
		return refuse(ReasonField, "started_at", form, string(r.StartedAt))
	case err != nil:
		return refuse(ReasonField, "issued_at", form, string(r.IssuedAt))
	case !r.ExpiresAt.Valid():
		return refuse(ReasonField, "expires_at", form, string(r.ExpiresAt))
	case r.IssuedAt.Before(r.StartedAt):
		return refuse(ReasonTime, "issued_at", "at or after started_at", string(r.IssuedAt))
	case !r.IssuedAt.Before(r.ExpiresAt):
		return refuse(ReasonTime, "expires_at", "after issued_at", string(r.ExpiresAt))
	case sandbox.At(issued.AddDate(0, 0, MaxValidDays)).Before(r.ExpiresAt):
		return refuse(ReasonTime, "expires_at", "at most 90 days after issued_at", string(r.ExpiresAt))
	}
	return nil
}

// invalid gives a refusal of package sandbox our own type.
func invalid(err error) error {
	if i, ok := err.(*sandbox.Invalid); ok {
		return refuse(ReasonField, i.Field, i.Expected, i.Got)
	}
	return &Refused{Reason: ReasonField, Err: err}
}

// identity is the form of ids and revisions (docs/divergences.md, row 4).
func identity(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\'' || c == '\\' {
			return false
		}
	}
	return s != "" && len(s) <= sandbox.MaxIdentityBytes
}
