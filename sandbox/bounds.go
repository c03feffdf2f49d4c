package sandbox

import "slices"

// The bounds of the contract. A provider enforces them; a Runner enforces them
// again on what it sends and on what comes back.
// Source: contract "Bounds".
const (
	MaxFileBytes              = 16 << 20  // any file content, read_file.maximum_bytes, stdin of one command
	MaxReadFiles              = 1024      // files in one read_files request
	MaxReadFilesBytes         = 128 << 20 // aggregate output of one read_files request
	MaxOutputBytes            = 16 << 20  // execute.output_limit_bytes, for each stream
	MaxArguments              = 256       // arguments of one command or process
	MaxArgumentBytes          = 65536     // bytes of one argument
	MaxListEntries            = 100000    // list_dir.max_entries and the size of any listing
	MaxMounts                 = 64        // mounts of one instance
	MaxPinnedSnapshots        = 1024      // cleanup.pinned_snapshots
	MaxEnvironment            = 1024      // environment entries of one command; ours, see docs/divergences.md
	MaxEnvironmentBytes       = 131072    // bytes of one environment value; what Linux takes for one string
	MaxPathBytes              = 4096      // bytes of one path; the kernel's own bound
	MaxNameBytes              = 255       // bytes of one path component; the kernel's own bound
	MaxDestinations           = 1024      // destinations of one allowlist; ours
	MaxPackages               = 1024      // packages of one profile; ours
	MaxIdentityBytes          = 255       // bytes of one identity field; ours
	MaxInteger          int64 = 1<<53 - 1 // largest integer that survives every JSON reader

	// OneShotOutputBytes is the most stdout that the one-shot driver collects,
	// and ACPFrameBytes the longest frame that the ACP driver takes. Neither
	// is a cap on the stream that a provider serves.
	// Source: contract "openProcess".
	OneShotOutputBytes = 4 << 20
	ACPFrameBytes      = 1 << 20

	// RollbackSeconds bounds one rollback, and the destruction of a process
	// whose evidence was refused. ReleaseWaitSeconds bounds the wait for a
	// live process after SIGTERM when a Checkpoint is released.
	// Source: contract "Allocation handoff"; "openProcess".
	RollbackSeconds    = 30
	ReleaseWaitSeconds = 5
)

// OutputPath is the output tree of every instance.
// Source: contract "Paths, mounts, and what the Runner admits first".
const OutputPath = "/mnt/session/outputs"

// ControlRoot is the provider-owned control root for portable state.
// Source: contract "Paths, mounts, and what the Runner admits first".
const ControlRoot = "/workspace/.checkfu"

// HomePath is the workload's home directory, reserved for the provider.
const HomePath = "/home/checkfu"

// ReservedRoots returns the roots that no mount may overlap.
// Source: contract "Paths, mounts, and what the Runner admits first".
func ReservedRoots() []string { return slices.Clone(reservedRoots) }

var reservedRoots = []string{"/dev", "/proc", "/run", "/sys", "/tmp", HomePath, ControlRoot, OutputPath}
