package native

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// Name is the provider coordinate; which driver isolates is part of the
// provider revision, so that selecting one never yields the other.
const Name = "native"

// MaterializationRevision names how a profile becomes a root: the image's
// layers, with one of its packages on top, unpacked at IDBase under a skeleton of
// mount points.
const MaterializationRevision = "native-overlay/3-recipes/" + recipe.Revision

// Revision is the provider revision of one driver ("runsc", "runc" or "rootless").
func Revision(driver string) string { return "native-" + driver + "/1" }

// Envelope is the honest statement of the native provider over one driver.
//
// Every axis is runner_enforced: this code, compiled into the Runner, sets the
// control and activation reads it back from outside the guest, or fails. On
// runc the kernel is shared with the host, which the tier says (container) and
// the revision names. What an ordinary user's machines lack of it see lessened.
//
// The egress grade is advisory_filter and no more: that the way out is one socket
// to a guard is enforced like the rest, what the guard lets through is its own
// judgement, of which no attester has signed anything.
// Unrestricted restricts no destination, so network_policy says of it only what is
// read back: a network namespace of its own with one link, and a fence between
// that and the host.
// Durable retention keeps homes and snapshots on this host's disk, so their custody
// is the Runner's.
// Source: concept "The enforcement statement"; "The capability envelope";
// grading "The grading rule".
func Envelope(driver, architecture string) sandbox.Capabilities {
	c := sandbox.Capabilities{
		Provider: Name, ProviderRevision: Revision(driver), MaterializationRevision: MaterializationRevision,
		Placement:           sandbox.PlacementLocal,
		Tiers:               []sandbox.Tier{sandbox.TierContainer},
		Platforms:           []sandbox.Platform{{OS: "linux", Architecture: architecture}},
		ImageMode:           sandbox.ImageProfile,
		FixedBaseImages:     []string{},
		PackageManagers:     recipe.Managers(),
		NetworkModes:        []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkAllowlist, sandbox.NetworkUnrestricted},
		RetentionModes:      []sandbox.RetentionMode{sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR},
		Snapshots:           true,
		SnapshotClone:       true,
		SnapshotCustody:     sandbox.CustodyRunner,
		Enforcement:         sandbox.EnforcedBy(sandbox.RunnerEnforced),
		EgressCertification: sandbox.EgressAdvisoryFilter,
		ListDir:             true,
		ActiveMountWrite:    true,
		SymlinkStaging:      true,
		MinimumResources:    sandbox.Resources{CPUMillis: 50, MemoryBytes: 32 << 20, DiskBytes: 4 << 20, MaxProcesses: 8, MaxDurationSeconds: 1},
		MaximumResources:    sandbox.Resources{CPUMillis: 1024000, MemoryBytes: 1 << 42, DiskBytes: 1 << 42, MaxProcesses: 32768, MaxDurationSeconds: 30 * 86400},
		MaxMounts:           sandbox.MaxMounts,
	}
	if driver == machine.Rootless {
		lessened(&c)
	}
	return c
}

// profileDigest is the derived image's identity.
func profileDigest(p sandbox.Profile) sandbox.Digest {
	return sandbox.Digest("sha256:" + sha256Hex(p.ImageIdentity()))
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
