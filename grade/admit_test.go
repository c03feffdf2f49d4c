package grade_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Whoever it is, and however it was reached: the grade is earned by a receipt
// for exactly one revision, and lost with any other.
func TestGradingRule_SecurityBoundaryIsEarnedByAReceiptForTheExactRevision(t *testing.T) {
	other := func(change func(*grade.Certificate)) []grade.Certificate {
		c := itself
		change(&c)
		return []grade.Certificate{c}
	}
	for _, c := range []struct {
		name         string
		certificates []grade.Certificate
		want         sandbox.EgressCertification
	}{
		{"nobody certified anything", nil, sandbox.EgressAdvisoryFilter},
		{"itself", []grade.Certificate{itself}, sandbox.EgressSecurityBoundary},
		{"itself among others", []grade.Certificate{{}, {Provider: "acme"}, itself}, sandbox.EgressSecurityBoundary},
		{"another revision", other(func(c *grade.Certificate) { c.ProviderRevision = "acme/8" }), sandbox.EgressAdvisoryFilter},
		{"the same name, in a worker", other(func(c *grade.Certificate) { c.ProviderRevision = "acme-worker/7" }), sandbox.EgressAdvisoryFilter},
		{"another materialization", other(func(c *grade.Certificate) { c.MaterializationRevision = "acme-image/3" }), sandbox.EgressAdvisoryFilter},
		{"another provider", other(func(c *grade.Certificate) { c.Provider = "acme2" }), sandbox.EgressAdvisoryFilter},
		{"another case", other(func(c *grade.Certificate) { c.ProviderRevision = "ACME/7" }), sandbox.EgressAdvisoryFilter},
		{"a prefix", other(func(c *grade.Certificate) { c.ProviderRevision = "acme" }), sandbox.EgressAdvisoryFilter},
		// Two halves are no whole: nothing is averaged.
		{"two halves", []grade.Certificate{{Provider: "acme", ProviderRevision: "acme/7"}, {Provider: "acme", MaterializationRevision: "acme-image/2"}}, sandbox.EgressAdvisoryFilter},
	} {
		for _, remote := range []bool{false, true} {
			got, lines, err := grade.Admit(envelope(), grade.Standing{Remote: remote, Certificates: c.certificates})
			if err != nil || got.EgressCertification != c.want {
				t.Errorf("%s, remote %v: %s, %v", c.name, remote, got.EgressCertification, err)
			}
			line := grade.Narrowing{Field: "egress_certification", Claimed: "security_boundary", Ceiling: "advisory_filter", Result: "advisory_filter", Reason: grade.ReasonNoReceipt}
			if recorded := slices.Contains(lines, line); recorded != (c.want == sandbox.EgressAdvisoryFilter) {
				t.Errorf("%s, remote %v: recorded %v: %v", c.name, remote, recorded, lines)
			}
		}
	}
}

// A receipt lifts nobody: who claims less has less.
func TestGradingRule_NothingIsUpgraded(t *testing.T) {
	for _, claimed := range append(grades[:2:2], "") {
		e := envelope()
		e.EgressCertification = claimed
		got, lines, err := grade.Admit(e, grade.Standing{Certificates: []grade.Certificate{itself}})
		if err != nil || len(lines) != 0 || got.EgressCertification != e.WithDefaults().EgressCertification {
			t.Errorf("%q became %q: %v %v", claimed, got.EgressCertification, lines, err)
		}
	}
}

// The grade of every claim is the same whatever is said of the network policy's
// authority, and whatever that authority is, it says nothing of the grade.
func TestGradingRule_IsIndependentOfTheNetworkPolicysAuthority(t *testing.T) {
	for _, claimed := range append(grades, "") {
		for _, standing := range []grade.Standing{{}, {Remote: true}, {Certificates: []grade.Certificate{itself}}} {
			var first sandbox.EgressCertification
			for i, a := range append(authorities, "", "gold") {
				e := envelope()
				e.EgressCertification = claimed
				e.Enforcement.NetworkPolicy = a
				got, _, err := grade.Admit(e, standing)
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					first = got.EgressCertification
				}
				if got.EgressCertification != first {
					t.Errorf("%q with %q is %q, with %q it is %q", claimed, a, got.EgressCertification, authorities[0], first)
				}
				for _, p := range []sandbox.NetworkPolicy{allowlist(""), allowlist(sandbox.EgressSecurityBoundary)} {
					plain := got
					plain.Enforcement.NetworkPolicy = sandbox.NotEnforced
					if !reflect.DeepEqual(grade.Network(got, p), grade.Network(plain, p)) {
						t.Errorf("%q decides whether %s is served", a, grade.Policy(p))
					}
				}
			}
		}
	}
}

