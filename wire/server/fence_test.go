package server

import (
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// everyScoped is one request for each endpoint that works on an instance.
func everyScoped(id sandbox.InstanceID) map[wire.Endpoint]wire.Message {
	exp := provisionRequest().ExpiresAt
	tx := wire.TransactionRequest{InstanceID: id, TransactionID: wire.NewOperationID()}
	pr := wire.NewProcessID()
	return map[wire.Endpoint]wire.Message{
		wire.WriteFile:        wire.FileCall{InstanceID: id, Path: "/mnt/rw/f", Digest: digestOf(nil)},
		wire.BeginActiveWrite: wire.BeginActiveWriteRequest{InstanceID: id, Targets: []string{"/mnt/rw/f"}},
		wire.Activate:         wire.InstanceRequest{InstanceID: id},
		wire.Execute:          wire.ExecuteCall{InstanceID: id, Command: command("echo ran > /mnt/rw/ran")},
		wire.ReadFile:         wire.ReadFileRequest{InstanceID: id, Path: "/mnt/rw/f", AllowedRoot: "/mnt/rw", MaximumBytes: 1},
		wire.ReadFiles:        wire.ReadFilesRequest{InstanceID: id, AllowedRoot: "/mnt/rw", Files: []sandbox.FileMember{}},
		wire.ListDir:          wire.ListRequest{InstanceID: id, Root: "/mnt/rw", MaxEntries: 1},
		wire.ListProjectDir:   wire.ListRequest{InstanceID: id, Root: "/mnt/rw", MaxEntries: 1},
		wire.Snapshot:         wire.SnapshotRequest{InstanceID: id, ExpiresAt: exp},
		wire.Release:          wire.ReleaseRequest{InstanceID: id, ExpiresAt: exp},
		wire.OpenProcess: wire.OpenProcessRequest{InstanceID: id, ProcessID: pr, Process: sandbox.ProcessRequest{
			Executable: "cat", Arguments: []string{}, WorkingDirectory: "/", Environment: map[string]string{},
		}},
		wire.ProcessStream:  wire.StreamRequest{InstanceID: id, ProcessID: pr, AttachID: wire.NewAttachID(), HeartbeatMS: 1000},
		wire.ProcessInput:   wire.InputCall{InstanceID: id, ProcessID: pr},
		wire.ProcessWait:    wire.WaitRequest{InstanceID: id, ProcessID: pr},
		wire.ProcessSignal:  wire.SignalRequest{InstanceID: id, ProcessID: pr, Signal: sandbox.SignalKill},
		wire.ProcessDestroy: wire.ProcessRequest{InstanceID: id, ProcessID: pr},
		wire.StageActiveWrite: wire.StageCall{
			InstanceID: id, TransactionID: tx.TransactionID, Path: "/mnt/rw/f", Digest: digestOf(nil),
		},
		wire.DispatchActiveWrite: tx, wire.AbortActiveWrite: tx, wire.InspectActiveWrite: tx,
	}
}

func TestW87AStaleEpochIsRefusedByEveryMember(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	f.lease.Epoch = 5
	ok[wire.CapabilitiesResponse](f, f.call(wire.Capabilities, "", wire.Empty{}))
	f.frames(f.call(wire.ListDir, "", wire.ListRequest{InstanceID: id, Root: "/mnt/rw", MaxEntries: 1}).body)
	f.lease.Epoch = 4
	all := everyScoped(id)
	r := provisionRequest()
	r.LeaseEpoch = 4
	exp := r.ExpiresAt
	all[wire.Provision] = r
	s := sandbox.Snapshot{ProfileDigest: sandbox.ImageDigest(image), CreatedAt: exp, ExpiresAt: exp}
	all[wire.CloneSnapshot] = wire.CloneRequest{Snapshot: s}
	all[wire.Resume] = wire.ResumeRequest{Request: sandbox.ProvisionRequest(r), Snapshot: s}
	all[wire.Destroy] = wire.InstanceRequest{InstanceID: id}
	all[wire.DestroySnapshot] = wire.DestroySnapshotRequest{SnapshotID: "s"}
	all[wire.Cleanup] = wire.CleanupRequest{Now: exp, OrphanedBefore: exp}
	all[wire.RollbackOperation] = rollbackOf(wire.NewOperationID(), wire.Provision)
	all[wire.PollOperation] = wire.OperationRequest{OperationID: wire.NewOperationID()}
	if len(all) != 28 {
		t.Errorf("%d endpoints", len(all))
	}
	ops := len(f.s.journal.ops)
	for e, m := range all {
		if got := f.wantTag(f.call(e, "", m), wire.TagLeaseFenced); got.LeaseEpoch != 5 {
			t.Errorf("%s: current epoch %d", e, got.LeaseEpoch)
		}
	}
	f.census(1)
	if len(f.s.journal.ops) != ops {
		t.Error("operations were begun")
	}
}

func TestW89AnotherLeaseIsRefusedOnAnInstance(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	f.lease = wire.Lease{ID: "other", Epoch: 9}
	for e, m := range everyScoped(id) {
		want := wire.TagLeaseFenced
		switch e {
		case wire.StageActiveWrite, wire.DispatchActiveWrite, wire.AbortActiveWrite, wire.InspectActiveWrite:
			want = wire.TagOperationUnknown // its transaction is another's
		}
		if got := f.wantTag(f.call(e, "", m), want); want == wire.TagLeaseFenced && got.LeaseEpoch != 1 {
			t.Errorf("%s: epoch %d", e, got.LeaseEpoch)
		}
	}
	f.census(1)
	// Nobody's instance is nobody's.
	for e, m := range everyScoped("nobody") {
		switch r := f.call(e, "", m); e {
		case wire.StageActiveWrite, wire.DispatchActiveWrite, wire.AbortActiveWrite, wire.InspectActiveWrite:
			f.wantTag(r, wire.TagOperationUnknown)
		default:
			f.want(r, &sandbox.Error{Kind: sandbox.InstanceNotFound, ID: "nobody"})
		}
	}
	// A reconciler may end what is not its own.
	ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: id}))
	f.census(0)
}

