package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

func digestOf(s string) sandbox.Digest { return sandbox.Digest(canonical.Digest([]byte(s))) }

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

const (
	opID = OperationID("op_00000000000000000000000000000001")
	prID = ProcessID("pr_00000000000000000000000000000002")
	atID = AttachID("at_00000000000000000000000000000003")
	btID = BootID("bt_00000000000000000000000000000004")
	zero = sandbox.Digest("sha256:0000000000000000000000000000000000000000000000000000000000000000")
	then = sandbox.Timestamp("2026-11-30T00:00:00.000Z")
)

var (
	resources  = sandbox.Resources{CPUMillis: 1, MemoryBytes: 2, DiskBytes: 3, MaxProcesses: 4, MaxDurationSeconds: 5}
	target     = sandbox.Target{Provider: "acme", ProviderRevision: "r1", MaterializationRevision: "m1", Placement: sandbox.PlacementHosted}
	allowlist  = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{{Host: "a.example", Port: 443}}}
	profile    = sandbox.Profile{ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: "b@" + string(zero), Packages: []sandbox.Package{}, NetworkPolicy: allowlist, ResourceLimits: resources, RetentionMode: sandbox.RetentionDurable}
	provision  = sandbox.ProvisionRequest{WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "l", LeaseEpoch: 7, Target: target, Profile: profile, Platform: sandbox.Platform{OS: "linux", Architecture: "arm64"}, RootImage: "i@" + string(zero), Mounts: []sandbox.Mount{{MountPath: "/workspace/a\xff", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}}, ExpiresAt: then}
	instance   = sandbox.InstanceOf(provision, "i1", sandbox.StateProvisioning, zero)
	reference  = sandbox.Snapshot{SnapshotID: "n", Provider: "acme", Placement: sandbox.PlacementHosted, SourceInstanceID: "i1", WorkspaceID: "w", SessionID: "s", ProfileID: "p", ProfileVersion: 1, ProfileDigest: zero, CreatedAt: then, ExpiresAt: "2026-11-30T00:00:00.001Z"}
	envelope   = sandbox.Capabilities{Provider: "acme", ProviderRevision: "r1", MaterializationRevision: "m1", Placement: sandbox.PlacementHosted, Tiers: []sandbox.Tier{sandbox.TierContainer}, Platforms: []sandbox.Platform{{OS: "linux", Architecture: "arm64"}}, ImageMode: sandbox.ImageProfile, FixedBaseImages: []string{}, PackageManagers: []sandbox.PackageManager{}, NetworkModes: []sandbox.NetworkMode{sandbox.NetworkNone}, RetentionModes: []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}, Enforcement: sandbox.EnforcedBy(sandbox.ProviderAttested), MinimumResources: resources, MaximumResources: resources, MaxMounts: 1}
	evidence   = sandbox.EvidenceOf(instance, string(prID), envelope.Enforcement, then, then)
	command    = sandbox.Command{Executable: "sh", Arguments: []string{"-c", "\xff"}, WorkingDirectory: "/", Environment: map[string]string{"A": "\x80"}, TimeoutSeconds: 1, OutputLimitBytes: 2}
	live       = sandbox.ProcessRequest{Executable: "sh", Arguments: []string{}, WorkingDirectory: "/", Environment: map[string]string{}}
	one        = int64(1)
	minimum    = []sandbox.Operation{"capabilities", "provision", "write_file", "activate", "execute", "read_file", "release", "destroy", "destroy_snapshot", "cleanup"}
	answer     = CapabilitiesResponse{envelope, Info{Revision: Revision, Members: minimum, Limits: Limits{MaxWaitMS: 20000}}}
	exitedZero = sandbox.Exited(0)
)

// kind is one type of message: how it is decoded, and a value of it.
type kind struct {
	decode func([]byte) (Message, error)
	value  Message
}

func of[M Message](value M) kind {
	return kind{func(data []byte) (Message, error) {
		m, err := Decode[M](data)
		return m, err
	}, value}
}

