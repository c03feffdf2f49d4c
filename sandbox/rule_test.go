package sandbox

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The values below are valid; each test breaks them in one place.

const goodImage = "registry.test/base@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const goodDigest Digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const (
	noon Timestamp = "2026-11-29T12:00:00.000Z"
	one  Timestamp = "2026-11-29T13:00:00.000Z"
)

func goodTarget() Target {
	return Target{Provider: "fake", ProviderRevision: "fake@1", MaterializationRevision: "image@1", Placement: PlacementTest}
}

func goodProfile() Profile {
	return Profile{
		ProfileID: "p", ProfileVersion: 1, Tier: TierContainer, BaseImage: goodImage,
		Packages:       []Package{{ManagerApt, "curl", ""}, {ManagerApt, "git", "1"}, {ManagerNpm, "a", ""}},
		NetworkPolicy:  NetworkPolicy{Mode: NetworkAllowlist, Destinations: []Destination{{"example.test", 443, ""}}, RequiredEgressCertification: EgressAdvisoryFilter},
		ResourceLimits: Resources{1, 2, 3, 4, 5}, RetentionMode: RetentionDurable,
	}
}

func goodRequest() ProvisionRequest {
	return ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "l", LeaseEpoch: 0, Target: goodTarget(),
		Profile: goodProfile(), Platform: Platform{"linux", "arm64"}, RootImage: goodImage,
		Mounts: []Mount{{"/a", AccessReadOnly, MountGit}, {"/a/b", AccessReadWrite, MountMemory}}, ExpiresAt: noon,
	}
}

func goodSnapshot() Snapshot {
	return Snapshot{
		SnapshotID: "s1", Provider: "fake", Placement: PlacementTest, SourceInstanceID: "i1", WorkspaceID: "w", SessionID: "s",
		ProfileID: "p", ProfileVersion: 1, ProfileDigest: goodDigest, CreatedAt: noon, ExpiresAt: one,
	}
}

func goodEnvelope() Capabilities {
	return Capabilities{
		Provider: "fake", ProviderRevision: "fake@1", MaterializationRevision: "image@1", Placement: PlacementHosted,
		Tiers: []Tier{TierContainer, TierMicroVM}, Platforms: []Platform{{"linux", "amd64"}, {"linux", "arm64"}},
		ImageMode: ImageFixed, FixedBaseImages: []string{goodImage}, PackageManagers: []PackageManager{ManagerApt, ManagerPip},
		NetworkModes: []NetworkMode{NetworkNone, NetworkUnrestricted}, RetentionModes: []RetentionMode{RetentionDurable, RetentionEphemeralZDR},
		Snapshots: true, SnapshotCustody: CustodyProvider, SnapshotClone: true, ActiveMountWrite: true,
		Enforcement: EnforcedBy(ProviderAttested), EgressCertification: EgressAdvisoryFilter, ListDir: true, SymlinkStaging: true,
		MinimumResources: Resources{1, 1, 1, 1, 1}, MaximumResources: Resources{9, 9, 9, 9, 9}, MaxMounts: 64,
	}
}

// broken is one way to break a value, and the field that must be named; an
// empty field means that the value is still valid.
type broken[T any] struct {
	field string
	how   func(*T)
}

// rules breaks a good value in each way and demands the field's name. Every
// field of T, by its JSON name, must have a case, unless free says that any
// value of it is valid.
func rules[T interface{ Validate() error }](t *testing.T, good func() T, free string, cases []broken[T]) {
	t.Helper()
	if err := good().Validate(); err != nil {
		t.Fatal("the good value:", err)
	}
	covered := strings.Fields(free)
	for _, c := range cases {
		v := good()
		c.how(&v)
		named(t, v.Validate(), c.field)
		covered = append(covered, strings.FieldsFunc(c.field, func(r rune) bool { return r == '.' || r == '[' })[:min(1, len(c.field))]...)
	}
	for i := range reflect.TypeFor[T]().NumField() {
		f := reflect.TypeFor[T]().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			name = strings.ToLower(f.Name)
		}
		if !slices.Contains(covered, name) {
			t.Errorf("no case breaks %s", name)
		}
	}
}

// named demands an *Invalid about field, or no error for "".
func named(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("refused a valid value: %v", err)
		}
		return
	}
	inv, ok := errors.AsType[*Invalid](err)
	if !ok || inv.Field != field || inv.Expected == "" {
		t.Errorf("got %v, want a rule about %s", err, field)
	}
}

// bound checks a rule at limit−1, limit and limit+1.
func bound(t *testing.T, field string, limit int, check func(n int) error) {
	t.Helper()
	named(t, check(limit-1), "")
	named(t, check(limit), "")
	named(t, check(limit+1), field)
}

// identities is how a field of identity form may be broken.
func identities[T any](field string, at func(*T) *string) []broken[T] {
	var all []broken[T]
	for _, bad := range []string{"", " ", "a b", "a\n", "é", `a"`, `a\`, "a'", "\x7f", strings.Repeat("a", 256)} {
		all = append(all, broken[T]{field, func(v *T) { *at(v) = bad }})
	}
	return append(all, broken[T]{"", func(v *T) { *at(v) = strings.Repeat("~", 255) }})
}
