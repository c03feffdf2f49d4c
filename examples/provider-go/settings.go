package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"

	"github.com/checkfu/checkfu/sandbox"
)

// What this provider says of itself. Everything else follows from it.
//
// tier is "minimum": no mounts, no reads, no optional members; "day-one", which
// has them; or "durable", which has snapshots too.
var (
	name = "example-go"
	tier = "day-one"
)

var (
	dayOne   = tier != "minimum"
	durable  = tier == "durable"
	rootless = os.Geteuid() != 0
	// owner is who the workload is, outside. Nobody else has this number.
	owner = 101000
	// reach is the mode of the state directory. A workload with a user of its own has
	// to reach its directories, and sees no others. Where it has the provider's,
	// nobody else may: its files can be setuid.
	reach os.FileMode = 0o711
	// image is the one image, the host's own system. It has no bytes of its own to
	// digest; the constant stands for "whatever this host has", and the README says
	// so.
	image = "host@" + string(digest([]byte("the system of the host, as it is")))
)

func init() {
	if rootless {
		owner, reach = os.Geteuid(), 0o700
	}
}

func digest(data []byte) sandbox.Digest {
	sum := sha256.Sum256(data)
	return sandbox.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// revision has one envelope: what root can do and others cannot is another.
func revision() string {
	if rootless {
		return "1-" + tier + "-rootless"
	}
	return "1-" + tier
}

// envelope claims what the suite can hold it to. Resource limits are not enforced:
// they are limits of each process, not of the machine.
func envelope() sandbox.Capabilities {
	e := sandbox.EnforcedBy(sandbox.ProviderAttested).With(sandbox.AxisResourceLimits, sandbox.NotEnforced)
	if rootless { // no tmpfs of that size
		e = e.With(sandbox.AxisDiskLimit, sandbox.NotEnforced)
	}
	c := sandbox.Capabilities{
		Provider: name, ProviderRevision: revision(), MaterializationRevision: "host-1", Placement: sandbox.PlacementLocal,
		Tiers:     []sandbox.Tier{sandbox.TierContainer},
		Platforms: []sandbox.Platform{{OS: "linux", Architecture: runtime.GOARCH}},
		ImageMode: sandbox.ImageFixed, FixedBaseImages: []string{image}, PackageManagers: []sandbox.PackageManager{},
		NetworkModes:   []sandbox.NetworkMode{sandbox.NetworkNone},
		RetentionModes: []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR},
		Enforcement:    e, EgressCertification: sandbox.EgressUnsupported,
		MinimumResources: sandbox.Resources{CPUMillis: 1, MemoryBytes: 1 << 20, DiskBytes: 1 << 20, MaxProcesses: 1, MaxDurationSeconds: 1},
		MaximumResources: sandbox.Resources{CPUMillis: 64000, MemoryBytes: 1 << 36, DiskBytes: 1 << 36, MaxProcesses: 32768, MaxDurationSeconds: 86400},
	}
	if dayOne {
		c.MaxMounts, c.ListDir = sandbox.MaxMounts, true
	}
	if durable { // on the disk of this host, so they are as safe as the Runner's own
		c.RetentionModes = append(c.RetentionModes, sandbox.RetentionDurable)
		c.Snapshots, c.SnapshotClone, c.SnapshotCustody = true, true, sandbox.CustodyRunner
	}
	return c
}
