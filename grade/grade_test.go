package grade_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

var (
	grades      = []sandbox.EgressCertification{sandbox.EgressUnsupported, sandbox.EgressAdvisoryFilter, sandbox.EgressSecurityBoundary}
	authorities = []sandbox.Authority{sandbox.NotEnforced, sandbox.GuestObserved, sandbox.ProviderAttested, sandbox.RunnerEnforced}
	modes       = []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkAllowlist, sandbox.NetworkUnrestricted}
)

// envelope is one that says much.
func envelope() sandbox.Capabilities {
	return sandbox.Capabilities{
		Provider: "acme", ProviderRevision: "acme/7", MaterializationRevision: "acme-image/2", Placement: sandbox.PlacementHosted,
		Tiers:     []sandbox.Tier{sandbox.TierContainer, sandbox.TierMicroVM},
		Platforms: []sandbox.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}},
		ImageMode: sandbox.ImageProfile, PackageManagers: []sandbox.PackageManager{sandbox.ManagerApt, sandbox.ManagerPip}, NetworkModes: modes,
		RetentionModes: []sandbox.RetentionMode{sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR},
		Snapshots:      true, SnapshotCustody: sandbox.CustodyProvider, SnapshotClone: true, ActiveMountWrite: true,
		Enforcement: sandbox.EnforcedBy(sandbox.RunnerEnforced), EgressCertification: sandbox.EgressSecurityBoundary,
		ListDir: true, SymlinkStaging: true,
		MinimumResources: sandbox.Resources{CPUMillis: 1, MemoryBytes: 1, DiskBytes: 1, MaxProcesses: 1, MaxDurationSeconds: 1},
		MaximumResources: sandbox.Resources{CPUMillis: 64, MemoryBytes: 64, DiskBytes: 64, MaxProcesses: 64, MaxDurationSeconds: 64},
		MaxMounts:        64,
	}
}

// itself is the certificate for envelope.
var itself = grade.Certificate{Provider: "acme", ProviderRevision: "acme/7", MaterializationRevision: "acme-image/2"}

func allowlist(required sandbox.EgressCertification) sandbox.NetworkPolicy {
	return sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: required}
}

func TestGradingRule_IsATotalOrder(t *testing.T) {
	for i, have := range grades {
		for j, need := range grades[1:] {
			if grade.Meets(have, need) != (i >= j+1) {
				t.Errorf("%s meets %s: %v", have, need, i < j+1)
			}
		}
	}
}

// Also not for who has the best grade: a word that asks for nothing, and any
// that is no word, is met by nobody.
func TestGradingRule_UnsupportedIsNotARequirement(t *testing.T) {
	for _, required := range []sandbox.EgressCertification{sandbox.EgressUnsupported, "", "gold", "Advisory_filter", "security_boundary "} {
		for _, have := range append(grades, "", "gold") {
			if grade.Meets(have, required) {
				t.Errorf("%q meets %q", have, required)
			}
		}
	}
	for _, have := range []sandbox.EgressCertification{"", "gold", "SECURITY_BOUNDARY", "security_boundary\x00"} {
		if grade.Meets(have, sandbox.EgressAdvisoryFilter) {
			t.Errorf("%q is a grade", have)
		}
	}
	if err := allowlist(sandbox.EgressUnsupported).Validate(); !errors.As(err, new(*sandbox.Invalid)) {
		t.Error("a policy may require unsupported:", err)
	}
}

// "Require a boundary while asking for unrestricted egress" is refused by the
// form of the policy, before anything is compared.
func TestGradingRule_TheRequirementLivesOnTheAllowlistAlone(t *testing.T) {
	for _, mode := range modes {
		p := sandbox.NetworkPolicy{Mode: mode, RequiredEgressCertification: sandbox.EgressSecurityBoundary}
		if mode == sandbox.NetworkAllowlist {
			p.Destinations = []sandbox.Destination{}
		}
		if err := p.Validate(); (err == nil) != (mode == sandbox.NetworkAllowlist) {
			t.Error(mode, err)
		}
	}
}

func TestGradingRule_AnAllowlistThatNamesNothingRequiresAdvisoryFilter(t *testing.T) {
	for _, c := range []struct {
		policy sandbox.NetworkPolicy
		want   sandbox.EgressCertification
		ok     bool
	}{
		{allowlist(""), sandbox.EgressAdvisoryFilter, true},
		{allowlist(sandbox.EgressAdvisoryFilter), sandbox.EgressAdvisoryFilter, true},
		{allowlist(sandbox.EgressSecurityBoundary), sandbox.EgressSecurityBoundary, true},
		{allowlist(sandbox.EgressUnsupported), sandbox.EgressUnsupported, true}, // and Meets refuses it
		{sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, "", false},
		{sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}, "", false},
	} {
		if got, ok := grade.Required(c.policy); got != c.want || ok != c.ok {
			t.Errorf("%s: %q %v", grade.Policy(c.policy), got, ok)
		}
	}
}

