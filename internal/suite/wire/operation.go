package wire

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// operationProbes are of calls that are delivered more than once.
func operationProbes() []probe.Probe {
	operation := func(id, clause, title string, run func(*probe.T), requires ...report.Token) probe.Probe {
		return probe.Probe{ID: "wire.operation." + id, Suite: of, Clause: "CF-WI-" + clause, Title: title, Run: run,
			Source:   `docs/wire.md "Operations: a call that is delivered more than once"`,
			Requires: append([]report.Token{report.Process}, requires...)}
	}
	lost := operation("lost", "27", "a client whose answers are lost, cut and doubled has every effect once", answersLost)
	lost.Once = true
	return []probe.Probe{
		operation("at-once", "20", "one id that comes several times at once allocates once, and every delivery gets the same bytes", atOnce),
		operation("mismatch", "21", "an id that comes again with another body or to another endpoint is refused", mismatch),
		operation("again", "22", "a call that comes again gets the bytes of the first, and is not done again", again),
		operation("again.snapshots", "23", "a snapshot, clone, release or resume that comes again is the one that was", snapshotsAgain, report.SnapshotToken, report.Durable),
		operation("again.process", "24", "a live process that is opened again is the one that runs", openedAgain, report.OpenProcess),
		operation("again.active-write", "25", "a transaction whose answers were lost is inspected and goes on where it was", writesAgain, report.ActiveWrite, report.Mounts),
		operation("poll", "26", "what became of an operation is asked by its id, and an id that nobody used is unknown", polled),
		lost,
		operation("abandoned", "28", "a caller that goes away cancels nothing", abandoned),
		operation("crash", "29", "a command that comes again after a crash never runs again", rerun),
	}
}

// take destroys, at the end of the probe, the instance that a provision answered
// with.
func take(t *probe.T, l wire.Lease, a answer) {
	if h, err := wire.Decode[wire.InstanceHandoff](a.body); a.failure() == nil && err == nil {
		t.Defer((&own{t: t, id: h.Value.InstanceID, lease: l}).destroy)
	}
}

// same records whether two answers are the same one.
func same(t *probe.T, id string, first, next answer) bool {
	return t.Check(id, next.status == first.status && bytes.Equal(next.body, first.body), "the bytes of the first answer", next.words())
}

func (a answer) words() string {
	if failure := a.failure(); failure != nil {
		return failure.Error()
	}
	return "others"
}

func atOnce(t *probe.T) {
	o, made := provision(t, probe.Shape{})
	const deliveries = 3
	got, errs := make([]answer, deliveries), make([]error, deliveries)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i], errs[i] = deliver(t.Context(), t, made) })
	}
	all.Wait()
	for i, a := range got {
		t.Need("an-answer", errs[i])
		take(t, o.lease, a)
	}
	value[wire.InstanceHandoff](t, "provision", got[0])
	for _, a := range got[1:] {
		same(t, "at-once", got[0], a)
	}
	late := send(t, made)
	take(t, o.lease, late)
	same(t, "later", got[0], late)
}

func mismatch(t *probe.T) {
	o, made := provision(t, probe.Shape{})
	first := send(t, made)
	take(t, o.lease, first)
	o.id = value[wire.InstanceHandoff](t, "provision", first).Value.InstanceID
	other, _ := made.message.(wire.ProvisionRequest)
	other.RunID = t.ID("run_")
	made.message = other
	a := send(t, made)
	take(t, o.lease, a)
	refused(t, "body", a, wire.TagOperationMismatch)
	// A destroy that was taken for the provision, or done, would be seen here.
	elsewhere := o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id})
	elsewhere.operation = made.operation
	refused(t, "endpoint", send(t, elsewhere), wire.TagOperationMismatch)
	a = send(t, o.request(wire.Activate, wire.InstanceRequest{InstanceID: o.id}))
	t.Check("no-effect", a.failure() == nil, "an instance that is there", a.failure())
}

