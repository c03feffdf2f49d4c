package sandboxruntime_test

import (
	"errors"
	"testing"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// TestGradingRule_ABoundaryIsRefusedBeforeAnyProviderWork: also where the
// provider claims one and is compiled in; a receipt for exactly its revision is
// the only thing that changes it.
func TestGradingRule_ABoundaryIsRefusedBeforeAnyProviderWork(t *testing.T) {
	itself := func(c sandbox.Capabilities) grade.Certificate {
		return grade.Certificate{Provider: c.Provider, ProviderRevision: c.ProviderRevision, MaterializationRevision: c.MaterializationRevision}
	}
	for _, c := range []struct {
		name     string
		claimed  sandbox.EgressCertification
		certify  func(sandbox.Capabilities) grade.Certificate
		selected bool
	}{
		{"claimed, nobody certified it", sandbox.EgressSecurityBoundary, nil, false},
		{"claimed, another revision is certified", sandbox.EgressSecurityBoundary, func(c sandbox.Capabilities) grade.Certificate {
			other := itself(c)
			other.ProviderRevision += "1"
			return other
		}, false},
		{"certified and not claimed", sandbox.EgressAdvisoryFilter, itself, false},
		{"claimed and certified", sandbox.EgressSecurityBoundary, itself, true},
	} {
		for _, remote := range []bool{false, true} {
			b := newBench(t)
			b.fake.envelope.EgressCertification = c.claimed
			a := sandboxruntime.Adapter{Provider: b.fake, Remote: remote}
			if c.certify != nil {
				a.Certificates = []grade.Certificate{c.certify(b.fake.envelope)}
			}
			w := wanted(b.fake)
			w.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: sandbox.EgressSecurityBoundary}
			_, err := b.selector(a).Select(b.ctx, w)
			want := sandbox.Unavailable(sandboxruntime.OpSelect, sandbox.RequireNetworkPolicy, "allowlist requiring security_boundary", "advisory_filter")
			if c.selected != (err == nil) || err != nil && !errors.Is(err, want) {
				t.Errorf("%s, remote %v: %v", c.name, remote, err)
			}
			for _, op := range sandbox.Operations() {
				if n := b.called(op); n > 0 && op != sandbox.OpCapabilities {
					t.Errorf("%s: %s was called", c.name, op)
				}
			}
		}
	}
}

// TestCeiling_MeetsTheClaimInSelection: what the operator does not admit cannot
// be selected, and a ceiling that leaves nothing leaves nobody.
func TestCeiling_MeetsTheClaimInSelection(t *testing.T) {
	attach := func(b *bench, change func(*sandbox.Capabilities)) (sandboxruntime.Adapter, sandboxruntime.Wanted) {
		ceiling := b.fake.envelope
		change(&ceiling)
		return sandboxruntime.Adapter{Provider: b.fake, Ceiling: &ceiling}, wanted(b.fake)
	}
	b := newBench(t)
	a, w := attach(b, func(c *sandbox.Capabilities) { c.EgressCertification = sandbox.EgressUnsupported })
	w.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
	r, err := b.selector(a).Select(b.ctx, w)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Narrowings(); len(n) != 1 || n[0].Field != "egress_certification" || n[0].Reason != grade.ReasonCeiling || r.Capabilities().EgressCertification != sandbox.EgressUnsupported {
		t.Error(n)
	}
	w.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}}
	if _, err := b.selector(a).Select(b.ctx, w); !errors.Is(err, sandbox.Unavailable(sandboxruntime.OpSelect, sandbox.RequireNetworkPolicy, "allowlist", "unsupported")) {
		t.Error(err)
	}
	for field, change := range map[string]func(*sandbox.Capabilities){
		"tiers":  func(c *sandbox.Capabilities) { c.Tiers = []sandbox.Tier{sandbox.TierMicroVM} },
		"target": func(c *sandbox.Capabilities) { c.ProviderRevision = "another" },
	} {
		b := newBench(t)
		a, w := attach(b, change)
		_, err := b.selector(a).Select(b.ctx, w)
		var refused *sandboxruntime.Error
		if !errors.As(err, &refused) || refused.Kind != sandboxruntime.AdapterUnavailable || refused.Field != field || refused.Expected == "" || refused.Got == "" || !errors.As(err, new(*grade.Nothing)) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
