package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

func rollbackOf(op wire.OperationID, e wire.Endpoint) wire.RollbackRequest {
	return wire.RollbackRequest{OperationID: op, Member: e}
}

func (f *fixture) rollback(op wire.OperationID, e wire.Endpoint) {
	f.Helper()
	ok[wire.Settled](f, f.call(wire.RollbackOperation, "", rollbackOf(op, e)))
}

func (f *fixture) census(want int) {
	f.Helper()
	if left := f.memory.Census(); len(left) != want {
		f.Errorf("left: %v, want %d", left, want)
	}
}

func TestW25TheSameIDTwiceAtOnceAllocatesOnce(t *testing.T) {
	h, calls, gate := &hooked{}, atomic.Int64{}, make(chan struct{})
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		calls.Add(1)
		<-gate
		return h.Provider.Provision(ctx, r)
	}
	f := newFixture(t, hook(h))
	op := wire.NewOperationID()
	answers := make(chan response, 3)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { answers <- f.call(wire.Provision, op, provisionRequest()) })
	}
	for len(f.s.calls) < 3 { // all three are held
		runtime.Gosched()
	}
	close(gate)
	group.Wait()
	first := <-answers
	for range 2 {
		if next := <-answers; next.status != 200 || !bytes.Equal(first.body, next.body) {
			t.Errorf("%d %s\n%d %s", first.status, first.body, next.status, next.body)
		}
	}
	if late := f.call(wire.Provision, op, provisionRequest()); !bytes.Equal(first.body, late.body) {
		t.Errorf("replayed %s", late.body)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
	f.census(1)
}

func TestW26TheSameIDWithAnotherBodyIsAMismatch(t *testing.T) {
	f := newFixture(t, nil)
	op := wire.NewOperationID()
	id := f.provision(op).Value.InstanceID
	other := provisionRequest()
	other.RunID = "another"
	f.wantTag(f.call(wire.Provision, op, other), wire.TagOperationMismatch)
	f.wantTag(f.call(wire.Activate, op, wire.InstanceRequest{InstanceID: id}), wire.TagOperationMismatch)
	f.wantTag(f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Activate)), wire.TagOperationMismatch)
	f.census(1)
}

func TestW27ARollbackThatComesFirstLeavesATombstone(t *testing.T) {
	f := newFixture(t, nil)
	op := wire.NewOperationID()
	f.rollback(op, wire.Provision)
	f.wantTag(f.call(wire.Provision, op, provisionRequest()), wire.TagOperationRolledBack)
	f.rollback(op, wire.Provision)
	f.wantTag(f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op}), wire.TagOperationRolledBack)
	f.census(0)
}

func TestW28ARollbackWhileItRunsLeavesNothing(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		h, entered := &hooked{}, make(chan context.Context)
		h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			entered <- ctx
			<-ctx.Done()
			if obeys {
				return sandbox.Handoff[sandbox.Instance]{}, ctx.Err()
			}
			return h.Provider.Provision(context.WithoutCancel(ctx), r)
		}
		f := newFixture(t, hook(h))
		op := wire.NewOperationID()
		answer := make(chan response, 1)
		go func() { answer <- f.call(wire.Provision, op, provisionRequest()) }()
		<-entered
		f.rollback(op, wire.Provision)
		f.census(0)
		if r := <-answer; r.status == 200 {
			// It may have been answered before it was undone, but not again.
			t.Logf("answered %s", r.body)
		}
		f.wantTag(f.call(wire.Provision, op, provisionRequest()), wire.TagOperationRolledBack)
		f.stop()
	}
}

func TestW29ARollbackTwiceAnswersTheSame(t *testing.T) {
	h, undone := &hooked{}, atomic.Int64{}
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		a, err := h.Provider.Provision(ctx, r)
		inner := a.Rollback
		a.Rollback = func(ctx context.Context) error { undone.Add(1); return inner(ctx) }
		return a, err
	}
	f := newFixture(t, hook(h))
	op := wire.NewOperationID()
	f.provision(op)
	first := f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Provision))
	second := f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Provision))
	if first.status != 200 || !bytes.Equal(first.body, second.body) || undone.Load() != 1 {
		t.Errorf("%s, %s, undone %d times", first.body, second.body, undone.Load())
	}
	f.census(0)
}

