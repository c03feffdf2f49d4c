package wire

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// fenceProbes are of two Runners that believe that they hold one session, and
// of a provider that comes back after a crash.
func fenceProbes() []probe.Probe {
	fence := func(id, clause, title string, run func(*probe.T), requires ...report.Token) probe.Probe {
		return probe.Probe{ID: "wire.fence." + id, Suite: of, Clause: "CF-WF-" + clause, Title: title, Run: run,
			Source: `docs/wire.md "Fencing"`, Requires: append([]report.Token{report.Process}, requires...)}
	}
	lost := fence("crash", "08", "a live process whose provider crashed goes on where it was or is lost by name, and no exit is invented", crashed, report.OpenProcess)
	lost.Source = `docs/wire.md "A live process"`
	return []probe.Probe{
		fence("stale", "01", "a call of an overtaken epoch is refused by every endpoint, and does nothing", staleRefused),
		fence("stream", "02", "a higher epoch ends the streams of lower ones, and nothing comes behind that", streamFenced, report.OpenProcess),
		fence("takeover", "03", "the next epoch has the live process, with all of its output and its input", takenOver, report.OpenProcess),
		fence("other-lease", "04", "a lease does nothing to the instance of another", otherLease),
		fence("reconciler", "05", "a reconciler destroys under a lease of its own", reconciled),
		fence("rollback", "06", "what an overtaken epoch began is rolled back by its id in the next", rolledBackLater),
		fence("durable", "07", "an epoch that was seen is known after a crash", epochKept),
		lost,
	}
}

// scoped is one request for each endpoint that is served and works on an
// instance. None of them would be right but for its lease.
func scoped(t *probe.T, id sandbox.InstanceID) map[wire.Endpoint]wire.Message {
	file, expires, live := sandbox.HomePath+"/"+t.Nonce(), sandbox.At(t.Now().Add(time.Hour)), wire.NewProcessID()
	all := map[wire.Endpoint]wire.Message{
		wire.WriteFile: wire.FileCall{InstanceID: id, Path: file, Digest: emptyDigest},
		wire.Activate:  wire.InstanceRequest{InstanceID: id},
		wire.Execute:   wire.ExecuteCall{InstanceID: id, Command: probe.Command("true")},
		wire.ReadFile:  wire.ReadFileRequest{InstanceID: id, Path: file, AllowedRoot: sandbox.HomePath, MaximumBytes: 1},
		wire.Destroy:   wire.InstanceRequest{InstanceID: id},
		wire.Cleanup:   wire.CleanupRequest{Now: sandbox.At(t.Now()), OrphanedBefore: "1970-01-01T00:00:00.000Z"},
		wire.Release:   wire.ReleaseRequest{InstanceID: id},

		wire.RollbackOperation: wire.RollbackRequest{OperationID: wire.NewOperationID(), Member: wire.Provision},
		wire.PollOperation:     wire.OperationRequest{OperationID: wire.NewOperationID()},
	}
	optional := t.Optional()
	if optional.ReadFiles != nil {
		all[wire.ReadFiles] = wire.ReadFilesRequest{InstanceID: id, AllowedRoot: sandbox.HomePath, Files: []sandbox.FileMember{{Path: file, MaximumBytes: 1}}, AggregateMaximumBytes: 1}
	}
	if optional.ListDir != nil {
		all[wire.ListDir] = wire.ListRequest{InstanceID: id, Root: sandbox.HomePath, MaxEntries: 1}
	}
	if optional.ListProjectDir != nil {
		all[wire.ListProjectDir] = wire.ListRequest{InstanceID: id, Root: sandbox.HomePath, MaxEntries: 1}
	}
	if t.Has(report.SnapshotToken) {
		all[wire.Snapshot] = wire.SnapshotRequest{InstanceID: id, ExpiresAt: expires}
		all[wire.DestroySnapshot] = wire.DestroySnapshotRequest{SnapshotID: sandbox.SnapshotID(t.ID("none-"))}
	}
	if optional.ActiveWrite != nil {
		transaction := wire.TransactionRequest{InstanceID: id, TransactionID: wire.NewOperationID()}
		all[wire.BeginActiveWrite] = wire.BeginActiveWriteRequest{InstanceID: id, Targets: []string{file}}
		all[wire.StageActiveWrite] = wire.StageCall{InstanceID: id, TransactionID: transaction.TransactionID, Path: file, Digest: emptyDigest}
		all[wire.DispatchActiveWrite], all[wire.AbortActiveWrite], all[wire.InspectActiveWrite] = transaction, transaction, transaction
	}
	if optional.OpenProcess != nil {
		all[wire.OpenProcess] = wire.OpenProcessRequest{InstanceID: id, ProcessID: live, Process: process("true")}
		all[wire.ProcessStream] = wire.StreamRequest{InstanceID: id, ProcessID: live, AttachID: wire.NewAttachID(), HeartbeatMS: wire.MinHeartbeatMS}
		all[wire.ProcessInput] = wire.InputCall{InstanceID: id, ProcessID: live}
		all[wire.ProcessWait] = wire.WaitRequest{InstanceID: id, ProcessID: live}
		all[wire.ProcessSignal] = wire.SignalRequest{InstanceID: id, ProcessID: live, Signal: sandbox.SignalKill}
		all[wire.ProcessDestroy] = wire.ProcessRequest{InstanceID: id, ProcessID: live}
	}
	return all
}

