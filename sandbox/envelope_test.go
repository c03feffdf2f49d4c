package sandbox

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestCapabilityEnvelope breaks every field, and every cross-field rule.
func TestCapabilityEnvelope(t *testing.T) {
	bare := func(c *Capabilities) { // the day-one tier
		c.Snapshots, c.SnapshotClone, c.SnapshotCustody = false, false, ""
		c.RetentionModes = []RetentionMode{RetentionEphemeralZDR}
	}
	cases := []broken[Capabilities]{
		{"provider", func(c *Capabilities) { c.Provider = "A" }},
		{"placement", func(c *Capabilities) { c.Placement = "" }},
		{"tiers", func(c *Capabilities) { c.Tiers = nil }},
		{"tiers[1]", func(c *Capabilities) { c.Tiers[1] = TierContainer }},
		{"tiers[0]", func(c *Capabilities) { c.Tiers[0] = "host-process" }},
		{"platforms", func(c *Capabilities) { c.Platforms = nil }},
		{"platforms[1]", func(c *Capabilities) { c.Platforms[1] = c.Platforms[0] }},
		{"platforms[1].os", func(c *Capabilities) { c.Platforms[1].OS = "plan9" }},
		{"image_mode", func(c *Capabilities) { c.ImageMode = "" }},
		{"fixed_base_images", func(c *Capabilities) { c.ImageMode = ImageProfile }},
		{"fixed_base_images", func(c *Capabilities) { c.FixedBaseImages = nil }},
		{"fixed_base_images[0]", func(c *Capabilities) { c.FixedBaseImages = []string{"a:1"} }},
		{"fixed_base_images[1]", func(c *Capabilities) { c.FixedBaseImages = []string{goodImage, goodImage} }},
		{"", func(c *Capabilities) { c.ImageMode, c.FixedBaseImages = ImageProfile, nil }},
		{"package_managers[0]", func(c *Capabilities) { c.PackageManagers[0] = "brew" }},
		{"package_managers[1]", func(c *Capabilities) { c.PackageManagers[1] = ManagerApt }},
		{"", func(c *Capabilities) { c.PackageManagers = nil }},
		{"network_modes", func(c *Capabilities) { c.NetworkModes = nil }},
		{"network_modes[1]", func(c *Capabilities) { c.NetworkModes[1] = NetworkNone }},
		{"network_modes[0]", func(c *Capabilities) { c.NetworkModes[0] = "some" }},
		{"retention_modes", func(c *Capabilities) { c.RetentionModes = nil }},
		{"retention_modes[1]", func(c *Capabilities) { c.RetentionModes[1] = RetentionDurable }},
		{"retention_modes", func(c *Capabilities) { bare(c); c.RetentionModes = []RetentionMode{RetentionDurable} }},
		{"retention_modes", func(c *Capabilities) { c.Snapshots = false }},
		{"snapshot_custody", func(c *Capabilities) { c.SnapshotCustody = "cloud" }},
		{"snapshot_custody", func(c *Capabilities) { bare(c); c.SnapshotCustody = CustodyProvider }},
		{"snapshot_clone", func(c *Capabilities) { bare(c); c.SnapshotClone = true }},
		{"", bare},
		{"enforcement.sandbox_isolation", func(c *Capabilities) { c.Enforcement.SandboxIsolation = "" }},
		{"egress_certification", func(c *Capabilities) { c.EgressCertification = "gold" }},
		{"", func(c *Capabilities) { c.EgressCertification, c.SnapshotCustody, c.ListDir = "", "", false }},
		{"minimum_resources.cpu_millis", func(c *Capabilities) { c.MinimumResources.CPUMillis = 0 }},
		{"maximum_resources.disk_bytes", func(c *Capabilities) { c.MaximumResources.DiskBytes = -1 }},
		{"minimum_resources.max_processes", func(c *Capabilities) { c.MinimumResources.MaxProcesses = 10 }},
		{"max_mounts", func(c *Capabilities) { c.MaxMounts = -1 }},
		{"", func(c *Capabilities) { c.MaxMounts = 0 }},
		{"", func(c *Capabilities) { c.MaxMounts = MaxInteger }}, // any non-negative integer
	}
	cases = append(cases, identities("provider_revision", func(c *Capabilities) *string { return &c.ProviderRevision })...)
	cases = append(cases, identities("materialization_revision", func(c *Capabilities) *string { return &c.MaterializationRevision })...)
	rules(t, goodEnvelope, "snapshots active_mount_write list_dir symlink_staging", cases)
}