func TestW30ARollbackThatHangsIsHeldThenRefusedAndGoesOn(t *testing.T) {
	clock := newFakeClock()
	h, gate := &hooked{}, make(chan struct{})
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		a, err := h.Provider.Provision(ctx, r)
		inner := a.Rollback
		a.Rollback = func(ctx context.Context) error { <-gate; return inner(ctx) }
		return a, err
	}
	f := newFixture(t, func(o *Options) { hook(h)(o); o.Clock = clock })
	op := wire.NewOperationID()
	f.provision(op)
	answer := make(chan response, 1)
	go func() { answer <- f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Provision)) }()
	f.awaitTimers(clock, 1)
	clock.Advance(f.wait)
	if e := f.wantTag(<-answer, wire.TagOverloaded); e.RetryAfterMS == 0 {
		t.Error("no time to come back")
	}
	// The original is not answered any more while it is being undone.
	f.wantTag(f.call(wire.Provision, op, provisionRequest()), wire.TagOperationRolledBack)
	close(gate)
	f.rollback(op, wire.Provision)
	f.census(0)
}

func TestARollbackThatFailsSaysSoAndMayBeAskedAgain(t *testing.T) {
	h, fail := &hooked{}, atomic.Bool{}
	fail.Store(true)
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		a, err := h.Provider.Provision(ctx, r)
		inner := a.Rollback
		a.Rollback = func(ctx context.Context) error {
			if fail.Load() {
				return errors.New("no")
			}
			return inner(ctx)
		}
		return a, err
	}
	f := newFixture(t, hook(h))
	op := wire.NewOperationID()
	f.provision(op)
	f.want(f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Provision)), sandbox.Failed("provision_rollback", sandbox.ReasonProviderError, nil))
	fail.Store(false)
	f.rollback(op, wire.Provision)
	f.census(0)
}

func TestW31ARollbackNeedsNoValue(t *testing.T) {
	f := newFixture(t, nil)
	id := f.provision("").Value.InstanceID
	act, snap := wire.NewOperationID(), wire.NewOperationID()
	exp := provisionRequest().ExpiresAt

	// Of a snapshot: it goes, its source stays.
	f.activate(id)
	ok[wire.SnapshotHandoff](f, f.call(wire.Snapshot, snap, wire.SnapshotRequest{InstanceID: id, ExpiresAt: exp}))
	f.census(2)
	f.rollback(snap, wire.Snapshot)
	f.census(1)

	// Of a clone: it goes, its source stays.
	source := ok[wire.SnapshotHandoff](f, f.call(wire.Snapshot, "", wire.SnapshotRequest{InstanceID: id, ExpiresAt: exp})).Value
	clone := wire.NewOperationID()
	ok[wire.SnapshotHandoff](f, f.call(wire.CloneSnapshot, clone, wire.CloneRequest{Snapshot: source, TargetSessionID: "t"}))
	f.census(3)
	f.rollback(clone, wire.CloneSnapshot)
	f.census(2)

	// Of a release: its snapshot goes, the instance stays gone.
	rel := wire.NewOperationID()
	ok[wire.ReleasedHandoff](f, f.call(wire.Release, rel, wire.ReleaseRequest{InstanceID: id, ExpiresAt: exp}))
	f.census(2)
	f.rollback(rel, wire.Release)
	f.census(1)

	// Of a resume: no instance. Of an activate: the instance goes.
	res := wire.NewOperationID()
	ok[wire.InstanceHandoff](f, f.call(wire.Resume, res, wire.ResumeRequest{Request: sandbox.ProvisionRequest(provisionRequest()), Snapshot: source}))
	f.rollback(res, wire.Resume)
	f.census(1)
	id = f.provision("").Value.InstanceID
	ok[wire.InstanceHandoff](f, f.call(wire.Activate, act, wire.InstanceRequest{InstanceID: id}))
	f.rollback(act, wire.Activate)
	f.census(1)
	f.want(f.call(wire.Activate, "", wire.InstanceRequest{InstanceID: id}), sandbox.NoInstance(sandbox.OpActivate, id))
}

