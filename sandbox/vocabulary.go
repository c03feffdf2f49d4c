package sandbox

import "slices"

// Each closed set is a string type with All and Valid. The spelling is the
// contract's own and is what travels.

// Placement says where a provider's machines run. It is what the provider
// declares; what a Runner may believe of it depends on how it was reached.
// Source: concept "The capability envelope".
type Placement string

// The four placements.
const (
	PlacementTest   Placement = "test"
	PlacementLocal  Placement = "local"
	PlacementHosted Placement = "hosted"
	PlacementBYOC   Placement = "byoc"
)

// Valid reports whether p is one of the four.
func (p Placement) Valid() bool {
	return slices.Contains([]Placement{PlacementTest, PlacementLocal, PlacementHosted, PlacementBYOC}, p)
}

// Tier is the kind of wall around the workload.
// Source: concept "The capability envelope".
type Tier string

// The two tiers.
const (
	TierContainer Tier = "container"
	TierMicroVM   Tier = "microvm"
)

// Valid reports whether t is one of the two.
func (t Tier) Valid() bool { return t == TierContainer || t == TierMicroVM }

// ImageMode says whether a provider builds the derived image from the admitted
// profile or offers fixed images only.
// Source: concept "The capability envelope".
type ImageMode string

// The two image modes.
const (
	ImageProfile ImageMode = "profile"
	ImageFixed   ImageMode = "fixed"
)

// Valid reports whether m is one of the two.
func (m ImageMode) Valid() bool { return m == ImageProfile || m == ImageFixed }

// PackageManager is one of the package ecosystems a profile may draw from.
// Source: concept "The capability envelope".
type PackageManager string

// The six package managers.
const (
	ManagerApt   PackageManager = "apt"
	ManagerCargo PackageManager = "cargo"
	ManagerGem   PackageManager = "gem"
	ManagerGo    PackageManager = "go"
	ManagerNpm   PackageManager = "npm"
	ManagerPip   PackageManager = "pip"
)

// Valid reports whether m is one of the six.
func (m PackageManager) Valid() bool {
	return slices.Contains([]PackageManager{ManagerApt, ManagerCargo, ManagerGem, ManagerGo, ManagerNpm, ManagerPip}, m)
}

// NetworkMode is what a workload may reach.
// Source: concept "The capability envelope"; "Network posture".
type NetworkMode string

// The three network modes. None keeps the plane route only.
const (
	NetworkNone         NetworkMode = "none"
	NetworkAllowlist    NetworkMode = "allowlist"
	NetworkUnrestricted NetworkMode = "unrestricted"
)

// Valid reports whether m is one of the three.
func (m NetworkMode) Valid() bool {
	return slices.Contains([]NetworkMode{NetworkNone, NetworkAllowlist, NetworkUnrestricted}, m)
}

// RetentionMode says what may outlive an instance.
// Source: concept "The capability envelope".
type RetentionMode string

// The two retention modes. EphemeralZDR is zero data retention: release
// destroys every trace.
const (
	RetentionDurable      RetentionMode = "durable"
	RetentionEphemeralZDR RetentionMode = "ephemeral_zdr"
)

// Valid reports whether m is one of the two.
func (m RetentionMode) Valid() bool { return m == RetentionDurable || m == RetentionEphemeralZDR }

// Custody says who keeps snapshot bytes.
// Source: concept "The capability envelope".
type Custody string

// The two custodies. Bytes in the Runner's custody die with its host.
const (
	CustodyRunner   Custody = "runner"
	CustodyProvider Custody = "provider"
)

// Valid reports whether c is one of the two.
func (c Custody) Valid() bool { return c == CustodyRunner || c == CustodyProvider }

// Authority says who realizes an enforcement axis.
// Source: concept "The enforcement statement".
type Authority string

// The four authorities. Only the first two count as enforcement.
const (
	RunnerEnforced   Authority = "runner_enforced"
	ProviderAttested Authority = "provider_attested"
	GuestObserved    Authority = "guest_observed"
	NotEnforced      Authority = "not_enforced"
)

// Valid reports whether a is one of the four.
func (a Authority) Valid() bool {
	return slices.Contains([]Authority{RunnerEnforced, ProviderAttested, GuestObserved, NotEnforced}, a)
}

