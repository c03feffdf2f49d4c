package server

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/logstore"
	"github.com/checkfu/checkfu/wire/server/store"
)

// durable is a server whose journal is on disk.
func durable(t *testing.T, change func(*Options)) (*fixture, string) {
	t.Helper()
	dir := t.TempDir()
	return newFixture(t, func(o *Options) {
		o.Journal = logstore.At(dir)
		if change != nil {
			change(o)
		}
	}), dir
}

// crash is another server over the same provider, with what the first had on
// disk at this moment: the first never gets to shut anything down for it.
func (f *fixture) crash(dir string) *fixture {
	f.Helper()
	// A commit of which the end is awaited: the file stands still then.
	f.must(store.Put(f.s.journal.store, store.Set(store.Results, "x", []byte("x"))))
	data, err := os.ReadFile(filepath.Join(dir, logstore.File))
	f.must(err)
	next := f.TempDir()
	f.must(os.WriteFile(filepath.Join(next, logstore.File), data, 0o600))
	again := newFixture(f.T, func(o *Options) { o.Journal, o.Provider = logstore.At(next), f.provider })
	again.memory, again.lease = f.memory, f.lease
	return again
}

func TestW31W95ARestartLosesNoInstanceAndNoRollback(t *testing.T) {
	exp := provisionRequest().ExpiresAt
	for name, c := range map[string]struct {
		do   func(f *fixture, op wire.OperationID) wire.Endpoint
		left int // after the rollback
	}{
		"provision": {func(f *fixture, op wire.OperationID) wire.Endpoint { f.provision(op); return wire.Provision }, 0},
		"activate": {func(f *fixture, op wire.OperationID) wire.Endpoint {
			id := f.provision("").Value.InstanceID
			ok[wire.InstanceHandoff](f, f.call(wire.Activate, op, wire.InstanceRequest{InstanceID: id}))
			return wire.Activate
		}, 0},
		"snapshot": {func(f *fixture, op wire.OperationID) wire.Endpoint {
			ok[wire.SnapshotHandoff](f, f.call(wire.Snapshot, op, wire.SnapshotRequest{InstanceID: f.active(), ExpiresAt: exp}))
			return wire.Snapshot
		}, 1},
		"clone": {func(f *fixture, op wire.OperationID) wire.Endpoint {
			s := ok[wire.SnapshotHandoff](f, f.call(wire.Snapshot, "", wire.SnapshotRequest{InstanceID: f.active(), ExpiresAt: exp})).Value
			ok[wire.SnapshotHandoff](f, f.call(wire.CloneSnapshot, op, wire.CloneRequest{Snapshot: s, TargetSessionID: "t"}))
			return wire.CloneSnapshot
		}, 2},
		"release": {func(f *fixture, op wire.OperationID) wire.Endpoint {
			ok[wire.ReleasedHandoff](f, f.call(wire.Release, op, wire.ReleaseRequest{InstanceID: f.active(), ExpiresAt: exp}))
			return wire.Release
		}, 0},
		"resume": {func(f *fixture, op wire.OperationID) wire.Endpoint {
			s := ok[wire.ReleasedHandoff](f, f.call(wire.Release, "", wire.ReleaseRequest{InstanceID: f.active(), ExpiresAt: exp})).Value.Snapshot
			q := wire.ResumeRequest{Request: sandbox.ProvisionRequest(provisionRequest()), Snapshot: *s}
			ok[wire.InstanceHandoff](f, f.call(wire.Resume, op, q))
			return wire.Resume
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := durable(t, nil)
			op := wire.NewOperationID()
			e := c.do(f, op)
			poll := wire.OperationRequest{OperationID: op}
			want := f.call(wire.PollOperation, "", poll)
			f = f.crash(dir)
			if got := f.call(wire.PollOperation, "", poll); got.status != 200 || !bytes.Equal(got.body, want.body) {
				t.Errorf("%d %s", got.status, got.body)
			}
			f.rollback(op, e)
			f.rollback(op, e)
			f.census(c.left)
			f.wantTag(f.call(wire.PollOperation, "", poll), wire.TagOperationRolledBack)
		})
	}
}