func TestEnforcementStatement_AuthoritiesAreOrdered(t *testing.T) {
	order := append([]sandbox.Authority{"gold"}, authorities...)
	for i, a := range order {
		for j, b := range order {
			if got := grade.Weaker(a, b); got != order[min(i, j)] {
				t.Errorf("of %s and %s the weaker is %s", a, b, got)
			}
			// Whatever counts as enforcement stands above whatever does not.
			if a.Enforces() && !b.Enforces() && i < j {
				t.Errorf("%s is below %s", a, b)
			}
		}
	}
	for _, axis := range sandbox.Axes() {
		for _, a := range authorities {
			if got := grade.Cap(sandbox.EnforcedBy(a), sandbox.ProviderAttested).On(axis); got == sandbox.RunnerEnforced || a != sandbox.RunnerEnforced && got != a {
				t.Errorf("%s: %s became %s", axis, a, got)
			}
		}
	}
}

// Each axis alone, so that none is forgotten; what is at or below the cap stays.
func TestEnforcementStatement_WhatComesOverAWireIsAtMostProviderAttested(t *testing.T) {
	for _, axis := range sandbox.Axes() {
		for _, a := range authorities {
			e := envelope()
			e.EgressCertification = sandbox.EgressUnsupported
			e.Enforcement = sandbox.EnforcedBy(sandbox.NotEnforced).With(axis, a)
			got, lines, err := grade.Admit(e, grade.Standing{Remote: true})
			var want []grade.Narrowing
			admitted := a
			if a == sandbox.RunnerEnforced {
				admitted = sandbox.ProviderAttested
				want = []grade.Narrowing{{Field: "enforcement." + string(axis), Claimed: "runner_enforced", Ceiling: "provider_attested", Result: "provider_attested", Reason: grade.ReasonWire}}
			}
			if diff := cmp.Diff(want, lines); err != nil || diff != "" || got.Enforcement != e.Enforcement.With(axis, admitted) {
				t.Errorf("%s %s: %+v %v %s", axis, a, got.Enforcement, err, diff)
			}
			local, lines, err := grade.Admit(e, grade.Standing{})
			if err != nil || len(lines) != 0 || local.Enforcement != e.Enforcement {
				t.Errorf("%s %s, compiled in: %v %v", axis, a, lines, err)
			}
		}
	}
}

// A claim that breaks its own form is not repaired, and nothing panics.
func TestAdmit_RepairsNothing(t *testing.T) {
	e := sandbox.Capabilities{EgressCertification: "gold", Enforcement: sandbox.EnforcedBy("gold")}
	got, lines, err := grade.Admit(e, grade.Standing{Remote: true})
	if err != nil || len(lines) != 0 || got.EgressCertification != "gold" || got.Enforcement != e.Enforcement || got.Validate() == nil {
		t.Errorf("%+v %v %v", got, lines, err)
	}
}