// emptyDigest is of no bytes.
const emptyDigest sandbox.Digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func staleRefused(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	o.raise()
	mark := t.Nonce()
	all := scoped(t, o.id)
	all[wire.Execute] = wire.ExecuteCall{InstanceID: o.id, Command: probe.Command(`echo ran >"$HOME"/` + mark)}
	for _, e := range wire.Endpoints() {
		message, served := all[e]
		if !served {
			continue
		}
		a := send(t, request{endpoint: e, lease: o.stale(), message: message})
		if refused(t, string(e), a, wire.TagLeaseFenced) {
			_, fenced := refusedBy(a)
			t.Check("current-epoch", fenced.LeaseEpoch == o.lease.Epoch, strconv.FormatInt(o.lease.Epoch, 10), fenced.LeaseEpoch)
		}
	}
	r, _, err := settled(send(t, o.execute(`test ! -e "$HOME"/`+mark)))
	t.Check("no-effect", err == nil && r.ExitCode != nil && *r.ExitCode == 0, "a machine that lives, in which nothing ran", err)
}

// quick is how long may take what takes no time: a second is what a provider
// has to end a stream, the rest is for a machine that is busy.
const quick = 5 * time.Second

func streamFenced(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	s := o.attach(p, 0)
	_, _, err := s.until(is(wire.TypeOpen))
	t.Need("opened", err)
	o.raise()
	s.limit(quick)
	f, _, err := s.until(is(wire.TypeDetach))
	if !t.Check("ended", err == nil, "a detach within "+quick.String(), err) {
		return
	}
	d, err := wire.Decode[wire.Detach](f.Payload)
	t.Check("reason", err == nil && d.Reason == wire.DetachFenced, string(wire.DetachFenced), d.Reason)
	// The process goes on for its new owner, and nothing of it leaks to the old.
	value[wire.Window](t, "input", o.input(p, 0, t.Nonce()+"\n", false))
	s.limit(quick)
	f, err = s.Next()
	t.Check("nothing-behind", err == io.EOF, "the end of the body", "a frame of type "+strconv.Itoa(int(f.Type)))
}

func takenOver(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	before, after := t.Nonce()+"\n", t.Nonce()+"\n"
	value[wire.Window](t, "input", o.input(p, 0, before, false))
	o.raise()
	value[wire.Window](t, "next-input", o.input(p, int64(len(before)), after, true))
	s := o.attach(p, 0)
	_, out, err := s.until(is(wire.TypeOutEnd))
	t.Check("output", err == nil && string(out) == before+after, before+after, string(out))
}

// exempt from the owner's lease are the calls of reconcilers, those that name
// no instance, and those of a transaction, which is not there.
var exempt = map[wire.Endpoint]bool{
	wire.Destroy: true, wire.DestroySnapshot: true, wire.Cleanup: true, wire.RollbackOperation: true, wire.PollOperation: true,
	wire.StageActiveWrite: true, wire.DispatchActiveWrite: true, wire.AbortActiveWrite: true, wire.InspectActiveWrite: true,
}

func otherLease(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	all := scoped(t, o.id)
	for _, e := range wire.Endpoints() {
		if message, served := all[e]; served && !exempt[e] {
			// A higher epoch of another lease is no better.
			a := send(t, request{endpoint: e, lease: wire.Lease{ID: t.ID("lease_"), Epoch: o.lease.Epoch + 1}, message: message})
			refused(t, string(e), a, wire.TagLeaseFenced)
		}
	}
	_, _, err := settled(send(t, o.execute("true")))
	t.Check("owner", err == nil, "a machine that its own lease still has", err)
}

func reconciled(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	a := send(t, request{endpoint: wire.Destroy, lease: wire.Lease{ID: t.ID("lease_")}, message: wire.InstanceRequest{InstanceID: o.id}})
	t.Check("taken", a.failure() == nil, "{}", a.failure())
	_, _, err := settled(send(t, o.execute("true")))
	t.Refused("gone", err, &sandbox.Error{Kind: sandbox.InstanceNotFound})
}

func rolledBackLater(t *probe.T) {
	o := allocate(t, probe.Shape{})
	o.raise()
	o.undone(o.made, wire.Provision)
	o.gone("gone")
}

func epochKept(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	o.raise()
	t.Restart()
	mark := t.Nonce()
	q := o.execute(`echo ran >"$HOME"/` + mark)
	q.lease = o.stale()
	_, _, err := settled(send(t, q))
	// One that forgets what it knows of leases must have forgotten its machines.
	t.Check("refused", errors.Is(err, &wire.Error{Tag: wire.TagLeaseFenced}) || errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}),
		string(wire.TagLeaseFenced)+", or an instance that is gone", err)
}

func crashed(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	mark := t.Nonce() + "\n"
	value[wire.Window](t, "input", o.input(p, 0, mark, false))
	got, err := o.attach(p, 0).says(mark)
	t.Check("output", err == nil && got == mark, mark, got)
	t.Restart()
	a := send(t, o.request(wire.ProcessWait, wire.WaitRequest{InstanceID: o.id, ProcessID: p.ProcessID}))
	failure := a.failure()
	if failure != nil {
		t.Check("by-name", errors.Is(failure, &wire.Error{Tag: wire.TagProcessNotFound}) ||
			errors.Is(failure, &sandbox.Error{Kind: sandbox.InstanceNotFound}) ||
			errors.Is(failure, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonProcessLost}),
			"process_lost, or that there is no such process or instance", failure)
		return
	}
	w := value[wire.Waited](t, "wait", a)
	// It reads an input that nobody ended, so it cannot have exited by itself.
	if !t.Check("no-exit", w.Exit == nil || w.Exit.ExitCode == nil, "no exit that nobody saw", w.Exit) || w.Exit != nil {
		return
	}
	value[wire.Window](t, "goes-on", o.input(p, int64(len(mark)), mark, true))
	_, out, err := o.attach(p, 0).until(is(wire.TypeOutEnd))
	t.Check("resumed", err == nil && string(out) == mark+mark, mark+mark, string(out))
}