func TestW34ACommandRunsOnceAlsoOverACrash(t *testing.T) {
	h, runs, gate := &hooked{}, atomic.Int64{}, make(chan struct{}, 2)
	h.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		runs.Add(1)
		<-gate
		return h.Provider.Execute(ctx, id, c)
	}
	f, dir := durable(t, hook(h))
	id := f.active()
	q := wire.ExecuteCall{InstanceID: id, Command: command("yes | head -c 100000")}
	done, lost := wire.NewOperationID(), wire.NewOperationID()
	gate <- struct{}{}
	first := f.call(wire.Execute, done, q)
	f.wait = 0
	f.call(wire.Execute, lost, q) // still runs when the crash comes
	again := f.crash(dir)
	if got := again.call(wire.Execute, done, q); got.status != 200 || !bytes.Equal(got.body, first.body) || len(first.body) < 100000 {
		t.Errorf("%d, %d bytes", got.status, len(got.body))
	}
	for range 2 {
		again.want(again.call(wire.Execute, lost, q), sandbox.Failed(sandbox.OpExecute, sandbox.ReasonIndeterminate, nil))
	}
	if n := runs.Load(); n != 2 {
		t.Errorf("ran %d times", n)
	}
	gate <- struct{}{}
}

func TestAnAllocationThatTheCrashCutOffIsIndeterminate(t *testing.T) {
	h, gate := &hooked{}, make(chan struct{})
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		if r.RunID == "cut" {
			<-gate
		}
		return h.Provider.Provision(ctx, r)
	}
	h.activate = func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
		a, err := h.Provider.Activate(ctx, id)
		<-gate
		return a, err
	}
	f, dir := durable(t, hook(h))
	id := f.provision("").Value.InstanceID
	provision, activate := wire.NewOperationID(), wire.NewOperationID()
	cut := provisionRequest()
	cut.RunID = "cut"
	f.wait = 0
	f.call(wire.Provision, provision, cut)
	f.call(wire.Activate, activate, wire.InstanceRequest{InstanceID: id})
	again := f.crash(dir)
	again.want(again.call(wire.Provision, provision, cut), sandbox.Failed(sandbox.OpProvision, sandbox.ReasonIndeterminate, nil))
	for range 2 { // nothing that could not be undone is said to be
		again.want(again.call(wire.RollbackOperation, "", rollbackOf(provision, wire.Provision)), sandbox.Failed("provision_rollback", sandbox.ReasonIndeterminate, nil))
	}
	again.rollback(activate, wire.Activate) // its instance has a name
	again.census(0)
	close(gate)
}

func TestW35WithoutAJournalNothingIsKnown(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	again := newFixture(t, func(o *Options) { o.Provider = f.provider })
	again.want(again.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("x")}), sandbox.NoInstance(sandbox.OpExecute, id))
	ok[wire.Empty](again, again.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: id})) // but it can be swept
	f.census(0)
}

func TestW32AForgedValueUndoesNothingAfterARestartEither(t *testing.T) {
	h, forge := &hooked{}, sandbox.InstanceID("")
	h.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
		a, err := h.Provider.Provision(ctx, r)
		if forge != "" {
			a.Value.InstanceID = forge
		}
		return a, err
	}
	f, dir := durable(t, hook(h))
	forge = f.active()
	op := wire.NewOperationID()
	f.provision(op)
	f = f.crash(dir)
	f.rollback(op, wire.Provision)
	r := f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: forge, Command: command("echo lives")})
	if got := f.output(f.frames(r.body), wire.TypeOut); string(got) != "lives\n" {
		t.Errorf("%q", got)
	}
}

func TestWhatWasLearnedSurvivesARestart(t *testing.T) {
	f, dir := durable(t, nil)
	owned, tomb := wire.NewOperationID(), wire.NewOperationID()
	id := f.provision(owned).Value.InstanceID
	f.activate(id)
	f.rollback(tomb, wire.Provision)
	open := f.staged(id, "/mnt/rw/open", "x")
	committed := f.staged(id, "/mnt/rw/committed", "x")
	ok[wire.Journal](f, f.call(wire.DispatchActiveWrite, "", committed))
	dispatched := f.staged(id, "/mnt/rw/dispatched", "x")
	f.must(f.s.mark(f.s.journal.find(dispatched.TransactionID), sandbox.JournalDispatched, true))
	f.lease.Epoch = 3
	f.frames(f.call(wire.ListDir, "", wire.ListRequest{InstanceID: id, Root: "/mnt/rw", MaxEntries: 10}).body)

	f = f.crash(dir)
	f.lease.Epoch = 2
	f.wantTag(f.call(wire.ListDir, "", wire.ListRequest{InstanceID: id, Root: "/mnt/rw", MaxEntries: 10}), wire.TagLeaseFenced)
	f.lease.Epoch = 3
	f.want(f.call(wire.RollbackOperation, "", rollbackOf(owned, wire.Provision)), &sandbox.Error{Kind: sandbox.LifecycleConflict})
	f.wantTag(f.call(wire.Provision, tomb, provisionRequestAt(3)), wire.TagOperationRolledBack)

	// A write that was never dispatched published nothing; of one that was,
	// nobody knows.
	if j := ok[wire.Journal](f, f.call(wire.InspectActiveWrite, "", open)); j.Journal != sandbox.JournalRolledBack {
		t.Error(j)
	}
	if j := ok[wire.Journal](f, f.call(wire.InspectActiveWrite, "", committed)); j.Journal != sandbox.JournalCommitted {
		t.Error(j)
	}
	lost := sandbox.Failed(sandbox.OpBeginActiveWrite, sandbox.ReasonIndeterminate, nil)
	f.want(f.call(wire.InspectActiveWrite, "", dispatched), lost)
	f.want(f.call(wire.DispatchActiveWrite, "", dispatched), lost)
	f.want(f.call(wire.DispatchActiveWrite, "", open), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "rolled_back"})
	f.want(f.call(wire.AbortActiveWrite, "", committed), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "committed"})
	ok[wire.Journal](f, f.call(wire.AbortActiveWrite, "", open))
}

