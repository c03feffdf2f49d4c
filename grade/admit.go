package grade

import "github.com/checkfu/checkfu/sandbox"

// Standing is what a Runner or a server holds about a provider, as opposed to
// what the provider says of itself. The zero Standing is of code that is
// compiled into the Runner and that nobody has certified.
type Standing struct {
	// Remote says that the provider was reached over a wire. A wire cannot show
	// who set a control, so nothing that came over it is above
	// provider_attested, also when it is our own code at the other end.
	Remote bool
	// Certificates are what receipts certify that package evidence verified.
	Certificates []Certificate
	// Ceiling is the most that an operator admits of this provider, as an
	// envelope for the same target. nil sets no ceiling; the two rules above
	// hold whatever it says.
	Ceiling *sandbox.Capabilities
}

// Certificate says that a receipt of a listed attester proved the five facts
// for exactly one revision. Only package evidence has reason to make one.
// Source: grading "The grading rule"; "The current posture".
type Certificate struct {
	Provider                string `json:"provider"`
	ProviderRevision        string `json:"provider_revision"`
	MaterializationRevision string `json:"materialization_revision"`
}

// covers compares byte for byte: the same provider's other revision is separate
// evidence.
func (c Certificate) covers(claim sandbox.Capabilities) bool {
	return c == Certificate{claim.Provider, claim.ProviderRevision, claim.MaterializationRevision}
}

// Reason says which rule narrowed a claim. The set is closed.
type Reason string

// The reasons.
const (
	ReasonWire      Reason = "reached_over_a_wire" // who is not the Runner cannot say that the Runner set a control
	ReasonNoReceipt Reason = "no_verified_receipt" // the grade is earned for one exact revision, never claimed
	ReasonCeiling   Reason = "operator_ceiling"    // the operator admits less
)

// Narrowing is one line of the record: a claim that was not admitted as it was
// made. Values are spelled for a person; lists have spaces between.
type Narrowing struct {
	Field   string `json:"field"`   // JSON path in the envelope
	Claimed string `json:"claimed"` // by the provider, or what an earlier rule had left of it
	Ceiling string `json:"ceiling"` // what the rule admits at most
	Result  string `json:"result"`  // what is admitted
	Reason  Reason `json:"reason"`
}

// Admit returns what of claim is admitted, defaults filled in, and one line for
// each field of which less is admitted than was claimed, in the order of the
// rules and then of the fields. It only ever narrows: no field of the result
// says more than claim does.
//
// Without a ceiling every claim is admitted in part, also one that breaks the
// rules of its own form; those stay as broken as they were.
// Errors: *Nothing, from the ceiling.
// Source: grading "The grading rule"; "The enforcement ceiling gap".
func Admit(claim sandbox.Capabilities, s Standing) (sandbox.Capabilities, []Narrowing, error) {
	c := claim.WithDefaults()
	var lines []Narrowing
	if s.Remote {
		lines = capEnforcement(&c, sandbox.EnforcedBy(sandbox.ProviderAttested), ReasonWire, lines)
	}
	if most := certified(c, s.Certificates); exceeds(c.EgressCertification, most) {
		lines = append(lines, Narrowing{"egress_certification", string(c.EgressCertification), string(most), string(most), ReasonNoReceipt})
		c.EgressCertification = most
	}
	if s.Ceiling == nil {
		return c, lines, nil
	}
	return underCeiling(c, s.Ceiling.WithDefaults(), lines)
}

// certified is the most that may be claimed. It looks at receipts alone: a
// provider that attests its own network policy has said that it owns a filter,
// which is a much weaker claim than the five facts.
func certified(claim sandbox.Capabilities, certificates []Certificate) sandbox.EgressCertification {
	for _, c := range certificates {
		if c.covers(claim) {
			return sandbox.EgressSecurityBoundary
		}
	}
	return sandbox.EgressAdvisoryFilter
}

// capEnforcement narrows each axis to the one of most.
func capEnforcement(c *sandbox.Capabilities, most sandbox.Enforcement, why Reason, lines []Narrowing) []Narrowing {
	for _, axis := range sandbox.Axes() {
		claimed, limit := c.Enforcement.On(axis), most.On(axis)
		if admitted := Weaker(claimed, limit); admitted != claimed {
			lines = append(lines, Narrowing{"enforcement." + string(axis), string(claimed), string(limit), string(admitted), why})
			c.Enforcement = c.Enforcement.With(axis, admitted)
		}
	}
	return lines
}
