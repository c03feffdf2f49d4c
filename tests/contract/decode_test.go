// Package contract holds the contract's types and the strict codec together:
// what a stranger sends must decode to exactly one value or be refused.
package contract

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

const (
	digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	image  = "registry.test/base@" + digest
	early  = sandbox.Timestamp("2026-11-29T10:00:00.000Z")
	late   = sandbox.Timestamp("2026-11-30T10:00:00.000Z")
)

var (
	resources = sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 1 << 30, MaxProcesses: 100, MaxDurationSeconds: 60}
	envelope  = sandbox.Capabilities{
		Provider: "acme", ProviderRevision: "acme/1", MaterializationRevision: "m/1", Placement: sandbox.PlacementHosted,
		Tiers: []sandbox.Tier{sandbox.TierContainer}, Platforms: []sandbox.Platform{{OS: "linux", Architecture: "amd64"}},
		ImageMode: sandbox.ImageProfile, FixedBaseImages: []string{}, PackageManagers: []sandbox.PackageManager{sandbox.ManagerApt},
		NetworkModes: []sandbox.NetworkMode{sandbox.NetworkNone}, RetentionModes: []sandbox.RetentionMode{sandbox.RetentionDurable},
		Snapshots: true, SnapshotCustody: sandbox.CustodyProvider, SnapshotClone: true, ActiveMountWrite: true,
		Enforcement: sandbox.EnforcedBy(sandbox.ProviderAttested), EgressCertification: sandbox.EgressAdvisoryFilter,
		ListDir: true, SymlinkStaging: true, MinimumResources: resources, MaximumResources: resources, MaxMounts: 3,
	}
	profile = sandbox.Profile{
		ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image,
		Packages: []sandbox.Package{{Manager: sandbox.ManagerApt, Name: "git", Version: "1"}},
		NetworkPolicy: sandbox.NetworkPolicy{
			Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{{Host: "a.test", Port: 443, Mode: "tls"}},
			RequiredEgressCertification: sandbox.EgressSecurityBoundary,
		},
		ResourceLimits: resources, RetentionMode: sandbox.RetentionDurable,
	}
	request = sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "l", LeaseEpoch: 7, Target: envelope.Target(),
		Profile: profile, Platform: envelope.Platforms[0], RootImage: image,
		Mounts:    []sandbox.Mount{{MountPath: "/workspace/repo", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}},
		ExpiresAt: late,
	}
	instance = sandbox.InstanceOf(request, "i-1", sandbox.StateActive, digest)
	snapshot = sandbox.Snapshot{
		SnapshotID: "s-1", Provider: "acme", Placement: sandbox.PlacementHosted, SourceInstanceID: "i-1", WorkspaceID: "w", SessionID: "s",
		ProfileID: "p", ProfileVersion: 1, ProfileDigest: digest, CreatedAt: early, ExpiresAt: late,
	}
)

// values is one full value of every contract type that travels as JSON: every
// optional field set, so that every key is tried.
var values = []any{
	envelope, request, instance, snapshot,
	sandbox.Command{Executable: "sh", Arguments: []string{"-c"}, WorkingDirectory: "/", Environment: map[string]string{"A": "b"}, TimeoutSeconds: 1, OutputLimitBytes: 1},
	sandbox.ProcessRequest{Executable: "sh", Arguments: []string{"-c"}, WorkingDirectory: "/", Environment: map[string]string{"A": "b"}},
	sandbox.FileRead{Path: "/a/b", AllowedRoot: "/a", MaximumBytes: 1},
	sandbox.FilesRead{AllowedRoot: "/a", Files: []sandbox.FileMember{{Path: "/a/b", MaximumBytes: 1}}, AggregateMaximumBytes: 1},
	sandbox.Listing{Root: "/a", MaxEntries: 1},
	sandbox.DirEntry{Path: "a", Size: 1, Digest: digest},
	sandbox.ProjectListing{Leaves: []sandbox.Leaf{{Path: "a", Type: sandbox.LeafRegular, Size: 1, Digest: digest, Executable: true}}, Complete: true},
	sandbox.SnapshotRequest{ExpiresAt: late},
	sandbox.CloneRequest{Snapshot: snapshot, TargetSessionID: "other"},
	sandbox.ReleaseRequest{ExpiresAt: late},
	sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &snapshot},
	sandbox.ResumeRequest{Request: request, Snapshot: snapshot},
	sandbox.CleanupRequest{Now: late, OrphanedBefore: early, PinnedSnapshots: []sandbox.SnapshotID{"s-1"}},
	sandbox.Swept{InstanceIDs: []sandbox.InstanceID{"i-1"}, SnapshotIDs: []sandbox.SnapshotID{"s-1"}},
	sandbox.EvidenceOf(instance, "pr_1", envelope.Enforcement, early, late),
}