// Each field of the ceiling narrows, by one line, and nothing else with it.
func TestCeiling_EachFieldNarrows(t *testing.T) {
	fixed := []string{"r.test/a@sha256:" + strings.Repeat("a", 64), "r.test/b@sha256:" + strings.Repeat("b", 64)}
	for _, c := range []struct {
		field  string
		change func(ceiling, want *sandbox.Capabilities)
		line   [3]string
	}{
		{"tiers", func(c, w *sandbox.Capabilities) { c.Tiers = c.Tiers[1:]; w.Tiers = c.Tiers }, [3]string{"container microvm", "microvm", "microvm"}},
		{"platforms", func(c, w *sandbox.Capabilities) { c.Platforms = c.Platforms[:1]; w.Platforms = c.Platforms }, [3]string{"linux/amd64 linux/arm64", "linux/amd64", "linux/amd64"}},
		{"image_mode", func(c, w *sandbox.Capabilities) {
			c.ImageMode, c.FixedBaseImages = sandbox.ImageFixed, fixed
			w.ImageMode, w.FixedBaseImages = sandbox.ImageFixed, fixed
		}, [3]string{"profile", "fixed", "fixed"}},
		{"package_managers", func(c, w *sandbox.Capabilities) {
			c.PackageManagers = []sandbox.PackageManager{sandbox.ManagerNpm}
			w.PackageManagers = []sandbox.PackageManager{}
		}, [3]string{"apt pip", "npm", "none"}},
		{"network_modes", func(c, w *sandbox.Capabilities) { c.NetworkModes = modes[:1]; w.NetworkModes = modes[:1] }, [3]string{"none allowlist unrestricted", "none", "none"}},
		{"retention_modes", func(c, w *sandbox.Capabilities) {
			c.RetentionModes = c.RetentionModes[1:]
			w.RetentionModes = c.RetentionModes
		}, [3]string{"durable ephemeral_zdr", "ephemeral_zdr", "ephemeral_zdr"}},
		{"snapshot_custody", func(c, w *sandbox.Capabilities) {
			c.SnapshotCustody, w.SnapshotCustody = sandbox.CustodyRunner, sandbox.CustodyRunner
		}, [3]string{"provider", "runner", "runner"}},
		{"snapshot_clone", func(c, w *sandbox.Capabilities) { c.SnapshotClone, w.SnapshotClone = false, false }, [3]string{"true", "false", "false"}},
		{"active_mount_write", func(c, w *sandbox.Capabilities) { c.ActiveMountWrite, w.ActiveMountWrite = false, false }, [3]string{"true", "false", "false"}},
		{"enforcement.non_root", func(c, w *sandbox.Capabilities) {
			c.Enforcement.NonRoot, w.Enforcement.NonRoot = sandbox.GuestObserved, sandbox.GuestObserved
		}, [3]string{"runner_enforced", "guest_observed", "guest_observed"}},
		{"egress_certification", func(c, w *sandbox.Capabilities) {
			c.EgressCertification, w.EgressCertification = "", sandbox.EgressUnsupported
		}, [3]string{"security_boundary", "unsupported", "unsupported"}},
		{"list_dir", func(c, w *sandbox.Capabilities) { c.ListDir, w.ListDir = false, false }, [3]string{"true", "false", "false"}},
		{"symlink_staging", func(c, w *sandbox.Capabilities) { c.SymlinkStaging, w.SymlinkStaging = false, false }, [3]string{"true", "false", "false"}},
		{"minimum_resources.memory_bytes", func(c, w *sandbox.Capabilities) {
			c.MinimumResources.MemoryBytes, w.MinimumResources.MemoryBytes = 9, 9
		}, [3]string{"1", "9", "9"}},
		{"maximum_resources.cpu_millis", func(c, w *sandbox.Capabilities) { c.MaximumResources.CPUMillis, w.MaximumResources.CPUMillis = 9, 9 }, [3]string{"64", "9", "9"}},
		{"max_mounts", func(c, w *sandbox.Capabilities) { c.MaxMounts, w.MaxMounts = 0, 0 }, [3]string{"64", "0", "0"}},
	} {
		ceiling, want := envelope(), envelope()
		c.change(&ceiling, &want)
		got, lines, err := grade.Admit(envelope(), grade.Standing{Certificates: []grade.Certificate{itself}, Ceiling: &ceiling})
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		line := []grade.Narrowing{{Field: c.field, Claimed: c.line[0], Ceiling: c.line[1], Result: c.line[2], Reason: grade.ReasonCeiling}}
		if diff := cmp.Diff(want, got) + cmp.Diff(line, lines); diff != "" {
			t.Errorf("%s: %s", c.field, diff)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: what is left is no envelope: %v", c.field, err)
		}
	}
}

