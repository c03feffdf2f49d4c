package all

import (
	"testing"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// TestCurrentPosture_MemoryDeclaresItsFilter: it applies the destinations, so
// the default, which would say that it ignores them, would be false.
func TestCurrentPosture_MemoryDeclaresItsFilter(t *testing.T) {
	c, err := Envelope(Memory)
	if err != nil || c.EgressCertification != sandbox.EgressAdvisoryFilter {
		t.Error(c.EgressCertification, err)
	}
}

// TestCurrentPosture_NoProviderHasSecurityBoundary, ours included: none claims
// it, and a profile that requires it is refused by every one.
func TestCurrentPosture_NoProviderHasSecurityBoundary(t *testing.T) {
	policy := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: sandbox.EgressSecurityBoundary}
	for _, name := range Names() {
		claimed, err := Envelope(name)
		if err != nil {
			t.Fatal(err)
		}
		c, lines, err := grade.Admit(claimed, grade.Standing{})
		if err != nil || len(lines) > 0 {
			t.Errorf("%s claims more than it may: %v %v", name, lines, err)
		}
		if grade.Network(c, policy) == nil {
			t.Errorf("%s is selected for a boundary", name)
		}
		// Over a wire nothing of ours is the Runner's own either.
		if s := attested(claimed); s.Enforcement != grade.Cap(claimed.Enforcement, sandbox.ProviderAttested) {
			t.Errorf("%s, served: %+v", name, s.Enforcement)
		}
	}
}