// twice sends a request under one id two times. Each answer is given to owners
// first: the second may be of something else.
func twice(t *probe.T, q request, owners ...func(answer)) answer {
	q.operation = wire.NewOperationID()
	ask := func() answer {
		a := send(t, q)
		for _, own := range owners {
			own(a)
		}
		return a
	}
	first := ask()
	t.Need(string(q.endpoint), first.failure())
	same(t, string(q.endpoint), first, ask())
	return first
}

// lines is what a script wrote, a line each time, into a file of the home directory.
func (o *own) lines(file string) string {
	_, out, err := settled(send(o.t, o.execute(`cat "$HOME"/`+file)))
	o.t.Need("counted", err)
	return strings.TrimSpace(string(out))
}

// file is the call that writes content to path.
func (o *own) file(path string, content []byte) request {
	q := o.request(wire.WriteFile, wire.FileCall{InstanceID: o.id, Path: path, Size: int64(len(content)), Digest: wire.RequestDigest(content)})
	q.data = content
	return q
}

func again(t *probe.T) {
	o := allocate(t, probe.Shape{})
	twice(t, o.request(wire.Activate, wire.InstanceRequest{InstanceID: o.id}))
	path, before, after := sandbox.OutputPath+"/"+t.Nonce(), t.Nonce(), t.Nonce()
	late := o.file(path, []byte(before))
	late.operation = wire.NewOperationID()
	first := send(t, late)
	t.Need("write_file", first.failure())
	t.Need("write_file", send(t, o.file(path, []byte(after))).failure())
	same(t, "write_file", first, send(t, late))
	_, out, err := settled(send(t, o.execute("cat "+path)))
	t.Check("written-once", err == nil && string(out) == after, after+", which was written later", string(out))
	count := t.Nonce()
	twice(t, o.execute(`echo x >>"$HOME"/`+count))
	got := o.lines(count)
	t.Check("run-once", got == "x", "x", got)
	twice(t, o.request(wire.Cleanup, wire.CleanupRequest{Now: sandbox.At(t.Now()), OrphanedBefore: "1970-01-01T00:00:00.000Z"}))
	twice(t, o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id}))
	for _, q := range []request{
		o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id}),
		o.request(wire.Destroy, wire.InstanceRequest{InstanceID: sandbox.InstanceID(t.ID("none-"))}),
		o.request(wire.DestroySnapshot, wire.DestroySnapshotRequest{SnapshotID: sandbox.SnapshotID(t.ID("none-"))}),
	} {
		a := send(t, q)
		t.Check("nothing-left", a.failure() == nil && string(bytes.TrimSpace(a.body)) == "{}", "{}", a.words())
	}
}

// durable allocates a machine that snapshots are taken of, and says when they
// end.
func durable(t *probe.T) (*own, sandbox.Timestamp) {
	return allocate(t, probe.Durable(probe.Shape{})).activate(), sandbox.At(t.Now().Add(time.Hour))
}

// taken destroys, at the end of the probe, the snapshot that an answer is of.
func (o *own) taken(a answer) {
	if h, err := wire.Decode[wire.SnapshotHandoff](a.body); a.failure() == nil && err == nil {
		o.forget(h.Value.SnapshotID)
	}
}

// released is taken for the answer of a release.
func (o *own) released(a answer) {
	if h, err := wire.Decode[wire.ReleasedHandoff](a.body); a.failure() == nil && err == nil && h.Value.Snapshot != nil {
		o.forget(h.Value.Snapshot.SnapshotID)
	}
}

// forget destroys a snapshot at the end of the probe.
func (o *own) forget(id sandbox.SnapshotID) {
	o.t.Defer(func() {
		undoing := o.request(wire.DestroySnapshot, wire.DestroySnapshotRequest{SnapshotID: id})
		_, _ = deliver(context.WithoutCancel(o.t.Context()), o.t, undoing)
	})
}

// resume is the call that makes an instance out of a snapshot, under a lease of
// its own.
func resume(t *probe.T, s sandbox.Snapshot) request {
	q := t.Request(probe.Durable(probe.Shape{}))
	q.Profile.ProfileID, q.Profile.ProfileVersion = s.ProfileID, s.ProfileVersion
	return request{endpoint: wire.Resume, lease: wire.Lease{ID: q.LeaseID, Epoch: q.LeaseEpoch}, message: wire.ResumeRequest{Request: q, Snapshot: s}}
}

func snapshotsAgain(t *probe.T) {
	o, expires := durable(t)
	taken := value[wire.SnapshotHandoff](t, "snapshot", twice(t, o.request(wire.Snapshot, wire.SnapshotRequest{InstanceID: o.id, ExpiresAt: expires}), o.taken)).Value
	q := resume(t, taken)
	value[wire.InstanceHandoff](t, "resume", twice(t, q, func(a answer) { take(t, q.lease, a) }))
	if t.Has(report.SnapshotClone) {
		value[wire.SnapshotHandoff](t, "clone_snapshot", twice(t, o.request(wire.CloneSnapshot, wire.CloneRequest{Snapshot: taken, TargetSessionID: t.ID("ses_")}), o.taken))
	}
	value[wire.ReleasedHandoff](t, "release", twice(t, o.request(wire.Release, wire.ReleaseRequest{InstanceID: o.id, ExpiresAt: expires}), o.released))
	twice(t, o.request(wire.DestroySnapshot, wire.DestroySnapshotRequest{SnapshotID: taken.SnapshotID}))
}

func openedAgain(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	count, ready := t.Nonce(), t.Nonce()+"\n"
	a := twice(t, o.opening(wire.NewProcessID(), `echo x >>"$HOME"/`+count+"; echo "+ready[:len(ready)-1]+"; exec cat"))
	_, err := o.attach(value[wire.Opened](t, "open", a), 0).says(ready)
	t.Need("runs", err)
	got := o.lines(count)
	t.Check("run-once", got == "x", "x", got)
}

func writesAgain(t *probe.T) {
	open := "/workspace/" + t.Nonce()
	shape := probe.Shape{Mounts: []sandbox.Mount{{MountPath: open, Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory}}}
	o := allocate(t, shape).activate()
	file, content := open+"/"+t.Nonce(), []byte(t.Nonce())
	begin := o.request(wire.BeginActiveWrite, wire.BeginActiveWriteRequest{InstanceID: o.id, Targets: []string{file}})
	begin.operation = wire.NewOperationID()
	first := send(t, begin)
	t.Need("begin_active_write", first.failure())
	same(t, "begin_active_write", first, send(t, begin))
	transaction := wire.TransactionRequest{InstanceID: o.id, TransactionID: begin.operation}
	state := func(id string, want sandbox.JournalState) {
		got := value[wire.Journal](t, id, send(t, o.request(wire.InspectActiveWrite, transaction))).Journal
		t.Check(id, got == want, string(want), string(got))
	}
	state("open", sandbox.JournalOpen)
	staged := o.request(wire.StageActiveWrite, wire.StageCall{
		InstanceID: o.id, TransactionID: begin.operation, Path: file, Size: int64(len(content)), Digest: wire.RequestDigest(content),
	})
	staged.data = content
	twice(t, staged)
	twice(t, o.request(wire.DispatchActiveWrite, transaction))
	state("committed", sandbox.JournalCommitted)
	a := send(t, o.request(wire.AbortActiveWrite, transaction))
	t.Refused("abort-after-dispatch", a.failure(), &sandbox.Error{Kind: sandbox.LifecycleConflict})
	_, out, err := settled(send(t, o.execute("cat "+file)))
	t.Check("published", err == nil && string(out) == string(content), string(content), string(out))
}