// Enforces reports whether a counts as enforcement. A guest's observation
// cannot prove that the guest was prevented from changing what it observed.
// Source: concept "The enforcement statement".
func (a Authority) Enforces() bool { return a == RunnerEnforced || a == ProviderAttested }

// Axis is one of the nine isolation axes.
// Source: concept "The enforcement statement".
type Axis string

// The nine axes, in the order in which they are always shown.
const (
	AxisSandboxIsolation    Axis = "sandbox_isolation"
	AxisRootReadOnly        Axis = "root_read_only"
	AxisNonRoot             Axis = "non_root"
	AxisNoNewPrivileges     Axis = "no_new_privileges"
	AxisCapabilitiesDropped Axis = "capabilities_dropped"
	AxisMountsSealed        Axis = "mounts_sealed"
	AxisDiskLimit           Axis = "disk_limit"
	AxisNetworkPolicy       Axis = "network_policy"
	AxisResourceLimits      Axis = "resource_limits"
)

// Axes returns the nine axes in their fixed order.
func Axes() []Axis {
	return []Axis{
		AxisSandboxIsolation, AxisRootReadOnly, AxisNonRoot, AxisNoNewPrivileges, AxisCapabilitiesDropped,
		AxisMountsSealed, AxisDiskLimit, AxisNetworkPolicy, AxisResourceLimits,
	}
}

// EgressCertification is the capability-honesty grade of one exact provider
// revision. Package grade compares it.
// Source: grading "The grading rule".
type EgressCertification string

// The three grades, weakest first.
const (
	EgressUnsupported      EgressCertification = "unsupported"
	EgressAdvisoryFilter   EgressCertification = "advisory_filter"
	EgressSecurityBoundary EgressCertification = "security_boundary"
)

// Valid reports whether e is one of the three.
func (e EgressCertification) Valid() bool {
	return slices.Contains([]EgressCertification{EgressUnsupported, EgressAdvisoryFilter, EgressSecurityBoundary}, e)
}

// Access is how a mount may be used by the workload.
type Access string

// The two accesses.
const (
	AccessReadOnly  Access = "read_only"
	AccessReadWrite Access = "read_write"
)

// Valid reports whether a is one of the two.
func (a Access) Valid() bool { return a == AccessReadOnly || a == AccessReadWrite }

// MountKind says where the Runner took a mount's bytes from. A provider never
// fetches them itself.
type MountKind string

// The three mount kinds.
const (
	MountGit     MountKind = "git"
	MountProject MountKind = "project"
	MountMemory  MountKind = "memory"
)

// Valid reports whether k is one of the three.
func (k MountKind) Valid() bool { return k == MountGit || k == MountProject || k == MountMemory }

// State is the state of an instance that exists.
// Source: contract "Lifecycle and states".
type State string

// The two states.
const (
	StateProvisioning State = "provisioning"
	StateActive       State = "active"
)

// Valid reports whether s is one of the two.
func (s State) Valid() bool { return s == StateProvisioning || s == StateActive }

// Disposition is how a release ended.
// Source: contract "The operations", row release.
type Disposition string

// The two dispositions.
const (
	DispositionReleased  Disposition = "released"  // durable, with a snapshot
	DispositionDestroyed Disposition = "destroyed" // zero data retention
)

// Valid reports whether d is one of the two.
func (d Disposition) Valid() bool { return d == DispositionReleased || d == DispositionDestroyed }

// LeafType is the type of one leaf of a project listing. Everything that is
// not a regular file is special and is named, never omitted.
// Source: contract "Optional capabilities: absent versus wrong", row listProjectDir.
type LeafType string

// The seven leaf types.
const (
	LeafRegular   LeafType = "regular"
	LeafSymlink   LeafType = "symlink"
	LeafSubmodule LeafType = "submodule"
	LeafDevice    LeafType = "device"
	LeafSocket    LeafType = "socket"
	LeafFIFO      LeafType = "fifo"
	LeafOther     LeafType = "other"
)

// Valid reports whether t is one of the seven.
func (t LeafType) Valid() bool {
	return slices.Contains([]LeafType{LeafRegular, LeafSymlink, LeafSubmodule, LeafDevice, LeafSocket, LeafFIFO, LeafOther}, t)
}