func TestW88AHigherEpochSilencesTheOldStream(t *testing.T) {
	l, p := pick(t, nil)
	s := l.attach(0)
	l.say(p, "old")
	if f := s.next(); f.Type != wire.TypeOut {
		t.Fatalf("%x", f.Type)
	}
	began := time.Now()
	l.lease.Epoch = 7
	next := l.attach(0)
	got := s.drain(3)
	if got.detach == nil || got.detach.Reason != wire.DetachFenced || got.detach.LeaseEpoch != 7 || len(got.out) != 0 {
		t.Errorf("%+v %v", got.detach, got.order)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("after %v", d)
	}
	// Neither input nor a new attachment of the old epoch.
	l.lease.Epoch = 1
	l.wantTag(l.send(0, []byte("x"), false), wire.TagLeaseFenced)
	l.wantTag(l.open(0, 0).refused(), wire.TagLeaseFenced)
	l.lease.Epoch = 7
	p.close(0)
	next.complete(next.drain(0), 0)
}

func TestW88AnEpochThatRisesWhileInputIsOnItsWay(t *testing.T) {
	// What was admitted before the rise is checked again under the lock that
	// appends.
	f := newFixture(t, nil)
	old := wire.Lease{ID: "l", Epoch: 1}
	_, err := f.s.leases.admit(old)
	f.must(err)
	_, err = f.s.leases.admit(wire.Lease{ID: "l", Epoch: 2})
	f.must(err)
	if err := f.s.leases.current(old); !errors.Is(err, &wire.Error{Tag: wire.TagLeaseFenced}) {
		t.Errorf("%v", err)
	}
	if raised, err := f.s.leases.admit(wire.Lease{ID: "l", Epoch: 2}); raised || err != nil {
		t.Errorf("%v %v", raised, err)
	}
}

func TestW88AnOperationOfTheOldEpochStaysRollbackable(t *testing.T) {
	f := newFixture(t, nil)
	op := wire.NewOperationID()
	f.provision(op)
	f.lease.Epoch = 2
	f.rollback(op, wire.Provision)
	f.census(0)
}
