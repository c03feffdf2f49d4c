package authorkit

import (
	"encoding/hex"
	"iter"
	"slices"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// crossed is a scenario of an answer that is held against what the Runner has:
// the answer is well formed, and one thing in it is not what was asked for.
func crossed(kind, name, says string, holds any, answer wire.Message, found iter.Seq[crosscheck.Difference]) Scenario {
	held, err := canonical.Encode(holds)
	if err != nil {
		panic("authorkit: " + err.Error())
	}
	data := encode(answer)
	s := Scenario{Kind: kind, Name: name, Says: says, Schema: nameOfMessage(answer), Holds: literal(held), Decoded: literal(data), Hex: hex.EncodeToString(data), Accept: ref(true)}
	all := slices.Collect(found)
	if len(all) > 1 {
		panic("authorkit: " + name + " is wrong in more than one way")
	}
	if len(all) == 1 {
		s.Accept = ref(false)
		s.Refusal = &Refusal{Number: all[0].Number, Check: all[0].Check, Field: all[0].Field, Expected: all[0].Expected, Got: all[0].Got}
	}
	return s
}

// identities are the twenty-one checks of an instance, each failed alone.
func identities() []Scenario {
	want := instance(sandbox.StateProvisioning)
	one := func(name, says string, change func(*sandbox.Instance)) Scenario {
		got := instance(sandbox.StateProvisioning)
		change(&got)
		return crossed("identity", name, says, want, wire.InstanceHandoff{Value: got, Rollback: rollback()}, crosscheck.Instance(&want, &got))
	}
	return []Scenario{
		one("right", "every field as it was asked for; the id is the provider's", func(i *sandbox.Instance) { i.InstanceID = "inst-9" }),
		one("01-provider", "another provider", func(i *sandbox.Instance) { i.Provider = "other" }),
		one("02-placement", "another placement", func(i *sandbox.Instance) { i.Placement = sandbox.PlacementLocal }),
		one("03-state", "not the state after provision", func(i *sandbox.Instance) { i.State = sandbox.StateActive }),
		one("04-workspace-id", "another workspace", func(i *sandbox.Instance) { i.WorkspaceID = "ws-2" }),
		one("05-session-id", "another session", func(i *sandbox.Instance) { i.SessionID = "sess-2" }),
		one("06-run-id", "another run", func(i *sandbox.Instance) { i.RunID = "run-2" }),
		one("07-attempt-id", "another attempt", func(i *sandbox.Instance) { i.AttemptID = "attempt-2" }),
		one("08-lease-id", "another lease", func(i *sandbox.Instance) { i.LeaseID = "lease-2" }),
		one("09-lease-epoch", "another epoch", func(i *sandbox.Instance) { i.LeaseEpoch = 8 }),
		one("10-target", "another revision of the target", func(i *sandbox.Instance) { i.Target.ProviderRevision = "acme-2026.12" }),
		one("11-profile", "the platform's own memory limit", func(i *sandbox.Instance) { i.Profile.ResourceLimits.MemoryBytes = 1 << 30 }),
		one("11-profile-packages", "packages sorted in another way", func(i *sandbox.Instance) {
			i.Profile.Packages = []sandbox.Package{i.Profile.Packages[1], i.Profile.Packages[0]}
		}),
		one("12-platform", "another architecture", func(i *sandbox.Instance) { i.Platform.Architecture = "arm64" }),
		one("13-root-image", "the same bytes under another name", func(i *sandbox.Instance) { i.RootImage = imageOf("mirror.example/derived", 'c') }),
		one("14-mounts", "the mounts in another order", func(i *sandbox.Instance) { i.Mounts = []sandbox.Mount{i.Mounts[1], i.Mounts[0]} }),
		one("15-output-path", "an output path of its own", func(i *sandbox.Instance) { i.OutputPath = "/outputs" }),
		one("16-expires-at", "the platform's own deadline", func(i *sandbox.Instance) { i.ExpiresAt = retained }),
		one("17-profile-digest", "a digest of something else", func(i *sandbox.Instance) { i.Materialization.ProfileDigest = digest([]byte("{}")) }),
		one("18-image-reference", "the image under a tag", func(i *sandbox.Instance) {
			i.Materialization.ImageReference = imageOf("registry.example/derived:latest", 'c')
		}),
		one("19-image-digest", "a digest from an image store", func(i *sandbox.Instance) { i.Materialization.ImageDigest = digest(nil) }),
		one("20-provider-revision", "a revision that was not advertised", func(i *sandbox.Instance) { i.Materialization.ProviderRevision = "acme-2026.10" }),
		one("21-materialization-revision", "likewise", func(i *sandbox.Instance) { i.Materialization.MaterializationRevision = "rootfs-2" }),
	}
}

// snapshots are the nine checks of a snapshot, each failed alone.
func snapshots() []Scenario {
	want := snapshot()
	one := func(name, says string, change func(*sandbox.Snapshot)) Scenario {
		got := snapshot()
		change(&got)
		return crossed("snapshot", name, says, want, wire.SnapshotHandoff{Value: got, Rollback: rollback()}, crosscheck.Snapshot(&want, &got))
	}
	return []Scenario{
		one("right", "the id and the time of creation are the provider's", func(s *sandbox.Snapshot) { s.SnapshotID, s.CreatedAt = "snap-9", finished }),
		one("1-provider", "another provider", func(s *sandbox.Snapshot) { s.Provider = "other" }),
		one("2-placement", "another placement", func(s *sandbox.Snapshot) { s.Placement = sandbox.PlacementLocal }),
		one("3-source-instance-id", "of another instance", func(s *sandbox.Snapshot) { s.SourceInstanceID = "inst-2" }),
		one("4-workspace-id", "in another workspace", func(s *sandbox.Snapshot) { s.WorkspaceID = "ws-2" }),
		one("5-session-id", "in another session", func(s *sandbox.Snapshot) { s.SessionID = "sess-2" }),
		one("6-profile-id", "of another profile", func(s *sandbox.Snapshot) { s.ProfileID = "profile-2" }),
		one("7-profile-version", "of another version of it", func(s *sandbox.Snapshot) { s.ProfileVersion = 5 }),
		one("8-profile-digest", "of another image", func(s *sandbox.Snapshot) { s.ProfileDigest = digest(nil) }),
		one("9-expires-at", "with the platform's own deadline", func(s *sandbox.Snapshot) { s.ExpiresAt = expires }),
	}
}

// clones are the nine of a clone, and what only a clone is held to.
func clones() []Scenario {
	request := cloneRequest()
	one := func(name, says string, change func(*sandbox.Snapshot)) Scenario {
		got := clone()
		change(&got)
		return crossed("clone", name, says, request, wire.SnapshotHandoff{Value: got, Rollback: rollback()}, crosscheck.Clone(&request, &got))
	}
	return []Scenario{
		one("right", "another id, the target session, the source's deadline", func(*sandbox.Snapshot) {}),
		one("right-at-once", "created at the very time of its source", func(s *sandbox.Snapshot) { s.CreatedAt = created }),
		one("provider", "another provider", func(s *sandbox.Snapshot) { s.Provider = "other" }),
		one("placement", "another placement", func(s *sandbox.Snapshot) { s.Placement = sandbox.PlacementLocal }),
		one("source-instance-id", "the source of the source is kept", func(s *sandbox.Snapshot) { s.SourceInstanceID = "inst-2" }),
		one("workspace-id", "a clone stays in its workspace", func(s *sandbox.Snapshot) { s.WorkspaceID = "ws-2" }),
		one("session-id", "the source's session instead of the target", func(s *sandbox.Snapshot) { s.SessionID = "sess-1" }),
		one("profile-id", "of another profile", func(s *sandbox.Snapshot) { s.ProfileID = "profile-2" }),
		one("profile-version", "of another version of it", func(s *sandbox.Snapshot) { s.ProfileVersion = 5 }),
		one("profile-digest", "of another image", func(s *sandbox.Snapshot) { s.ProfileDigest = digest(nil) }),
		one("expires-at", "a deadline of its own", func(s *sandbox.Snapshot) { s.ExpiresAt = expires }),
		one("snapshot-id", "the source's id", func(s *sandbox.Snapshot) { s.SnapshotID = snapshotID }),
		one("created-at", "older than its source", func(s *sandbox.Snapshot) { s.CreatedAt = "2026-11-30T07:59:59.999Z" }),
	}
}

// Subject is what evidence is held against.
type Subject struct {
	Instance   sandbox.Instance    `json:"instance"`
	ProcessID  string              `json:"process_id"`
	Advertised sandbox.Enforcement `json:"advertised"`
}

// evidences are the sixteen clauses of a process's evidence, each broken alone.
func evidences() []Scenario {
	subject := Subject{instance(sandbox.StateActive), string(processID), envelope().Enforcement}
	one := func(name, says string, change func(*sandbox.Evidence)) Scenario {
		answer := opened()
		change(&answer.Evidence)
		return crossed("evidence", name, says, subject, answer,
			crosscheck.Evidence(&crosscheck.Subject{Instance: subject.Instance, ProcessID: subject.ProcessID, Advertised: subject.Advertised}, &answer.Evidence))
	}
	return []Scenario{
		one("right", "the provider's own statement; its times are its own", func(e *sandbox.Evidence) { e.ObservedAt = finished }),
		one("01-instance-id", "about another instance", func(e *sandbox.Evidence) { e.InstanceID = "inst-2" }),
		one("02-provider", "by another provider", func(e *sandbox.Evidence) { e.Provider = "other" }),
		one("03-provider-revision", "by another revision of it", func(e *sandbox.Evidence) { e.ProviderRevision = "acme-2026.12" }),
		one("04-materialization-revision", "likewise", func(e *sandbox.Evidence) { e.MaterializationRevision = "rootfs-4" }),
		one("05-root-image", "the same bytes under another name", func(e *sandbox.Evidence) { e.RootImage = imageOf("mirror.example/derived", 'c') }),
		one("06-platform", "another architecture", func(e *sandbox.Evidence) { e.Platform.Architecture = "arm64" }),
		one("07-profile-digest", "another image", func(e *sandbox.Evidence) { e.ProfileDigest = digest(nil) }),
		one("08-network-mode", "another mode than the frozen one", func(e *sandbox.Evidence) { e.NetworkMode = sandbox.NetworkNone }),
		one("09-resource-limits", "other limits", func(e *sandbox.Evidence) { e.ResourceLimits.MaxProcesses = 1024 }),
		one("10-schema", "another form of statement", func(e *sandbox.Evidence) { e.Schema = "checkfu.sandbox-process-evidence.v2" }),
		one("11-process-id", "about another process", func(e *sandbox.Evidence) { e.ProcessID = "pr_00000000000000000000000000000002" }),
		one("12-image-digest", "not the digest of its own image", func(e *sandbox.Evidence) { e.ImageDigest = digest(nil) }),
		one("13-times", "observed before it was started", func(e *sandbox.Evidence) { e.ObservedAt = created }),
		one("13-times-form", "a time in another form", func(e *sandbox.Evidence) { e.StartedAt = "2026-11-30T08:00:01Z" }),
		one("14-authority", "an authority that is none", func(e *sandbox.Evidence) { e.Enforcement.DiskLimit = "certified" }),
		one("15-network-policy", "a restriction that nothing enforces", func(e *sandbox.Evidence) { e.Enforcement.NetworkPolicy = sandbox.GuestObserved }),
		one("16-enforcement", "another statement than the advertised one", func(e *sandbox.Evidence) { e.Enforcement.RootReadOnly = sandbox.NotEnforced }),
	}
}