func provisionRequestAt(epoch int64) wire.ProvisionRequest {
	r := provisionRequest()
	r.LeaseEpoch = epoch
	return r
}

func TestW94ALiveProcessIsLostWithItsServer(t *testing.T) {
	f, dir := durable(t, nil)
	l := &live{fixture: f, instance: f.active(), id: wire.NewProcessID()}
	op := wire.NewOperationID()
	first := f.call(wire.OpenProcess, op, l.request("cat"))
	f = f.crash(dir)
	l.fixture = f
	lost := sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil)
	for range 2 {
		f.want(l.open(0, 0).refused(), lost)
		f.want(f.call(wire.ProcessWait, "", wire.WaitRequest{InstanceID: l.instance, ProcessID: l.id}), lost)
		f.wantTag(l.send(0, []byte("x"), false), wire.TagInputClosed)
		f.wantTag(l.send(7, nil, false), wire.TagInputClosed) // where its caller had come
		if l.signal("", sandbox.SignalKill).Delivered {
			t.Error("delivered")
		}
		f.want(f.call(wire.ProcessDestroy, "", wire.ProcessRequest{InstanceID: l.instance, ProcessID: l.id}), lost)
		f.want(f.call(wire.OpenProcess, "", l.request("cat")), lost)
	}
	if again := f.call(wire.OpenProcess, op, l.request("cat")); !bytes.Equal(first.body, again.body) {
		t.Errorf("%s", again.body)
	}
	ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: l.instance})) // takes it along
	f.census(0)
}

func TestOneServerHoldsADirectory(t *testing.T) {
	f, dir := durable(t, nil)
	if s, err := New(Options{Provider: f.provider, Tokens: []string{token}, Journal: logstore.At(dir)}); err == nil {
		t.Error("two", s.Close(t.Context()))
	}
	info, err := os.Stat(filepath.Join(dir, logstore.File))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestADamagedJournalIsNamedAndNotTaken(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"not a store": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, logstore.File), bytes.Repeat([]byte("x"), 9000), 0o600)
		},
		"another form": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, logstore.File), []byte("checkfu.wire-journal.v2\n"), 0o600)
		},
		"epoch":     func(dir string) error { return edit(dir, store.Leases, "l", "one") },
		"instance":  func(dir string) error { return edit(dir, store.Instances, "i", `{"lease":1}`) },
		"operation": func(dir string) error { return edit(dir, store.Operations, "o", `{"state":"done"`) },
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := durable(t, nil)
			f.active()
			f.stop()
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			s, err := New(Options{Provider: f.provider, Tokens: []string{token}, Journal: logstore.At(dir)})
			if err == nil {
				t.Fatal("taken", s.Close(t.Context()))
			}
			if !strings.Contains(err.Error(), "journal") {
				t.Errorf("%v", err)
			}
		})
	}
}

func edit(dir string, bucket store.Bucket, key, value string) error {
	s, err := logstore.At(dir)()
	if err != nil {
		return err
	}
	return errors.Join(store.Put(s, store.Set(bucket, key, []byte(value))), s.Close())
}

func TestAStoreThatFailsRefusesWhatWouldAllocate(t *testing.T) {
	gone := false
	f, _ := durable(t, func(o *Options) {
		open := o.Journal
		o.Journal = func() (store.Store, error) {
			st, err := open()
			return failing{st, &gone}, err
		}
	})
	id := f.active()
	gone = true
	f.want(f.call(wire.Provision, "", provisionRequest()), sandbox.Failed(sandbox.OpProvision, sandbox.ReasonProviderError, nil))
	f.want(f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("x")}), sandbox.Failed(sandbox.OpExecute, sandbox.ReasonProviderError, nil))
	f.census(1)
}

// failing is a store whose disk is gone once gone is set.
type failing struct {
	store.Store
	gone *bool
}

func (f failing) Sync() error {
	if *f.gone {
		return errors.New("journal: the disk is gone")
	}
	return f.Store.Sync()
}