func TestEveryContractTypeTravelsAndIsRefusedInEveryOtherForm(t *testing.T) {
	for _, value := range values {
		typ := reflect.TypeOf(value)
		t.Run(typ.Name(), func(t *testing.T) {
			text, err := canonical.Encode(value)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decode(typ, text); err != nil || !reflect.DeepEqual(back, value) {
				t.Fatalf("came back as %+v, %v", back, err)
			}
			refused := func(why string, text []byte, reason canonical.Reason) {
				t.Helper()
				_, err := decode(typ, text)
				var e *canonical.Error
				if !errors.As(err, &e) || reason != "" && e.Reason != reason {
					t.Errorf("%s: %v\n%s", why, err, text)
				}
			}
			refused("trailing data", append(bytes.Clone(text), " {}"...), canonical.ReasonTrailingData)
			refused("an unknown key", bytes.Replace(text, []byte("{"), []byte(`{"zzz":1,`), 1), canonical.ReasonUnknownKey)
			refused("nothing", nil, "")
			for i := range typ.NumField() {
				name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				if name == "-" {
					continue
				}
				key := []byte(fmt.Sprintf("%q:", name))
				from := bytes.Index(text, key)
				if from < 0 {
					t.Errorf("%s is not in the full value", name)
					continue
				}
				member := text[from : from+len(key)+length(text[from+len(key):])]
				refused(name+" twice", bytes.Replace(text, member, append(append(bytes.Clone(member), ','), member...), 1), canonical.ReasonDuplicateKey)
				refused(name+" null", bytes.Replace(text, member, append(bytes.Clone(key), "null"...), 1), canonical.ReasonNull)
				refused(name+" in another case", bytes.Replace(text, key, bytes.ToUpper(key), 1), canonical.ReasonUnknownKey)
				without := bytes.Replace(bytes.Replace(bytes.Replace(text, append(bytes.Clone(member), ','), nil, 1), append([]byte(","), member...), nil, 1), member, nil, 1)
				if options == "" {
					refused("without "+name, without, canonical.ReasonMissingKey)
				} else if _, err := decode(typ, without); err != nil {
					t.Errorf("without the optional %s: %v", name, err)
				}
			}
		})
	}
}

func decode(typ reflect.Type, text []byte) (any, error) {
	into := reflect.New(typ)
	err := canonical.Decode(text, into.Interface())
	return into.Elem().Interface(), err
}

// length is that of the JSON value at the start of text.
func length(text []byte) int {
	depth, quoted := 0, false
	for i, c := range text {
		switch {
		case quoted:
			quoted = c != '"' || text[i-1] == '\\'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']') && depth > 0:
			depth--
		case depth == 0 && (c == ',' || c == '}' || c == ']'):
			return i
		}
	}
	return len(text)
}

// An envelope that says nothing of an optional field means the weakest value,
// and says it again byte for byte when it is sent on.
func TestSilenceIsNoClaim(t *testing.T) {
	silent := envelope
	silent.SnapshotCustody, silent.SnapshotClone, silent.ActiveMountWrite = "", false, false
	silent.EgressCertification, silent.ListDir, silent.SymlinkStaging = "", false, false
	text, err := canonical.Encode(silent)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"snapshot_custody", "snapshot_clone", "active_mount_write", "egress_certification", "list_dir", "symlink_staging"} {
		if bytes.Contains(text, []byte(key)) {
			t.Errorf("%s was written although nothing was said", key)
		}
	}
	var back sandbox.Capabilities
	if err := canonical.Decode(text, &back); err != nil {
		t.Fatal(err)
	}
	if d := back.WithDefaults(); d.SnapshotCustody != sandbox.CustodyRunner || d.EgressCertification != sandbox.EgressUnsupported || back.Validate() != nil {
		t.Errorf("%+v %v", d, back.Validate())
	}
	if again, err := canonical.Encode(back); err != nil || !bytes.Equal(again, text) {
		t.Errorf("%s %v", again, err)
	}
}

// The profile digest must not depend on who computes it: the contract's own
// bytes are the canonical form.
func TestImageIdentityIsTheCanonicalForm(t *testing.T) {
	type identity struct {
		BaseImage string            `json:"base_image"`
		Packages  []sandbox.Package `json:"packages"`
	}
	for _, packages := range [][]sandbox.Package{
		{}, {{Manager: sandbox.ManagerApt, Name: "git"}}, {{Manager: sandbox.ManagerApt, Name: "git", Version: "1:2"}, {Manager: sandbox.ManagerNpm, Name: "@a/b"}},
	} {
		p := profile
		p.Packages = packages
		want, err := canonical.Encode(identity{p.BaseImage, p.Packages})
		if err != nil || string(p.ImageIdentity()) != string(want) {
			t.Errorf("%s, want %s (%v)", p.ImageIdentity(), want, err)
		}
	}
}