// Refusal is why one file of a batch was not read.
type Refusal string

// The four refusals.
const (
	RefusedOutsideRoot Refusal = "outside_root"
	RefusedNotFound    Refusal = "not_found"
	RefusedNotRegular  Refusal = "not_regular"
	RefusedTooLarge    Refusal = "too_large"
)

// Valid reports whether r is one of the four.
func (r Refusal) Valid() bool {
	return slices.Contains([]Refusal{RefusedOutsideRoot, RefusedNotFound, RefusedNotRegular, RefusedTooLarge}, r)
}

// ControlSignal is a signal that may be sent to a live process.
// Source: contract "openProcess".
type ControlSignal string

// The three control signals.
const (
	SignalInterrupt ControlSignal = "SIGINT"
	SignalTerminate ControlSignal = "SIGTERM"
	SignalKill      ControlSignal = "SIGKILL"
)

// Valid reports whether s is one of the three.
func (s ControlSignal) Valid() bool {
	return s == SignalInterrupt || s == SignalTerminate || s == SignalKill
}

// Stream names one output stream of a command.
type Stream string

// The two output streams.
const (
	StreamStdout Stream = "stdout"
	StreamStderr Stream = "stderr"
)

// Operation names a member of the contract on the wire, in errors and in logs.
// Source: contract "The operations".
type Operation string

// The eighteen members of the operations table.
const (
	OpCapabilities     Operation = "capabilities"
	OpProvision        Operation = "provision"
	OpWriteFile        Operation = "write_file"
	OpBeginActiveWrite Operation = "begin_active_write"
	OpActivate         Operation = "activate"
	OpExecute          Operation = "execute"
	OpReadFile         Operation = "read_file"
	OpReadFiles        Operation = "read_files"
	OpListDir          Operation = "list_dir"
	OpListProjectDir   Operation = "list_project_dir"
	OpSnapshot         Operation = "snapshot"
	OpCloneSnapshot    Operation = "clone_snapshot"
	OpRelease          Operation = "release"
	OpResume           Operation = "resume"
	OpDestroy          Operation = "destroy"
	OpDestroySnapshot  Operation = "destroy_snapshot"
	OpCleanup          Operation = "cleanup"
	OpOpenProcess      Operation = "open_process"
)

// Operations returns the eighteen members in the order of the table.
func Operations() []Operation {
	return []Operation{
		OpCapabilities, OpProvision, OpWriteFile, OpBeginActiveWrite, OpActivate, OpExecute,
		OpReadFile, OpReadFiles, OpListDir, OpListProjectDir, OpSnapshot, OpCloneSnapshot,
		OpRelease, OpResume, OpDestroy, OpDestroySnapshot, OpCleanup, OpOpenProcess,
	}
}

// Requirement is what a profile, or a call, needed and a provider cannot do.
// The set is closed and is the vocabulary that selection speaks.
// Source: contract "Errors"; snapshot_clone from "Optional capabilities:
// absent versus wrong" (see docs/divergences.md).
type Requirement string

// The twelve requirements.
const (
	RequireTier             Requirement = "tier"
	RequirePlatform         Requirement = "platform"
	RequireBaseImage        Requirement = "base_image"
	RequirePackages         Requirement = "packages"
	RequireNetworkPolicy    Requirement = "network_policy"
	RequireRetention        Requirement = "retention"
	RequireSnapshots        Requirement = "snapshots"
	RequireSnapshotClone    Requirement = "snapshot_clone"
	RequireResources        Requirement = "resources"
	RequireMounts           Requirement = "mounts"
	RequireContainedRead    Requirement = "physically_contained_file_read"
	RequireActiveMountWrite Requirement = "active_mount_write"
)

// Requirements returns the twelve in the order in which selection checks them.
func Requirements() []Requirement {
	return []Requirement{
		RequireTier, RequirePlatform, RequireBaseImage, RequirePackages, RequireNetworkPolicy, RequireRetention,
		RequireSnapshots, RequireSnapshotClone, RequireResources, RequireMounts, RequireContainedRead, RequireActiveMountWrite,
	}
}

// Valid reports whether r is one of the twelve.
func (r Requirement) Valid() bool { return slices.Contains(Requirements(), r) }