// Selection compares every grade with every policy, and says both sides.
func TestGradingRule_SelectionComparesTheRequirementWithTheAdvertisedGrade(t *testing.T) {
	none, open := sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}
	short := func(wanted, offered string) *grade.Shortfall {
		return &grade.Shortfall{Wanted: wanted, Offered: offered}
	}
	for _, c := range []struct {
		advertised sandbox.EgressCertification
		modes      []sandbox.NetworkMode
		policy     sandbox.NetworkPolicy
		want       *grade.Shortfall
	}{
		// No allowlist profile can ever select who is unsupported.
		{sandbox.EgressUnsupported, modes, allowlist(""), short("allowlist", "unsupported")},
		{"", modes, allowlist(""), short("allowlist", "unsupported")},
		{sandbox.EgressUnsupported, modes, allowlist(sandbox.EgressAdvisoryFilter), short("allowlist requiring advisory_filter", "unsupported")},
		{sandbox.EgressAdvisoryFilter, modes, allowlist(""), nil},
		{sandbox.EgressAdvisoryFilter, modes, allowlist(sandbox.EgressAdvisoryFilter), nil},
		{sandbox.EgressAdvisoryFilter, modes, allowlist(sandbox.EgressSecurityBoundary), short("allowlist requiring security_boundary", "advisory_filter")},
		{sandbox.EgressSecurityBoundary, modes, allowlist(sandbox.EgressSecurityBoundary), nil},
		{sandbox.EgressSecurityBoundary, modes, allowlist(sandbox.EgressUnsupported), short("allowlist requiring unsupported", "security_boundary")},
		// none and unrestricted have no restriction for a grade to be honest about.
		{sandbox.EgressUnsupported, modes, none, nil},
		{sandbox.EgressUnsupported, modes, open, nil},
		{"", modes, open, nil},
		// The mode is asked first: a grade grants none.
		{sandbox.EgressSecurityBoundary, modes[:1], allowlist(""), short("allowlist", "network_modes none")},
		{sandbox.EgressSecurityBoundary, modes[:2], open, short("unrestricted", "network_modes none allowlist")},
		{sandbox.EgressSecurityBoundary, nil, none, short("none", "network_modes none")},
	} {
		e := envelope()
		e.EgressCertification, e.NetworkModes = c.advertised, c.modes
		if diff := cmp.Diff(c.want, grade.Network(e, c.policy)); diff != "" {
			t.Errorf("%q, %s: %s", c.advertised, grade.Policy(c.policy), diff)
		}
	}
}

// TestGradingRule_NoRetainedProfileChangesMeaning: the bytes of a profile that
// names no requirement hold none, before and after it was judged, and the
// digests over it are pinned.
func TestGradingRule_NoRetainedProfileChangesMeaning(t *testing.T) {
	const profile = `{"base_image":"r.test/b@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",` +
		`"network_policy":{"destinations":[{"host":"a.test","port":443}],"mode":"allowlist"},"packages":[],` +
		`"profile_id":"p","profile_version":1,"resource_limits":{"cpu_millis":1,"disk_bytes":1,"max_duration_seconds":1,"max_processes":1,"memory_bytes":1},` +
		`"retention_mode":"ephemeral_zdr","tier":"container"}`
	var p sandbox.Profile
	if err := canonical.Decode([]byte(profile), &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	before := p.ImageIdentity()
	if required, ok := grade.Required(p.NetworkPolicy); required != sandbox.EgressAdvisoryFilter || !ok {
		t.Fatal(required, ok)
	}
	e := envelope()
	grade.Network(e, p.NetworkPolicy)
	if _, _, err := grade.Admit(e, grade.Standing{}); err != nil {
		t.Fatal(err)
	}
	after, err := canonical.Encode(p)
	if err != nil || string(after) != profile {
		t.Errorf("%s %v", after, err)
	}
	if p.NetworkPolicy.RequiredEgressCertification != "" {
		t.Error("the default was written back")
	}
	if !bytes.Equal(before, p.ImageIdentity()) {
		t.Error("the image has another identity")
	}
	if got, want := canonical.Digest(after), "sha256:1d8f82bb3d35f6e5bd705e165912d32367e9720801fd4431c46f07a534c236b1"; got != want {
		t.Errorf("the profile's digest is %s", got)
	}
	// The same profile with the requirement spelt out is another profile.
	p.NetworkPolicy.RequiredEgressCertification = sandbox.EgressAdvisoryFilter
	if spelt, err := canonical.Encode(p); err != nil || bytes.Equal(spelt, after) {
		t.Error("to require the default and to require nothing have the same bytes", err)
	}
}