var kinds = []kind{
	of(Empty{}), of(ProvisionRequest(provision)), of(InstanceRequest{"i"}), of(FileCall{"i", "/a\xff", 6, zero, true, "\xfe"}),
	of(ExecuteCall{"i", command}), of(ReadFileRequest{"i", "/a/b\xff", "/a", 1}),
	of(ReadFilesRequest{"i", "/a", []sandbox.FileMember{{Path: "/a/\xff", MaximumBytes: 1}}, 1}), of(ListRequest{"i", "/a\xff", 1}),
	of(SnapshotRequest{"i", then}), of(CloneRequest{Snapshot: reference, TargetSessionID: "t"}), of(ReleaseRequest{"i", ""}), of(ReleaseRequest{"i", then}),
	of(ResumeRequest{Request: provision, Snapshot: reference}), of(DestroySnapshotRequest{"n"}),
	of(CleanupRequest{Now: then, OrphanedBefore: then, PinnedSnapshots: []sandbox.SnapshotID{"n"}}),
	of(BeginActiveWriteRequest{"i", []string{"/a/\xff", "/a/b"}}), of(StageCall{"i", opID, "/a\xff", 6, zero, true, ""}),
	of(TransactionRequest{"i", opID}), of(Journal{sandbox.JournalDispatched}),
	of(OpenProcessRequest{"i", prID, live}), of(Opened{prID, evidence, 0, 1, 0, DefaultOutputWindowBytes}),
	of(StreamRequest{"i", prID, atID, 0, 0, DefaultHeartbeatMS}), of(InputCall{"i", prID, 3, true}), of(Window{3, 4}),
	of(WaitRequest{"i", prID, 30000}), of(Waited{Exit: &exitedZero}), of(Waited{Running: true}),
	of(SignalRequest{"i", prID, sandbox.SignalInterrupt}), of(Signaled{}), of(ProcessRequest{"i", prID}),
	of(OutEnd{zero, false, 9}), of(ErrEnd{9}), of(Exit(sandbox.Exited(255))), of(Exit(sandbox.Signaled("SIGRTMIN+15"))),
	of(Detach{Reason: DetachPollEnd}), of(Detach{Reason: DetachSuperseded, AttachID: atID}), of(Detach{Reason: DetachFenced, LeaseEpoch: 8}),
	of(Detach{Reason: DetachDraining}), of(Truncated{5}),
	of(Rollback{opID}), of(InstanceHandoff{instance, Rollback{opID}}), of(SnapshotHandoff{reference, Rollback{opID}}),
	of(ReleasedHandoff{sandbox.Released{Disposition: sandbox.DispositionReleased, Snapshot: &reference}, Rollback{opID}}),
	of(ExecuteResult{ExitCode: &one, StartedAt: then, FinishedAt: then}), of(ExecuteResult{TimedOut: true, StartedAt: then, FinishedAt: then}),
	of(FileResult{6, zero}), of(FileItem{Index: 0, Status: ItemOK, Size: &one, Digest: zero}), of(FileItem{Index: 1, Status: ItemRefused, Reason: sandbox.RefusedNotFound}),
	of(FilesResult{2, 1}), of(DirPage{[]sandbox.DirEntry{{Path: "a\xff", Size: 1, Digest: zero}}}), of(ProjectPage{[]sandbox.Leaf{{Path: "l", Type: sandbox.LeafSymlink, Target: "\xff"}}}),
	of(ListResult{1}), of(ProjectResult{1, true}), of(CleanupResult{InstanceIDs: []sandbox.InstanceID{"i"}, SnapshotIDs: []sandbox.SnapshotID{}}),
	of(RollbackRequest{opID, Provision}), of(Settled{true}), of(OperationRequest{opID, 0}), of(Running{opID, "running"}),
	of(answer), of(answer.Wire), of(errorBody{wireFields(&Error{Tag: TagOverloaded, Operation: "execute", RetryAfterMS: 1, Message: "\xff"})}),
}

func TestMessages_RoundTrip(t *testing.T) {
	for _, k := range kinds {
		data, err := Encode(k.value)
		if err != nil {
			t.Errorf("%T: %v", k.value, err)
			continue
		}
		back, err := k.decode(data)
		if err != nil || !equal(back, k.value) {
			t.Errorf("%T: %s\n%+v, %v", k.value, data, back, err)
		}
		if again, err := Encode(back); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%T: encoded again: %s, %v", k.value, again, err)
		}
	}
}

// TestMessages_AreClosed: for each type, an unknown key, another case of each
// key, each key twice, null for each value, and bytes after the object.
func TestMessages_AreClosed(t *testing.T) {
	for _, k := range kinds {
		data, err := Encode(k.value)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, broken []byte) {
			if m, err := k.decode(broken); err == nil {
				t.Errorf("%T: %s was taken: %s as %+v", k.value, what, broken, m)
			} else if Status(err) != 400 {
				t.Errorf("%T: %s: %v", k.value, what, err)
			}
		}
		sep := ","
		if string(data) == "{}" {
			sep = ""
		}
		refused("an unknown key", []byte(string(data[:len(data)-1])+sep+`"zz":1}`))
		refused("bytes after it", append(bytes.Clone(data), " {}"...))
		refused("null", []byte("null"))
		refused("a list", []byte("[]"))
		refused("a byte order mark", append([]byte("\ufeff"), data...))
		refused("an early end", data[:len(data)-1])
		typ := reflect.TypeOf(k.value)
		for i := range typ.NumField() {
			key, _, _ := bytes.Cut([]byte(typ.Field(i).Tag.Get("json")), []byte(","))
			if len(key) == 0 || string(key) == "-" {
				continue
			}
			refused("null for "+string(key), []byte(string(data[:len(data)-1])+sep+`"`+string(key)+`":null}`))
			quoted := []byte(`"` + string(key) + `":`)
			if at := bytes.Index(data, quoted); at >= 0 {
				title := bytes.Clone(data)
				title[at+1] -= 'a' - 'A'
				refused("case of "+string(key), title)
				var fields map[string]json.RawMessage
				if err := json.Unmarshal(data, &fields); err != nil {
					t.Fatal(err)
				}
				refused(string(key)+" twice", []byte(string(data[:len(data)-1])+","+string(quoted)+string(fields[string(key)])+"}"))
			}
		}
	}
}

func same(a, b Message) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }
