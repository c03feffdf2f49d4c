package wire

import (
	"errors"
	"sync"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// rollbackProbes are of what undoes an allocation by the id of its operation.
func rollbackProbes() []probe.Probe {
	rollback := func(id, clause, title string, run func(*probe.T), requires ...report.Token) probe.Probe {
		return probe.Probe{ID: "wire.rollback." + id, Suite: of, Clause: "CF-WI-" + clause, Title: title, Run: run,
			Source: `docs/wire.md "Handoff and rollback"`, Requires: append([]report.Token{report.Process}, requires...)}
	}
	return []probe.Probe{
		rollback("early", "30", "a rollback that comes before its original, or while that runs, settles, and the original leaves nothing", undoneEarly),
		rollback("after", "31", "a rollback by the id alone takes the instance away, as often as it comes", undoneAfter),
		rollback("activate", "32", "the rollback of an activation takes the instance away", undoneActivation),
		rollback("owned", "33", "an allocation that was named is its caller's: a late rollback is refused, and does nothing", owned),
		rollback("snapshots", "34", "the rollback of a snapshot, a clone, a release or a resume takes away what that made, and nothing else", undoneSnapshots, report.SnapshotToken, report.Durable),
	}
}

// back is the rollback of one operation.
func (o *own) back(id wire.OperationID, member wire.Endpoint) request {
	return o.request(wire.RollbackOperation, wire.RollbackRequest{OperationID: id, Member: member})
}

// undone rolls an operation back and wants it settled.
func (o *own) undone(id wire.OperationID, member wire.Endpoint) answer {
	a := send(o.t, o.back(id, member))
	settled := value[wire.Settled](o.t, "settled", a)
	o.t.Check("settled", settled.Settled, "settled: true", string(a.body))
	return a
}

// gone records that the instance is not there any more.
func (o *own) gone(id string) {
	a := send(o.t, o.request(wire.Activate, wire.InstanceRequest{InstanceID: o.id}))
	o.t.Refused(id, a.failure(), &sandbox.Error{Kind: sandbox.InstanceNotFound})
}

func undoneEarly(t *probe.T) {
	undoneMeanwhile(t)
	o, q := provision(t, probe.Shape{})
	o.undone(o.made, wire.Provision)
	a := send(t, q)
	take(t, o.lease, a)
	refused(t, "late", a, wire.TagOperationRolledBack)
}

func undoneMeanwhile(t *probe.T) {
	for range 4 { // one of them may meet it at work
		o, q := provision(t, probe.Shape{})
		ctx := t.Context()
		var made, undone answer
		var failed, unsettled error
		var both sync.WaitGroup
		both.Go(func() { made, failed = deliver(ctx, t, q) })
		both.Go(func() { undone, unsettled = deliver(ctx, t, o.back(o.made, wire.Provision)) })
		both.Wait()
		t.Need("an-answer", errors.Join(failed, unsettled))
		take(t, o.lease, made)
		value[wire.Settled](t, "settled", undone)
		if h, err := wire.Decode[wire.InstanceHandoff](made.body); made.failure() == nil && err == nil {
			o.id = h.Value.InstanceID
			o.gone("gone")
		}
		late := send(t, q)
		take(t, o.lease, late)
		refused(t, "late", late, wire.TagOperationRolledBack)
	}
}

func undoneAfter(t *probe.T) {
	o := allocate(t, probe.Shape{})
	first := o.undone(o.made, wire.Provision)
	same(t, "again", first, send(t, o.back(o.made, wire.Provision)))
	o.gone("gone")
}

func undoneActivation(t *probe.T) {
	o := allocate(t, probe.Shape{})
	q := o.request(wire.Activate, wire.InstanceRequest{InstanceID: o.id})
	q.operation = wire.NewOperationID()
	t.Need("activate", send(t, q).failure())
	o.undone(q.operation, wire.Activate)
	_, _, err := settled(send(t, o.execute("true")))
	t.Refused("gone", err, &sandbox.Error{Kind: sandbox.InstanceNotFound})
}

func owned(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	_, _, err := settled(send(t, o.execute("true")))
	t.Need("execute", err)
	a := send(t, o.back(o.made, wire.Provision))
	t.Refused("refused", a.failure(), &sandbox.Error{Kind: sandbox.LifecycleConflict})
	_, _, err = settled(send(t, o.execute("true")))
	t.Check("no-effect", err == nil, "a machine that its owner still has", err)
}

func undoneSnapshots(t *probe.T) {
	o, expires := durable(t)
	make := func(q request) (wire.OperationID, answer) {
		q.operation = wire.NewOperationID()
		a := send(t, q)
		t.Need(string(q.endpoint), a.failure())
		return q.operation, a
	}
	// there says whether something can be made of a snapshot, and forgets it.
	there := func(s sandbox.Snapshot) error {
		q := resume(t, s)
		a := send(t, q)
		take(t, q.lease, a)
		return a.failure()
	}
	kept := func() sandbox.Snapshot {
		_, a := make(o.request(wire.Snapshot, wire.SnapshotRequest{InstanceID: o.id, ExpiresAt: expires}))
		s := value[wire.SnapshotHandoff](t, "snapshot", a).Value
		o.forget(s.SnapshotID)
		return s
	}
	lost := &sandbox.Error{Kind: sandbox.SnapshotNotFound}

	id, a := make(o.request(wire.Snapshot, wire.SnapshotRequest{InstanceID: o.id, ExpiresAt: expires}))
	taken := value[wire.SnapshotHandoff](t, "snapshot", a).Value
	o.forget(taken.SnapshotID)
	o.undone(id, wire.Snapshot)
	t.Refused("snapshot", there(taken), lost)
	source := kept()

	if t.Has(report.SnapshotClone) {
		id, a := make(o.request(wire.CloneSnapshot, wire.CloneRequest{Snapshot: source, TargetSessionID: t.ID("ses_")}))
		clone := value[wire.SnapshotHandoff](t, "clone_snapshot", a).Value
		o.forget(clone.SnapshotID)
		o.undone(id, wire.CloneSnapshot)
		next := o.request(wire.CloneSnapshot, wire.CloneRequest{Snapshot: clone, TargetSessionID: t.ID("ses_")})
		t.Refused("clone", send(t, next).failure(), lost)
	}

	q := resume(t, source)
	id, a = make(q)
	take(t, q.lease, a)
	resumed := &own{t: t, lease: q.lease, id: value[wire.InstanceHandoff](t, "resume", a).Value.InstanceID}
	resumed.undone(id, wire.Resume)
	resumed.gone("resume")
	err := there(source)
	t.Check("source", err == nil, "a snapshot that is there", err)

	id, a = make(o.request(wire.Release, wire.ReleaseRequest{InstanceID: o.id, ExpiresAt: expires}))
	released := value[wire.ReleasedHandoff](t, "release", a).Value.Snapshot
	if released == nil {
		t.Fatal("release", "a snapshot", "none")
	}
	o.forget(released.SnapshotID)
	o.undone(id, wire.Release)
	t.Refused("release", there(*released), lost)
	o.gone("released")
}