// TestCapabilityEnvelope_SilenceIsTheWeakestValue.
func TestCapabilityEnvelope_SilenceIsTheWeakestValue(t *testing.T) {
	c := Capabilities{}.WithDefaults()
	if c.SnapshotCustody != CustodyRunner || c.EgressCertification != EgressUnsupported || c.ListDir || c.SnapshotClone || c.ActiveMountWrite || c.SymlinkStaging {
		t.Errorf("%+v", c)
	}
	full := goodEnvelope()
	if got := full.WithDefaults(); !reflect.DeepEqual(got, full) {
		t.Error("defaults replaced a claim")
	}
	if full.Target() != (Target{"fake", "fake@1", "image@1", PlacementHosted}) {
		t.Error(full.Target())
	}
}

// TestEnforcementStatement: nine axes, four authorities, two of which enforce.
func TestEnforcementStatement(t *testing.T) {
	want := "sandbox_isolation root_read_only non_root no_new_privileges capabilities_dropped mounts_sealed disk_limit network_policy resource_limits"
	var names []string
	for i, axis := range Axes() {
		names = append(names, string(axis))
		e := EnforcedBy(NotEnforced).With(axis, GuestObserved)
		if e.On(axis) != GuestObserved || reflect.ValueOf(e).Field(i).String() != string(GuestObserved) || reflect.TypeOf(e).Field(i).Tag.Get("json") != string(axis) {
			t.Error(axis, e)
		}
		named(t, e.With(axis, "trusted").Validate(), "enforcement."+string(axis))
		named(t, e.With(axis, "").Validate(), "enforcement."+string(axis))
		named(t, e.Validate(), "")
	}
	if got := strings.Join(names, " "); got != want {
		t.Error(got)
	}
	if e := EnforcedBy(RunnerEnforced); e.With("tenth", NotEnforced) != e || e.On("tenth") != "" {
		t.Error("a tenth axis")
	}
	for a, enforces := range map[Authority]bool{RunnerEnforced: true, ProviderAttested: true, GuestObserved: false, NotEnforced: false, "": false} {
		if a.Enforces() != enforces {
			t.Error(a)
		}
	}
}

// TestClosedSets: the spelling is the contract's, and the zero value and any
// other are invalid.
func TestClosedSets(t *testing.T) {
	check := func(words string, valid func(string) bool) {
		t.Helper()
		for _, w := range strings.Fields(words) {
			if !valid(w) || valid(strings.ToUpper(w)+"_") || valid(w+" ") {
				t.Error(w)
			}
		}
		if valid("") || valid("x") {
			t.Error("took an empty or unknown value beside", words)
		}
	}
	check("test local hosted byoc", func(s string) bool { return Placement(s).Valid() })
	check("container microvm", func(s string) bool { return Tier(s).Valid() })
	check("profile fixed", func(s string) bool { return ImageMode(s).Valid() })
	check("apt cargo gem go npm pip", func(s string) bool { return PackageManager(s).Valid() })
	check("none allowlist unrestricted", func(s string) bool { return NetworkMode(s).Valid() })
	check("durable ephemeral_zdr", func(s string) bool { return RetentionMode(s).Valid() })
	check("runner provider", func(s string) bool { return Custody(s).Valid() })
	check("runner_enforced provider_attested guest_observed not_enforced", func(s string) bool { return Authority(s).Valid() })
	check("unsupported advisory_filter security_boundary", func(s string) bool { return EgressCertification(s).Valid() })
	check("read_only read_write", func(s string) bool { return Access(s).Valid() })
	check("git project memory", func(s string) bool { return MountKind(s).Valid() })
	check("provisioning active", func(s string) bool { return State(s).Valid() })
	check("released destroyed", func(s string) bool { return Disposition(s).Valid() })
	check("regular symlink submodule device socket fifo other", func(s string) bool { return LeafType(s).Valid() })
	check("outside_root not_found not_regular too_large", func(s string) bool { return Refusal(s).Valid() })
	check("SIGINT SIGTERM SIGKILL", func(s string) bool { return ControlSignal(s).Valid() })
	check("open dispatched committed rolled_back", func(s string) bool { return JournalState(s).Valid() })
	check("tier platform base_image packages network_policy retention snapshots snapshot_clone resources mounts physically_contained_file_read active_mount_write",
		func(s string) bool { return Requirement(s).Valid() })
	if n := len(Requirements()); n != 12 {
		t.Errorf("%d requirements", n)
	}
	if n := len(Kinds()); n != 8 {
		t.Errorf("%d kinds", n)
	}
	ops := Operations()
	if len(ops) != 18 || len(slices.Compact(slices.Sorted(slices.Values(ops)))) != 18 {
		t.Error("the table has eighteen members:", ops)
	}
}