func polled(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	ask := func(id wire.OperationID) answer {
		return send(t, o.request(wire.PollOperation, wire.OperationRequest{OperationID: id, WaitMS: 1000}))
	}
	refused(t, "unknown", ask(wire.NewOperationID()), wire.TagOperationUnknown)
	is, _ := describe(t)
	if !is.Wire.AsyncOperations {
		return // one that holds every call has nothing to be asked
	}
	q := o.execute("echo " + t.Nonce())
	q.operation, q.wait = wire.NewOperationID(), -1
	a := send(t, q)
	last := a
	for range 60 {
		if last.status != 202 {
			break
		}
		running, err := wire.Decode[wire.Running](last.body)
		t.Check("running", err == nil && running.OperationID == q.operation, string(q.operation), string(last.body))
		last = ask(q.operation)
	}
	q.wait = 0
	final := send(t, q)
	t.Need("execute", final.failure())
	same(t, "answer", final, last)
	same(t, "answer", final, ask(q.operation))
}

func answersLost(t *probe.T) {
	faults := map[string]faultproxy.Fault{
		wire.Provision.Path(): {Kind: faultproxy.Echo},
		wire.Activate.Path():  {Kind: faultproxy.Double},
		wire.Execute.Path():   {Kind: faultproxy.Lose},
	}
	if t.StreamBytes() > wire.MaxFramedRequestBytes { // a client pauses before it sends again, which adds up in a short run
		faults[wire.Provision.Path()] = faultproxy.Fault{Kind: faultproxy.CutResponse, After: 40}
		faults[wire.WriteFile.Path()] = faultproxy.Fault{Kind: faultproxy.Echo}
		faults[wire.Destroy.Path()] = faultproxy.Fault{Kind: faultproxy.Untyped}
	}
	c, proxy := link(t, wire.Lease{}, func(e faultproxy.Exchange) faultproxy.Fault {
		if e.Nth > 0 {
			return faultproxy.Fault{}
		}
		return faults[e.Path[max(strings.LastIndex(e.Path, "/v1/"), 0):]]
	})
	t.Via(c)
	m := t.Machine(probe.Shape{Files: []sandbox.FileWrite{{Path: sandbox.OutputPath + "/" + t.Nonce(), Content: []byte("x")}}})
	count := t.Nonce()
	s := m.Sh(`echo x >>"$HOME"/` + count)
	t.Check("settled", probe.Code(s) == 0, "0", probe.Code(s))
	s = m.Sh(`cat "$HOME"/` + count)
	t.Check("run-once", string(s.Stdout) == "x\n", "x", s.Stdout)
	t.Need("destroy", t.Provider().Destroy(t.Context(), m.ID))
	done := proxy.Faults()
	t.Control("faults", len(done) == len(faults), strconv.Itoa(len(done))+" kinds of fault were made")
}

func abandoned(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	count := t.Nonce()
	q := o.execute(`echo x >>"$HOME"/` + count)
	q.operation = wire.NewOperationID()
	c := dial(t)
	_, err := c.Write(written(t, q))
	t.Need("sent", err)
	c.Close()
	// It was whole when its caller went. Whether it was taken is the same: this
	// delivery joins it, or is the first.
	_, _, err = settled(send(t, q))
	t.Check("answered", err == nil, "the answer of the command", err)
	got := o.lines(count)
	t.Check("run-once", got == "x", "x", got)
}

func rerun(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	count := t.Nonce()
	q := o.execute(`echo x >>"$HOME"/` + count)
	q.operation = wire.NewOperationID()
	first := send(t, q)
	t.Need("execute", first.failure())
	t.Restart()
	next := send(t, q)
	_, _, failure := settled(next)
	gone := errors.Is(failure, &sandbox.Error{Kind: sandbox.InstanceNotFound})
	t.Check("answer", gone || bytes.Equal(first.body, next.body) ||
		errors.Is(failure, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonIndeterminate}),
		"the stored answer, indeterminate, or that the instance is gone", next.words())
	// A stored answer may outlive the instance, which a crash may have taken.
	if _, _, err := settled(send(t, o.execute("true"))); gone || errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}) {
		return
	}
	got := o.lines(count)
	t.Check("run-once", got == "x", "x", got)
}