func TestW32AForgedValueUndoesNothingOfANeighbour(t *testing.T) {
	h, forge := &hooked{}, sandbox.InstanceID("")
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		a, err := h.Provider.Provision(ctx, r)
		if forge != "" {
			a.Value.InstanceID = forge
		}
		return a, err
	}
	f := newFixture(t, hook(h))
	forge = f.active()
	op := wire.NewOperationID()
	f.provision(op)
	f.rollback(op, wire.Provision)
	r := f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: forge, Command: command("echo lives")})
	if got := f.output(f.frames(r.body), wire.TypeOut); string(got) != "lives\n" {
		t.Errorf("%q", got)
	}
	f.census(1)
}

func TestW33ARollbackAfterOwnershipIsAConflict(t *testing.T) {
	f := newFixture(t, nil)
	op := wire.NewOperationID()
	id := f.provision(op).Value.InstanceID
	f.activate(id)
	for range 2 {
		f.want(f.call(wire.RollbackOperation, "", rollbackOf(op, wire.Provision)), &sandbox.Error{Kind: sandbox.LifecycleConflict})
	}
	f.census(1)
	// A destroy owns nothing: it is what reconcilers call.
	op = wire.NewOperationID()
	id = f.provision(op).Value.InstanceID
	ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: id}))
	f.rollback(op, wire.Provision)
}

func TestW36A202IsPolledToTheResult(t *testing.T) {
	h, gate := &hooked{}, make(chan struct{})
	h.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		<-gate
		return h.Provider.Execute(ctx, id, c)
	}
	f := newFixture(t, hook(h))
	id := f.active()
	op := wire.NewOperationID()
	f.wait = 0
	r := f.call(wire.Execute, op, wire.ExecuteCall{InstanceID: id, Command: command("echo done")})
	run, err := wire.Decode[wire.Running](r.body)
	if r.status != http.StatusAccepted || err != nil || run.OperationID != op {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for range 2 {
		if r = f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op, WaitMS: 1}); r.status != http.StatusAccepted {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	close(gate)
	r = f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op, WaitMS: 20_000})
	if got := f.output(f.frames(r.body), wire.TypeOut); r.status != 200 || string(got) != "done\n" || wire.CheckMedia(r.header, wire.MediaFrames) != nil {
		t.Errorf("%d %q", r.status, got)
	}
	again := f.call(wire.Execute, op, wire.ExecuteCall{InstanceID: id, Command: command("echo done")})
	if !bytes.Equal(r.body, again.body) {
		t.Errorf("%q, then %q", r.body, again.body)
	}
	f.wantTag(f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: wire.NewOperationID()}), wire.TagOperationUnknown)
}

func TestADisconnectCancelsNothing(t *testing.T) {
	h, entered, gate := &hooked{}, make(chan struct{}), make(chan struct{})
	h.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		close(entered)
		<-gate
		return h.Provider.Execute(ctx, id, c)
	}
	f := newFixture(t, hook(h))
	id := f.active()
	op := wire.NewOperationID()
	ctx, cancel := context.WithCancel(t.Context())
	b, err := wire.NewBody(wire.ExecuteCall{InstanceID: id, Command: command("echo once")}, nil)
	f.must(err)
	gone := make(chan error, 1)
	r := f.request(ctx, wire.Execute, op, b.Reader(), b.Size())
	go func() {
		_, err := f.http.Do(r)
		gone <- err
	}()
	<-entered
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("answered")
	}
	close(gate)
	got := f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op, WaitMS: 20_000})
	if out := f.output(f.frames(got.body), wire.TypeOut); string(out) != "once\n" {
		t.Errorf("%q", out)
	}
}

func TestADeadlineEndsAnOperation(t *testing.T) {
	h := &hooked{}
	h.execute = func(ctx context.Context, _ sandbox.InstanceID, _ sandbox.Command) (sandbox.Settlement, error) {
		<-ctx.Done()
		return sandbox.Settlement{}, ctx.Err()
	}
	f := newFixture(t, hook(h))
	id := f.active()
	b, err := wire.NewBody(wire.ExecuteCall{InstanceID: id, Command: command("x")}, nil)
	f.must(err)
	r := f.request(t.Context(), wire.Execute, "", b.Reader(), b.Size())
	r.Header.Set(wire.HeaderDeadline, "30")
	f.want(f.do(r), sandbox.Failed(sandbox.OpExecute, sandbox.ReasonTimedOut, nil))
}

func TestARollbackStopsACommand(t *testing.T) {
	h, entered := &hooked{}, make(chan struct{})
	h.execute = func(ctx context.Context, _ sandbox.InstanceID, _ sandbox.Command) (sandbox.Settlement, error) {
		close(entered)
		<-ctx.Done()
		return sandbox.Settlement{}, ctx.Err()
	}
	f := newFixture(t, hook(h))
	id := f.active()
	op := wire.NewOperationID()
	answer := make(chan response, 1)
	go func() {
		answer <- f.call(wire.Execute, op, wire.ExecuteCall{InstanceID: id, Command: command("x")})
	}()
	<-entered
	f.rollback(op, wire.Execute)
	f.want(<-answer, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonIndeterminate, nil))
}

func TestW37DestroyAndDestroySnapshotAnswerUnknownIDs(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	for range 2 {
		ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: id}))
		ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: "nobody"}))
		ok[wire.Empty](f, f.call(wire.DestroySnapshot, "", wire.DestroySnapshotRequest{SnapshotID: "nothing"}))
	}
}

func TestW38ADispatchThatLostItsAnswerIsInspectedAndRedelivered(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	tx := f.staged(id, "/mnt/rw/a", "content")
	op := wire.NewOperationID()
	first := f.call(wire.DispatchActiveWrite, op, tx)
	if j := ok[wire.Journal](f, f.call(wire.InspectActiveWrite, "", tx)); j.Journal != sandbox.JournalCommitted {
		t.Error(j)
	}
	if again := f.call(wire.DispatchActiveWrite, op, tx); !bytes.Equal(first.body, again.body) {
		t.Errorf("%s, then %s", first.body, again.body)
	}
}

// staged begins a transaction and stages its one file.
func (f *fixture) staged(id sandbox.InstanceID, path, content string) wire.TransactionRequest {
	f.Helper()
	begin := wire.NewOperationID()
	ok[wire.Journal](f, f.call(wire.BeginActiveWrite, begin, wire.BeginActiveWriteRequest{InstanceID: id, Targets: []string{path}}))
	ok[wire.Journal](f, f.call(wire.StageActiveWrite, "", wire.StageCall{
		InstanceID: id, TransactionID: begin, Path: path, Size: int64(len(content)), Digest: digestOf([]byte(content)),
	}, []byte(content)...))
	return wire.TransactionRequest{InstanceID: id, TransactionID: begin}
}

func TestW39AnAbortAfterTheDispatchIsAConflict(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	tx := f.staged(id, "/mnt/rw/a", "x")
	ok[wire.Journal](f, f.call(wire.DispatchActiveWrite, "", tx))
	f.want(f.call(wire.AbortActiveWrite, "", tx), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "committed"})

	tx = f.staged(id, "/mnt/rw/b", "x")
	for range 2 {
		if j := ok[wire.Journal](f, f.call(wire.AbortActiveWrite, "", tx)); j.Journal != sandbox.JournalRolledBack {
			t.Error(j)
		}
	}
	f.want(f.call(wire.DispatchActiveWrite, "", tx), &sandbox.Error{Kind: sandbox.LifecycleConflict})
	tx.TransactionID = wire.NewOperationID()
	f.wantTag(f.call(wire.InspectActiveWrite, "", tx), wire.TagOperationUnknown)
}

func TestAPanicOfTheProviderIsOneFailure(t *testing.T) {
	h := &hooked{}
	h.execute = func(context.Context, sandbox.InstanceID, sandbox.Command) (sandbox.Settlement, error) {
		panic("defect")
	}
	f := newFixture(t, hook(h))
	id := f.active()
	f.want(f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("x")}), sandbox.Failed(sandbox.OpExecute, sandbox.ReasonProviderError, nil))
	h.execute = func(context.Context, sandbox.InstanceID, sandbox.Command) (sandbox.Settlement, error) {
		return sandbox.Settlement{}, &sandbox.Error{Kind: "SandboxProtocolInvalid", Operation: sandbox.OpExecute}
	}
	f.want(f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("x")}), sandbox.Failed(sandbox.OpExecute, sandbox.ReasonProviderError, nil))
}

func TestTheJournalForgetsInTimeAndNoSooner(t *testing.T) {
	clock := newFakeClock()
	f := newFixture(t, func(o *Options) { o.Clock = clock; o.MaxOperations = 8; o.ResultBytes = 1 << 20 })
	op := wire.NewOperationID()
	id := f.provision(op).Value.InstanceID
	poll := wire.OperationRequest{OperationID: op}
	clock.Advance(24 * time.Hour) // the instance lives for one hour, its operation a day longer
	f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: "none"})
	ok[wire.InstanceHandoff](f, f.call(wire.PollOperation, "", poll))
	clock.Advance(2 * time.Hour)
	f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: "none"})
	f.wantTag(f.call(wire.PollOperation, "", poll), wire.TagOperationUnknown)
	f.want(f.call(wire.Activate, "", wire.InstanceRequest{InstanceID: id}), &sandbox.Error{Kind: sandbox.InstanceNotFound})

	// Over its bound it forgets what may run again, and refuses when there is no
	// more of that.
	for range 8 {
		f.rollback(wire.NewOperationID(), wire.Provision)
	}
	f.wantTag(f.call(wire.RollbackOperation, "", rollbackOf(wire.NewOperationID(), wire.Provision)), wire.TagOverloaded)
	f.wantTag(f.call(wire.Provision, "", provisionRequest()), wire.TagOverloaded)
}

func TestAnAnswerThatWasLetGoIsIndeterminate(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.ResultBytes = 1 << 20 })
	id := f.active()
	op := wire.NewOperationID()
	long := wire.ExecuteCall{InstanceID: id, Command: command("yes | head -c 900000")}
	first := f.call(wire.Execute, op, long)
	if again := f.call(wire.Execute, op, long); !bytes.Equal(first.body, again.body) || len(first.body) < 900000 {
		t.Fatalf("%d and %d bytes", len(first.body), len(again.body))
	}
	f.call(wire.Execute, "", long)
	f.want(f.call(wire.Execute, op, long), sandbox.Failed(sandbox.OpExecute, sandbox.ReasonIndeterminate, nil))
}

func TestWhatDidNothingMayComeAgain(t *testing.T) {
	h, full := &hooked{}, atomic.Bool{}
	full.Store(true)
	h.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		if full.Load() {
			return sandbox.Settlement{}, &wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: 1}
		}
		return h.Provider.Execute(ctx, id, c)
	}
	for _, dir := range []string{"", t.TempDir()} {
		full.Store(true)
		f := newFixture(t, func(o *Options) { hook(h)(o); o.Journal = logstore.At(dir) })
		id := f.active()
		op := wire.NewOperationID()
		q := wire.ExecuteCall{InstanceID: id, Command: command("echo x")}
		f.wantTag(f.call(wire.Execute, op, q), wire.TagOverloaded)
		full.Store(false)
		if got := f.output(f.frames(f.call(wire.Execute, op, q).body), wire.TypeOut); string(got) != "x\n" {
			t.Errorf("%q", got)
		}
	}
}

func TestCloseLetsGoOfWhoeverWaits(t *testing.T) {
	h, entered, gate := &hooked{}, make(chan struct{}), make(chan struct{})
	h.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		close(entered)
		<-gate
		return h.Provider.Execute(ctx, id, c)
	}
	f := newFixture(t, hook(h))
	l := f.spawn(f.active(), "cat")
	answered, waited := make(chan response, 1), make(chan response, 1)
	go func() {
		answered <- f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: l.instance, Command: command("x")})
	}()
	<-entered
	go func() {
		waited <- f.call(wire.ProcessWait, "", wire.WaitRequest{InstanceID: l.instance, ProcessID: l.id, WaitMS: 20_000})
	}()
	for len(f.s.holds) == 0 {
		runtime.Gosched()
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); f.stop() }()
	if w := ok[wire.Waited](f, <-waited); !w.Running {
		t.Errorf("%+v", w)
	}
	close(gate) // the command itself is waited for, and so is its caller
	if r := <-answered; r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	<-stopped
}