// TestIdentity_ProvisionRequest breaks every field of the request.
func TestIdentity_ProvisionRequest(t *testing.T) {
	cases := []broken[ProvisionRequest]{
		{"lease_epoch", func(r *ProvisionRequest) { r.LeaseEpoch = -1 }},
		{"lease_epoch", func(r *ProvisionRequest) { r.LeaseEpoch = MaxInteger + 1 }},
		{"", func(r *ProvisionRequest) { r.LeaseEpoch = MaxInteger }},
		{"target.placement", func(r *ProvisionRequest) { r.Target.Placement = "" }},
		{"profile.tier", func(r *ProvisionRequest) { r.Profile.Tier = "" }},
		{"platform.os", func(r *ProvisionRequest) { r.Platform.OS = "" }},
		{"root_image", func(r *ProvisionRequest) { r.RootImage = "a" }},
		{"mounts[1].kind", func(r *ProvisionRequest) { r.Mounts[1].Kind = "" }},
		{"", func(r *ProvisionRequest) { r.Mounts = nil }},
		{"expires_at", func(r *ProvisionRequest) { r.ExpiresAt = "2026-11-29T12:00:00Z" }},
	}
	for field, at := range map[string]func(*ProvisionRequest) *string{
		"workspace_id": func(r *ProvisionRequest) *string { return &r.WorkspaceID }, "session_id": func(r *ProvisionRequest) *string { return &r.SessionID },
		"run_id": func(r *ProvisionRequest) *string { return &r.RunID }, "attempt_id": func(r *ProvisionRequest) *string { return &r.AttemptID },
		"lease_id": func(r *ProvisionRequest) *string { return &r.LeaseID },
	} {
		cases = append(cases, identities(field, at)...)
	}
	rules(t, goodRequest, "", cases)
}

// TestIdentity_HonestAnswers: what InstanceOf and EvidenceOf fill in, and that
// they leave no field empty.
func TestIdentity_HonestAnswers(t *testing.T) {
	r := goodRequest()
	r.LeaseEpoch = 1
	i := InstanceOf(r, "i1", StateActive, goodDigest)
	if i.Provider != r.Target.Provider || i.OutputPath != "/mnt/session/outputs" || i.ExpiresAt != r.ExpiresAt ||
		i.Materialization != (Materialization{goodDigest, goodImage, goodDigest, "fake@1", "image@1"}) {
		t.Errorf("%+v", i)
	}
	e := EvidenceOf(i, "pr_1", EnforcedBy(NotEnforced), noon, one)
	for _, v := range []any{i, i.Materialization, e} {
		for f := range reflect.TypeOf(v).NumField() {
			if reflect.ValueOf(v).Field(f).IsZero() {
				t.Errorf("%T.%s is empty", v, reflect.TypeOf(v).Field(f).Name)
			}
		}
	}
	named(t, CheckInstanceID("instance_id", "i 1"), "instance_id")
	named(t, CheckSnapshotID("snapshot_id", ""), "snapshot_id")
	named(t, CheckInstanceID("instance_id", "i1"), "")
}

// TestErrors: one line, matching by the fields that are set, no secret.
func TestErrors(t *testing.T) {
	cause := fmt.Errorf("disk")
	e := FailedAt(OpReadFile, "/a\n", ReasonNotFound, cause)
	if want := `read_file: SandboxOperationFailed reason="not_found" path="/a\n": disk`; e.Error() != want {
		t.Error(e)
	}
	if hostile := (&Error{Kind: "K\x1b[2J", Operation: "o\nexecute: SandboxFake"}).Error(); hostile != `"o\nexecute: SandboxFake": "K\x1b[2J"` {
		t.Errorf("%q", hostile)
	}
	if e.Unwrap() != cause {
		t.Error("the cause")
	}
	all := []*Error{
		Unavailable(OpProvision, RequireTier, "a", "b"), Conflict(OpActivate, "a", "b"), Failed(OpExecute, "r", nil), e,
		TooLarge(OpReadFile, "/a", 1), OverLimit(StreamStderr, 2), NoInstance(OpExecute, "i"), NoSnapshot(OpResume, "s"), Forbidden(OpSnapshot, "i"),
	}
	for i, a := range all {
		if strings.ContainsAny(a.Error(), "\n") || !slices.Contains(Kinds(), a.Kind) {
			t.Errorf("%q", a)
		}
		for j, b := range all {
			if a.Is(b) != (i == j) {
				t.Errorf("%v matches %v", a, b)
			}
		}
		if !a.Is(&Error{Kind: a.Kind}) || !a.Is(&Error{}) || a.Is(cause) {
			t.Error("matching", a)
		}
	}
	if OverLimit(StreamStdout, 5).Is(OverLimit(StreamStdout, 6)) {
		t.Error("the limit is ignored")
	}
	if inv := invalid("f", "e", strings.Repeat("x", 1000)); len(inv.Error()) > 300 {
		t.Error("a long value is not cut")
	}
}
