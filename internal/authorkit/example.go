package authorkit

import (
	"strings"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// The one example that all scenarios are about: a provider "acme" with every
// member, and a session with a read-only repository and a read-write project.
const (
	operationID = wire.OperationID("op_0123456789abcdef0123456789abcdef")
	rolledBack  = wire.OperationID("op_00000000000000000000000000000002")
	processID   = wire.ProcessID("pr_0123456789abcdef0123456789abcdef")
	attachID    = wire.AttachID("at_0123456789abcdef0123456789abcdef")
	otherAttach = wire.AttachID("at_00000000000000000000000000000002")
	bootID      = wire.BootID("bt_0123456789abcdef0123456789abcdef")
	// token is an example of the form; nothing accepts it.
	token = "example-token-of-thirty-two-chars"

	created  = sandbox.Timestamp("2026-11-30T08:00:00.000Z")
	started  = sandbox.Timestamp("2026-11-30T08:00:01.250Z")
	finished = sandbox.Timestamp("2026-11-30T08:00:02.500Z")
	expires  = sandbox.Timestamp("2026-11-30T20:00:00.000Z")
	retained = sandbox.Timestamp("2026-12-30T08:00:00.000Z")

	instanceID = sandbox.InstanceID("inst-1")
	snapshotID = sandbox.SnapshotID("snap-1")
	hello      = "hello\n"
)

func imageOf(name string, c byte) string {
	return name + "@sha256:" + strings.Repeat(string(c), 64)
}

func resources(n int64) sandbox.Resources {
	return sandbox.Resources{CPUMillis: 1000 * n, MemoryBytes: n << 30, DiskBytes: n << 30, MaxProcesses: 256 * n, MaxDurationSeconds: 3600 * n}
}

func target() sandbox.Target {
	return sandbox.Target{Provider: "acme", ProviderRevision: "acme-2026.11", MaterializationRevision: "rootfs-3", Placement: sandbox.PlacementHosted}
}

func profile() sandbox.Profile {
	return sandbox.Profile{
		ProfileID: "profile-1", ProfileVersion: 4, Tier: sandbox.TierMicroVM, BaseImage: imageOf("registry.example/base", 'b'),
		Packages: []sandbox.Package{{Manager: sandbox.ManagerApt, Name: "git"}, {Manager: sandbox.ManagerPip, Name: "ruff", Version: "0.14.6"}},
		NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, RequiredEgressCertification: sandbox.EgressSecurityBoundary,
			Destinations: []sandbox.Destination{{Host: "proxy.example", Port: 443}, {Host: "db.example", Port: 5432, Mode: "opaque"}}},
		ResourceLimits: resources(2), RetentionMode: sandbox.RetentionDurable,
	}
}

func provision() sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "ws-1", SessionID: "sess-1", RunID: "run-1", AttemptID: "attempt-1", LeaseID: "lease-1", LeaseEpoch: 7,
		Target: target(), Profile: profile(), Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"},
		RootImage: imageOf("registry.example/derived", 'c'), ExpiresAt: expires,
		Mounts: []sandbox.Mount{
			{MountPath: "/workspace/repo", Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit},
			{MountPath: "/workspace/project", Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject},
		},
	}
}

func profileDigest() sandbox.Digest { return digest(profile().ImageIdentity()) }

func instance(state sandbox.State) sandbox.Instance {
	return sandbox.InstanceOf(provision(), instanceID, state, profileDigest())
}

func snapshot() sandbox.Snapshot {
	return sandbox.Snapshot{
		SnapshotID: snapshotID, Provider: "acme", Placement: sandbox.PlacementHosted, SourceInstanceID: instanceID,
		WorkspaceID: "ws-1", SessionID: "sess-1", ProfileID: "profile-1", ProfileVersion: 4, ProfileDigest: profileDigest(),
		CreatedAt: created, ExpiresAt: retained,
	}
}

func clone() sandbox.Snapshot {
	s := snapshot()
	s.SnapshotID, s.SessionID, s.CreatedAt = "snap-2", "sess-2", started
	return s
}

func cloneRequest() sandbox.CloneRequest {
	return sandbox.CloneRequest{Snapshot: snapshot(), TargetSessionID: "sess-2"}
}

