package server

import (
	"bytes"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func TestEveryMemberAnswers(t *testing.T) {
	f := newFixture(t, nil)
	caps := ok[wire.CapabilitiesResponse](f, f.call(wire.Capabilities, "", wire.Empty{}))
	if len(caps.Wire.Members) != 18 || !caps.Wire.AsyncOperations {
		t.Errorf("%+v", caps.Wire)
	}
	id := f.provision("").Value.InstanceID
	write := wire.FileCall{InstanceID: id, Path: "/mnt/rw/a", Size: 5, Digest: digestOf([]byte("hello"))}
	ok[wire.Empty](f, f.call(wire.WriteFile, "", write, []byte("hello")...))
	f.activate(id)

	r := f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("cat /mnt/rw/a -; echo bad >&2")}, []byte(" world")...)
	all := f.frames(r.body)
	if got := f.output(all, wire.TypeOut); string(got) != "hello world" {
		t.Errorf("stdout %q", got)
	}
	if got := f.output(all, wire.TypeErr); string(got) != "bad\n" {
		t.Errorf("stderr %q", got)
	}
	if last := all[len(all)-1]; last.Type != wire.TypeResult {
		t.Errorf("last frame %x", last.Type)
	}

	all = f.frames(f.call(wire.ReadFile, "", wire.ReadFileRequest{InstanceID: id, Path: "/mnt/rw/a", AllowedRoot: "/mnt/rw", MaximumBytes: 100}).body)
	if len(all) != 2 || string(all[0].Payload) != "hello" {
		t.Errorf("%q", all)
	}
	all = f.frames(f.call(wire.ReadFiles, "", wire.ReadFilesRequest{
		InstanceID: id, AllowedRoot: "/mnt/rw", AggregateMaximumBytes: 200,
		Files: []sandbox.FileMember{{Path: "/mnt/rw/a", MaximumBytes: 100}, {Path: "/mnt/rw/none", MaximumBytes: 100}},
	}).body)
	if len(all) != 4 || all[1].Type != wire.TypeItem || all[2].Type != wire.TypeItem {
		t.Errorf("%q", all)
	}
	for _, e := range []wire.Endpoint{wire.ListDir, wire.ListProjectDir} {
		all = f.frames(f.call(e, "", wire.ListRequest{InstanceID: id, Root: "/mnt/rw", MaxEntries: 10}).body)
		if len(all) != 2 || !bytes.Contains(all[0].Payload, []byte(`"a"`)) {
			t.Errorf("%s %q", e, all)
		}
	}

	begin := wire.NewOperationID()
	ok[wire.Journal](f, f.call(wire.BeginActiveWrite, begin, wire.BeginActiveWriteRequest{InstanceID: id, Targets: []string{"/mnt/rw/b"}}))
	stage := wire.StageCall{InstanceID: id, TransactionID: begin, Path: "/mnt/rw/b", Size: 1, Digest: digestOf([]byte("b"))}
	ok[wire.Journal](f, f.call(wire.StageActiveWrite, "", stage, 'b'))
	tx := wire.TransactionRequest{InstanceID: id, TransactionID: begin}
	if j := ok[wire.Journal](f, f.call(wire.InspectActiveWrite, "", tx)); j.Journal != sandbox.JournalOpen {
		t.Error(j)
	}
	if j := ok[wire.Journal](f, f.call(wire.DispatchActiveWrite, "", tx)); j.Journal != sandbox.JournalCommitted {
		t.Error(j)
	}

	exp := provisionRequest().ExpiresAt
	snap := ok[wire.SnapshotHandoff](f, f.call(wire.Snapshot, "", wire.SnapshotRequest{InstanceID: id, ExpiresAt: exp})).Value
	clone := ok[wire.SnapshotHandoff](f, f.call(wire.CloneSnapshot, "", wire.CloneRequest{Snapshot: snap, TargetSessionID: "other"})).Value
	rel := ok[wire.ReleasedHandoff](f, f.call(wire.Release, "", wire.ReleaseRequest{InstanceID: id, ExpiresAt: exp})).Value
	q := provisionRequest()
	again := ok[wire.InstanceHandoff](f, f.call(wire.Resume, "", wire.ResumeRequest{Request: sandbox.ProvisionRequest(q), Snapshot: *rel.Snapshot})).Value
	ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: again.InstanceID}))
	for _, s := range []sandbox.Snapshot{snap, clone, *rel.Snapshot} {
		ok[wire.Empty](f, f.call(wire.DestroySnapshot, "", wire.DestroySnapshotRequest{SnapshotID: s.SnapshotID}))
	}
	ok[wire.CleanupResult](f, f.call(wire.Cleanup, "", wire.CleanupRequest{Now: sandbox.At(start), OrphanedBefore: sandbox.At(start)}))
	if left := f.memory.Census(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