// Where nothing is left, or the ceiling is of something else, there is nobody to
// select.
func TestCeiling_NothingIsLeft(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*sandbox.Capabilities)
	}{
		{"target", func(c *sandbox.Capabilities) { c.ProviderRevision = "acme/8" }},
		{"target", func(c *sandbox.Capabilities) { c.Placement = sandbox.PlacementLocal }},
		{"tiers", func(c *sandbox.Capabilities) { c.Tiers = nil }},
		{"platforms", func(c *sandbox.Capabilities) { c.Platforms = []sandbox.Platform{{OS: "plan9", Architecture: "mips"}} }},
		{"network_modes", func(c *sandbox.Capabilities) { c.NetworkModes = nil }},
		{"retention_modes", func(c *sandbox.Capabilities) { c.RetentionModes = nil }},
		{"maximum_resources.disk_bytes", func(c *sandbox.Capabilities) { c.MinimumResources.DiskBytes, c.MaximumResources.DiskBytes = 65, 70 }},
	} {
		ceiling := envelope()
		c.change(&ceiling)
		got, lines, err := grade.Admit(envelope(), grade.Standing{Ceiling: &ceiling})
		var nothing *grade.Nothing
		if !errors.As(err, &nothing) || nothing.Field != c.field || !strings.Contains(err.Error(), nothing.Claimed) || !strings.Contains(err.Error(), nothing.Ceiling) {
			t.Errorf("%s: %v", c.field, err)
		}
		if len(lines) > 0 || !reflect.ValueOf(got).IsZero() {
			t.Errorf("%s: refused, and something is admitted", c.field)
		}
	}
	fixed := envelope()
	fixed.ImageMode, fixed.FixedBaseImages = sandbox.ImageFixed, []string{"r.test/a@sha256:" + strings.Repeat("a", 64)}
	ceiling := fixed
	ceiling.FixedBaseImages = []string{"r.test/b@sha256:" + strings.Repeat("b", 64)}
	var nothing *grade.Nothing
	if _, _, err := grade.Admit(fixed, grade.Standing{Ceiling: &ceiling}); !errors.As(err, &nothing) || nothing.Field != "fixed_base_images" {
		t.Error(err)
	}
}

// random is a valid envelope of one target.
func random(r *rand.Rand) sandbox.Capabilities {
	c := envelope()
	c.Tiers, c.Platforms, c.PackageManagers = some(r, c.Tiers, 1), some(r, c.Platforms, 1), some(r, c.PackageManagers, 0)
	c.NetworkModes, c.RetentionModes = some(r, modes, 1), some(r, c.RetentionModes, 1)
	images := []string{"r.test/a@sha256:" + strings.Repeat("a", 64), "r.test/b@sha256:" + strings.Repeat("b", 64)}
	if r.IntN(2) == 0 {
		c.ImageMode, c.FixedBaseImages = sandbox.ImageFixed, some(r, images, 1)
	}
	c.Snapshots = r.IntN(2) == 0 || slices.Contains(c.RetentionModes, sandbox.RetentionDurable)
	c.SnapshotClone = c.Snapshots && r.IntN(2) == 0
	if !c.Snapshots || r.IntN(2) == 0 {
		c.SnapshotCustody = []sandbox.Custody{sandbox.CustodyRunner, ""}[r.IntN(2)]
	}
	c.ActiveMountWrite, c.ListDir, c.SymlinkStaging = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	for _, axis := range sandbox.Axes() {
		c.Enforcement = c.Enforcement.With(axis, authorities[r.IntN(4)])
	}
	c.EgressCertification = append(grades, "")[r.IntN(4)]
	c.MinimumResources.DiskBytes, c.MaximumResources.DiskBytes = 1+r.Int64N(20), 20+r.Int64N(20)
	c.MaxMounts = r.Int64N(64)
	return c
}

func some[T any](r *rand.Rand, from []T, least int) []T {
	shuffled := slices.Clone(from)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled[:least+r.IntN(len(from)-least+1)]
}

// above says in which field a says more than b.
func above(a, b sandbox.Capabilities) string {
	a, b = a.WithDefaults(), b.WithDefaults()
	for _, axis := range sandbox.Axes() {
		if grade.Weaker(a.Enforcement.On(axis), b.Enforcement.On(axis)) != a.Enforcement.On(axis) {
			return string(axis)
		}
	}
	switch {
	case !subset(a.Tiers, b.Tiers):
		return "tiers"
	case !subset(a.Platforms, b.Platforms):
		return "platforms"
	case !subset(a.PackageManagers, b.PackageManagers):
		return "package_managers"
	case !subset(a.NetworkModes, b.NetworkModes):
		return "network_modes"
	case !subset(a.RetentionModes, b.RetentionModes):
		return "retention_modes"
	case b.ImageMode == sandbox.ImageFixed && (a.ImageMode != b.ImageMode || !subset(a.FixedBaseImages, b.FixedBaseImages)):
		return "image_mode"
	case slices.Index(grades, a.EgressCertification) > slices.Index(grades, b.EgressCertification):
		return "egress_certification"
	case a.Snapshots && !b.Snapshots || a.SnapshotClone && !b.SnapshotClone || a.SnapshotCustody == sandbox.CustodyProvider && b.SnapshotCustody != a.SnapshotCustody:
		return "snapshots"
	case a.ListDir && !b.ListDir || a.SymlinkStaging && !b.SymlinkStaging || a.ActiveMountWrite && !b.ActiveMountWrite:
		return "a flag"
	case a.MaxMounts > b.MaxMounts || a.MaximumResources.DiskBytes > b.MaximumResources.DiskBytes || a.MinimumResources.DiskBytes < b.MinimumResources.DiskBytes:
		return "a number"
	}
	return ""
}

func subset[T comparable](a, b []T) bool {
	return !slices.ContainsFunc(a, func(v T) bool { return !slices.Contains(b, v) })
}

// TestCeiling_OnlyNarrows over many pairs of envelopes: the result says no more
// than either, is a valid envelope, is a fixed point, has a line exactly where it
// differs from the claim, and nothing that was given has changed.
func TestCeiling_OnlyNarrows(t *testing.T) {
	left := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		claim, ceiling := random(r), random(r)
		for _, c := range []sandbox.Capabilities{claim, ceiling} {
			if err := c.Validate(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		standing := grade.Standing{Remote: seed%2 == 0, Ceiling: &ceiling}
		if seed%3 == 0 {
			standing.Certificates = []grade.Certificate{itself}
		}
		mine, theirs := cloned(claim), cloned(ceiling)
		got, lines, err := grade.Admit(claim, standing)
		if !reflect.DeepEqual(mine, claim) || !reflect.DeepEqual(theirs, ceiling) {
			t.Fatalf("seed %d: what was given was changed", seed)
		}
		if err != nil {
			continue
		}
		left++
		if err := got.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if field := above(got, claim) + above(got, ceiling); field != "" {
			t.Fatalf("seed %d: more than was claimed or admitted: %s", seed, field)
		}
		if got.EgressCertification == sandbox.EgressSecurityBoundary && standing.Certificates == nil {
			t.Fatalf("seed %d: a boundary of nobody", seed)
		}
		if again, lines, err := grade.Admit(got, standing); err != nil || len(lines) > 0 || !reflect.DeepEqual(again, got) {
			t.Fatalf("seed %d: narrowed once more: %v %v", seed, lines, err)
		}
		if differs := !reflect.DeepEqual(got, claim.WithDefaults()); differs != (len(lines) > 0) {
			t.Fatalf("seed %d: differs %v, lines %v", seed, differs, lines)
		}
		for _, n := range lines {
			if n.Claimed == n.Result || n.Field == "" || n.Reason == "" {
				t.Fatalf("seed %d: %+v", seed, n)
			}
		}
	}
	if left < 300 {
		t.Errorf("only %d of the pairs had something in common", left)
	}
}

func cloned(c sandbox.Capabilities) sandbox.Capabilities {
	c.Tiers, c.Platforms, c.FixedBaseImages = slices.Clone(c.Tiers), slices.Clone(c.Platforms), slices.Clone(c.FixedBaseImages)
	c.PackageManagers, c.NetworkModes, c.RetentionModes = slices.Clone(c.PackageManagers), slices.Clone(c.NetworkModes), slices.Clone(c.RetentionModes)
	return c
}