func envelope() sandbox.Capabilities {
	return sandbox.Capabilities{
		Provider: "acme", ProviderRevision: "acme-2026.11", MaterializationRevision: "rootfs-3", Placement: sandbox.PlacementHosted,
		Tiers: []sandbox.Tier{sandbox.TierContainer, sandbox.TierMicroVM}, Platforms: []sandbox.Platform{{OS: "linux", Architecture: "amd64"}},
		ImageMode: sandbox.ImageProfile, FixedBaseImages: []string{}, PackageManagers: []sandbox.PackageManager{sandbox.ManagerApt, sandbox.ManagerPip},
		NetworkModes:   []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkAllowlist},
		RetentionModes: []sandbox.RetentionMode{sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR},
		Snapshots:      true, SnapshotCustody: sandbox.CustodyProvider, SnapshotClone: true, ActiveMountWrite: true,
		Enforcement: sandbox.EnforcedBy(sandbox.ProviderAttested), EgressCertification: sandbox.EgressSecurityBoundary, ListDir: true,
		MinimumResources: resources(1), MaximumResources: resources(16), MaxMounts: 64,
	}
}

// least is the envelope of a provider with the required members only.
func least() sandbox.Capabilities {
	c := envelope()
	c.RetentionModes = []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
	c.Snapshots, c.SnapshotCustody, c.SnapshotClone, c.ActiveMountWrite, c.ListDir = false, "", false, false, false
	c.EgressCertification = sandbox.EgressAdvisoryFilter
	c.Enforcement = sandbox.EnforcedBy(sandbox.ProviderAttested).With(sandbox.AxisDiskLimit, sandbox.NotEnforced)
	return c
}

func capabilities() wire.CapabilitiesResponse {
	return wire.CapabilitiesResponse{Capabilities: envelope(), Wire: wire.Info{
		Revision: wire.Revision, Members: sandbox.Operations(), AsyncOperations: true,
		Limits: wire.Limits{MaxWaitMS: wire.DefaultWaitMS, OutputWindowBytes: wire.DefaultOutputWindowBytes, InputBufferBytes: wire.DefaultInputBufferBytes},
	}}
}

func leastCapabilities() wire.CapabilitiesResponse {
	return wire.CapabilitiesResponse{Capabilities: least(), Wire: wire.Info{
		Revision: wire.Revision, Members: wire.Members(least(), sandbox.Optional{}), Limits: wire.Limits{MaxWaitMS: wire.DefaultWaitMS},
	}}
}

func capabilitiesDigest() sandbox.Digest {
	d, err := wire.CapabilitiesDigest(envelope())
	if err != nil {
		panic("authorkit: " + err.Error())
	}
	return d
}

func evidence() sandbox.Evidence {
	return sandbox.EvidenceOf(instance(sandbox.StateActive), string(processID), envelope().Enforcement, started, started)
}

func opened() wire.Opened {
	return wire.Opened{ProcessID: processID, Evidence: evidence(), InputCredit: wire.DefaultInputBufferBytes, OutputWindowBytes: wire.DefaultOutputWindowBytes}
}

func command() sandbox.Command {
	return sandbox.Command{
		Executable: "sh", Arguments: []string{"-c", "cat; echo w >&2"}, WorkingDirectory: "/workspace/project",
		Environment: map[string]string{"LANG": "C.UTF-8", "_": ""}, TimeoutSeconds: 60, OutputLimitBytes: 1 << 20,
	}
}

func live() sandbox.ProcessRequest {
	return sandbox.ProcessRequest{Executable: "/usr/bin/agent", Arguments: []string{"--acp"}, WorkingDirectory: "/", Environment: map[string]string{}}
}

func rollback() wire.Rollback { return wire.Rollback{OperationID: operationID} }

func fileCall() wire.FileCall {
	return wire.FileCall{InstanceID: instanceID, Path: "/workspace/repo/README", Size: int64(len(hello)), Digest: digest([]byte(hello))}
}

func stageCall() wire.StageCall {
	return wire.StageCall{InstanceID: instanceID, TransactionID: operationID, Path: "/workspace/project/a.txt", Size: int64(len(hello)), Digest: digest([]byte(hello)), Executable: true}
}

func readFiles() wire.ReadFilesRequest {
	return wire.ReadFilesRequest{InstanceID: instanceID, AllowedRoot: "/workspace/project", AggregateMaximumBytes: 20,
		Files: []sandbox.FileMember{{Path: "/workspace/project/a.txt", MaximumBytes: 10}, {Path: "/workspace/project/b.txt", MaximumBytes: 10}}}
}

func executed() wire.ExecuteResult {
	return wire.ExecuteResult{ExitCode: ref(int64(0)), StartedAt: started, FinishedAt: finished}
}
