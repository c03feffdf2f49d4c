package memory

import (
	"slices"

	"github.com/checkfu/checkfu/sandbox"
)

// DefaultTarget is the tuple of a Provider made with zero Options.
var DefaultTarget = sandbox.Target{
	Provider: "memory", ProviderRevision: "checkfu:memory-provider@1",
	MaterializationRevision: "checkfu:memory-materialization@1", Placement: sandbox.PlacementTest,
}

// enforcement says who realizes each control on the simulated machine. The
// workload is interpreted by this package and has no other way to act, so what
// the interpreter refuses is refused; but it is the provider that says so, and
// it says nothing about the host process.
//
// no_new_privileges and capabilities_dropped are not enforced: there are no
// privileges to gain and none to drop, so there is nothing that enforces.
// resource_limits is not enforced: processor time and memory are not metered.
// non_root holds because there is one user and no way to become another.
var enforcement = sandbox.Enforcement{
	SandboxIsolation:    sandbox.ProviderAttested,
	RootReadOnly:        sandbox.ProviderAttested,
	NonRoot:             sandbox.ProviderAttested,
	NoNewPrivileges:     sandbox.NotEnforced,
	CapabilitiesDropped: sandbox.NotEnforced,
	MountsSealed:        sandbox.ProviderAttested,
	DiskLimit:           sandbox.ProviderAttested,
	NetworkPolicy:       sandbox.ProviderAttested,
	ResourceLimits:      sandbox.NotEnforced,
}

// envelope is what the provider says of itself. It claims no package manager:
// it would record packages without there being any. Snapshot custody is the
// Runner's: the bytes die with this process. The egress grade is declared
// rather than left at its default, which would claim that the allowlist is
// ignored.
// Source: concept "The capability envelope"; grading "The current posture".
func envelope(target sandbox.Target, noAllowlist bool) sandbox.Capabilities {
	c := sandbox.Capabilities{
		Provider:                target.Provider,
		ProviderRevision:        target.ProviderRevision,
		MaterializationRevision: target.MaterializationRevision,
		Placement:               target.Placement,
		Tiers:                   []sandbox.Tier{sandbox.TierContainer},
		Platforms:               []sandbox.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}},
		ImageMode:               sandbox.ImageProfile,
		FixedBaseImages:         []string{},
		PackageManagers:         []sandbox.PackageManager{},
		NetworkModes:            []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkAllowlist, sandbox.NetworkUnrestricted},
		RetentionModes:          []sandbox.RetentionMode{sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR},
		Snapshots:               true,
		SnapshotCustody:         sandbox.CustodyRunner,
		SnapshotClone:           true,
		ActiveMountWrite:        true,
		Enforcement:             enforcement,
		EgressCertification:     sandbox.EgressAdvisoryFilter,
		ListDir:                 true,
		SymlinkStaging:          true,
		MinimumResources:        sandbox.Resources{CPUMillis: 1, MemoryBytes: 1, DiskBytes: 1, MaxProcesses: 1, MaxDurationSeconds: 1},
		MaximumResources:        sandbox.Resources{CPUMillis: 1 << 20, MemoryBytes: 1 << 42, DiskBytes: 1 << 42, MaxProcesses: 1 << 20, MaxDurationSeconds: 1 << 20},
		MaxMounts:               sandbox.MaxMounts,
	}
	if noAllowlist {
		c.NetworkModes = []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkUnrestricted}
		c.EgressCertification = sandbox.EgressUnsupported
	}
	return c
}

// clone gives the caller slices of its own.
func clone(c sandbox.Capabilities) sandbox.Capabilities {
	c.Tiers, c.Platforms = slices.Clone(c.Tiers), slices.Clone(c.Platforms)
	c.FixedBaseImages, c.PackageManagers = slices.Clone(c.FixedBaseImages), slices.Clone(c.PackageManagers)
	c.NetworkModes, c.RetentionModes = slices.Clone(c.NetworkModes), slices.Clone(c.RetentionModes)
	return c
}
