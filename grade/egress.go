package grade

import (
	"slices"

	"github.com/checkfu/checkfu/sandbox"
)

// egressOrder is the total order of the grades, weakest first.
var egressOrder = []sandbox.EgressCertification{sandbox.EgressUnsupported, sandbox.EgressAdvisoryFilter, sandbox.EgressSecurityBoundary}

// Meets reports whether the advertised grade satisfies the required one. A word
// that is no grade meets nothing. What is no spelling of a requirement is met
// by nothing, and unsupported is none: a policy may not ask that nothing apply
// its own restriction.
// Source: grading "The grading rule".
func Meets(advertised, required sandbox.EgressCertification) bool {
	if required != sandbox.EgressAdvisoryFilter && required != sandbox.EgressSecurityBoundary {
		return false
	}
	return slices.Index(egressOrder, advertised) >= slices.Index(egressOrder, required)
}

// Required returns the grade that p asks of a provider. An allowlist that names
// nothing asks for advisory_filter. The other modes ask for none, and ok is
// false: they declare no destination restriction for a grade to be honest
// about. The default is never written back into p, whose bytes and digest stay
// what they were.
// Source: grading "The grading rule".
func Required(p sandbox.NetworkPolicy) (required sandbox.EgressCertification, ok bool) {
	switch {
	case p.Mode != sandbox.NetworkAllowlist:
		return "", false
	case p.RequiredEgressCertification == "":
		return sandbox.EgressAdvisoryFilter, true
	}
	return p.RequiredEgressCertification, true
}

// Shortfall is a policy that an envelope does not serve, in both sides' words.
type Shortfall struct {
	Wanted  string // the policy, as it was asked for
	Offered string // the grade that falls short, or the modes without the one
}

// Network compares p, whose form is good, with the envelope c as it was
// admitted: the mode first, then the grade. It returns nil where c serves p.
// Source: grading "The grading rule"; contract "Errors", network_policy.
func Network(c sandbox.Capabilities, p sandbox.NetworkPolicy) *Shortfall {
	if !slices.Contains(c.NetworkModes, p.Mode) {
		return &Shortfall{Policy(p), "network_modes " + spell(c.NetworkModes)}
	}
	if required, ok := Required(p); ok && !Meets(c.EgressCertification, required) {
		return &Shortfall{Policy(p), string(c.WithDefaults().EgressCertification)}
	}
	return nil
}

// Policy spells a policy as a person asked for it: a requirement that was
// omitted is not named.
func Policy(p sandbox.NetworkPolicy) string {
	if p.RequiredEgressCertification == "" {
		return string(p.Mode)
	}
	return string(p.Mode) + " requiring " + string(p.RequiredEgressCertification)
}
