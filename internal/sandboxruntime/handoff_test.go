package sandboxruntime_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// handoffs are the six members that return one, with how to reach them.
var handoffs = map[sandbox.Operation]func(*bench) func(context.Context) error{
	sandbox.OpProvision: func(b *bench) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := b.runtime.Provision(ctx, request(b.fake, durable))
			return err
		}
	},
	sandbox.OpActivate: func(b *bench) func(context.Context) error {
		id := b.provision(durable)
		return func(ctx context.Context) error { _, err := b.runtime.Activate(ctx, id); return err }
	},
	sandbox.OpSnapshot: func(b *bench) func(context.Context) error {
		id := b.activate(durable)
		return func(ctx context.Context) error {
			_, err := b.runtime.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
			return err
		}
	},
	sandbox.OpCloneSnapshot: func(b *bench) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := b.runtime.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: snapshot(b), TargetSessionID: "sess2"})
			return err
		}
	},
	sandbox.OpRelease: func(b *bench) func(context.Context) error {
		id := b.activate(durable)
		return func(ctx context.Context) error {
			_, err := b.runtime.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
			return err
		}
	},
	sandbox.OpResume: func(b *bench) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := b.runtime.Resume(ctx, sandbox.ResumeRequest{Request: request(b.fake, durable), Snapshot: snapshot(b)})
			return err
		}
	},
}

func eachHandoff(t *testing.T, test func(b *bench, op sandbox.Operation, drive func(context.Context) error)) {
	for op, reach := range handoffs {
		t.Run(string(op), func(t *testing.T) {
			b := newBench(t)
			test(b, op, reach(b))
		})
	}
}

// lie makes every later value of the provider wrong.
func (f *fake) lie() {
	f.lieInstance = func(_ sandbox.Operation, i *sandbox.Instance) { i.LeaseEpoch++ }
	f.lieSnapshot = func(_ sandbox.Operation, s *sandbox.Snapshot) { s.WorkspaceID = "w2" }
}

// left is what an unwound operation leaves: a source untouched, else nothing.
func left(b *bench, op sandbox.Operation) {
	b.Helper()
	want := 0
	if op == sandbox.OpSnapshot {
		want = 1
	}
	if instances, snapshots := b.alive(); instances != want || snapshots != 0 {
		b.Errorf("%d instances and %d snapshots are left", instances, snapshots)
	}
}

// TestAllocationHandoff_RollbackIsBoundedAt30Seconds: exceeding it does not
// hang the Run. The runtime leaves the rollback behind and names it.
func TestAllocationHandoff_RollbackIsBoundedAt30Seconds(t *testing.T) {
	eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
		let, interrupted := make(chan struct{}), make(chan struct{})
		b.Cleanup(func() { close(let) })
		b.fake.lie()
		b.fake.rollback = func(ctx context.Context) error {
			<-ctx.Done()
			close(interrupted)
			<-let // does not come back even when it is told to
			return nil
		}
		failed := make(chan error, 1)
		go func() { failed <- drive(b.ctx) }()
		b.await(1)
		b.clock.Advance(30*time.Second - time.Nanosecond)
		select {
		case err := <-failed:
			b.Fatal("gave up before 30 s:", err)
		default:
		}
		b.clock.Advance(time.Nanosecond)
		err := <-failed
		if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid}) {
			b.Error("the original rejection is missing:", err)
		}
		if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: op + "_rollback", Reason: sandbox.ReasonTimedOut}) {
			b.Error("the timed-out rollback is missing:", err)
		}
		<-interrupted
		if b.rolledBack() != 1 {
			b.Errorf("rolled back %d times", b.rolledBack())
		}
	})
}

// TestAllocationHandoff_RollbackFailureIsJoined, and is a defect where it is
// outside the closed set.
func TestAllocationHandoff_RollbackFailureIsJoined(t *testing.T) {
	eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
		b.fake.lie()
		b.fake.rollback = func(context.Context) error { return sandbox.Failed(op, sandbox.ReasonProviderError, nil) }
		err := drive(b.ctx)
		if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid}) || !errors.Is(err, &sandbox.Error{Operation: op, Reason: sandbox.ReasonProviderError}) {
			b.Error(err)
		}
	})
	b := newBench(t)
	b.fake.lie()
	b.fake.rollback = func(context.Context) error { panic("in a rollback") }
	_, err := b.runtime.Provision(b.ctx, request(b.fake, durable))
	if d, ok := errors.AsType[*sandboxruntime.Defect](err); !ok || d.Operation != "provision_rollback" {
		t.Error(err)
	}
}

// TestAllocationHandoff_WithoutRollback is itself a protocol failure.
func TestAllocationHandoff_WithoutRollback(t *testing.T) {
	eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
		b.fake.noRollback = true
		wantField(b.T, drive(b.ctx), op, "rollback")
	})
}

// TestAllocationHandoff_InterruptedWhileAcquiring: ctx ends while the provider
// works and the provider returns a good value all the same: rolled back.
func TestAllocationHandoff_InterruptedWhileAcquiring(t *testing.T) {
	eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		b.fake.on[op] = func(context.Context) error { cancel(); return nil }
		b.fake.rollback = func(ctx context.Context) error { return ctx.Err() } // a fresh context
		if err := drive(ctx); err != context.Canceled {
			b.Error(err)
		}
		if b.rolledBack() != 1 {
			b.Errorf("rolled back %d times", b.rolledBack())
		}
		left(b, op)
	})
}

// TestAllocationHandoff_InterruptedProviderRestores: a provider that obeys ctx
// kept its partial allocation itself, so nothing is rolled back and the
// instance is where it was.
func TestAllocationHandoff_InterruptedProviderRestores(t *testing.T) {
	eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
		ctx, cancel := context.WithCancel(b.ctx)
		b.fake.on[op] = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
		if err := drive(ctx); err != context.Canceled || b.rolledBack() != 0 {
			b.Error(err, b.rolledBack())
		}
		delete(b.fake.on, op)
		if err := drive(b.ctx); err != nil {
			b.Error("cannot be tried again:", err)
		}
	})
}

// TestAllocationHandoff_ProviderNeverReturns: ctx ends, the provider does not
// come back for 30 s, the caller goes on; what arrives later is rolled back.
func TestAllocationHandoff_ProviderNeverReturns(t *testing.T) {
	eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
		ctx, cancel := context.WithCancel(b.ctx)
		let := make(chan struct{})
		b.fake.on[op] = func(context.Context) error { <-let; return nil }
		undone := make(chan struct{})
		b.fake.rollback = func(context.Context) error { defer close(undone); return nil }
		failed := make(chan error, 1)
		go func() { failed <- drive(ctx) }()
		cancel()
		b.await(1)
		b.clock.Advance(30 * time.Second)
		if err := <-failed; !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: op, Reason: sandbox.ReasonIndeterminate}) || !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
		close(let)
		<-undone
		b.eventually(func() bool {
			instances, snapshots := b.alive()
			return snapshots == 0 && (instances == 0 || op == sandbox.OpSnapshot)
		})
		if b.rolledBack() != 1 {
			b.Errorf("rolled back %d times", b.rolledBack())
		}
	})
}

// eventually polls: for what a goroutine does after it was let go.
func (b *bench) eventually(ok func() bool) {
	b.Helper()
	for !ok() {
		if b.ctx.Err() != nil {
			b.Fatal("did not happen in time")
		}
		runtime.Gosched()
	}
}

// TestAllocationHandoff_LateFailureIsReported: nobody waits for the rollback
// of a late answer, so its failure goes to the Runner's own ear.
func TestAllocationHandoff_LateFailureIsReported(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(b.ctx)
	let := make(chan struct{})
	b.fake.on[sandbox.OpProvision] = func(context.Context) error { <-let; return nil }
	b.fake.rollback = func(context.Context) error {
		return sandbox.Failed(sandbox.OpProvision, sandbox.ReasonProviderError, nil)
	}
	failed := make(chan error, 1)
	go func() { _, err := b.runtime.Provision(ctx, request(b.fake, durable)); failed <- err }()
	cancel()
	b.await(1)
	b.clock.Advance(30 * time.Second)
	<-failed
	close(let)
	if err := <-b.reports; !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonProviderError}) {
		t.Error(err)
	}
}

// TestAllocationHandoff_AfterOwnershipTheOwnerDestroys: a ctx that ends after
// the transfer changes nothing.
func TestAllocationHandoff_AfterOwnershipTheOwnerDestroys(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(b.ctx)
	i, err := b.runtime.Provision(ctx, request(b.fake, durable))
	cancel()
	if err != nil || b.rolledBack() != 0 {
		t.Fatal(err)
	}
	if err := b.runtime.Destroy(b.ctx, i.InstanceID); err != nil {
		t.Error(err)
	}
	unwound(b, 0)
}

// TestAllocationHandoff_UnwoundInstances: an activation or a release that was
// rolled back ends the instance; one whose rollback failed accepts destroy.
func TestAllocationHandoff_UnwoundInstances(t *testing.T) {
	for _, op := range []sandbox.Operation{sandbox.OpActivate, sandbox.OpRelease} {
		for _, broken := range []bool{false, true} {
			t.Run(fmt.Sprint(op, broken), func(t *testing.T) {
				b := newBench(t)
				drive := handoffs[op](b)
				b.fake.lie()
				if broken {
					b.fake.rollback = func(context.Context) error { return sandbox.Failed(op, sandbox.ReasonProviderError, nil) }
				}
				if err := drive(b.ctx); err == nil {
					t.Fatal("the lie passed")
				}
				_, err := b.runtime.Execute(b.ctx, "i1", command)
				want := sandbox.NoInstance(sandbox.OpExecute, "i1")
				if broken {
					want = sandbox.Conflict(sandbox.OpExecute, "active", "lost")
				}
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
				if err := b.runtime.Destroy(b.ctx, "i1"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestAllocationHandoff_DestroyOvertakes: each change of a lifecycle is
// compare-and-set. A destroy in the middle of one wins, and what the overtaken
// one brings is unwound.
func TestAllocationHandoff_DestroyOvertakes(t *testing.T) {
	for _, op := range []sandbox.Operation{sandbox.OpActivate, sandbox.OpRelease} {
		t.Run(string(op), func(t *testing.T) {
			b := newBench(t)
			drive := handoffs[op](b)
			b.fake.on[op] = func(ctx context.Context) error {
				b.fake.mu.Lock()
				kept := b.fake.instances["i1"]
				b.fake.mu.Unlock()
				err := b.runtime.Destroy(ctx, "i1")
				b.fake.mu.Lock()
				b.fake.instances["i1"] = kept // the provider races on with what it had
				b.fake.mu.Unlock()
				return err
			}
			err := drive(b.ctx)
			if !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: op}) {
				t.Error(err)
			}
			unwound(b, 1)
		})
	}
}

// TestAllocationHandoff_BusyIsRefused: a lifecycle does not change under a
// call in flight, and only destroy is exempt.
func TestAllocationHandoff_BusyIsRefused(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	// Calls that are over count neither for nor against.
	if _, err := b.runtime.ReadFiles(b.ctx, id, []sandbox.FileMember{{Path: repo + "/a"}, {Path: notes + "/a"}, {Path: cache + "/a"}}); err != nil {
		t.Fatal(err)
	}
	let, running := make(chan struct{}), make(chan struct{}, 8)
	b.fake.on[sandbox.OpExecute] = func(context.Context) error { running <- struct{}{}; <-let; return nil }
	var group sync.WaitGroup
	for range 2 { // side by side
		group.Go(func() { _, _ = b.runtime.Execute(b.ctx, id, command) })
	}
	for range 2 {
		<-running
	}
	_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
	if !errors.Is(err, sandbox.Conflict(sandbox.OpRelease, "active", sandbox.ActualBusy)) || b.called(sandbox.OpRelease) != 0 {
		t.Error(err)
	}
	if err := b.runtime.Destroy(b.ctx, id); err != nil {
		t.Error(err)
	}
	close(let)
	group.Wait()
}

// TestAllocationHandoff_ConcurrentChangesHaveOneWinner.
func TestAllocationHandoff_ConcurrentChangesHaveOneWinner(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	var group sync.WaitGroup
	won := make(chan sandbox.Released, 16)
	for range 16 {
		group.Go(func() {
			if r, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); err == nil {
				won <- r
			}
		})
	}
	group.Wait()
	if n := b.called(sandbox.OpRelease); len(won) != 1 || n != 1 {
		t.Errorf("%d winners, %d calls", len(won), n)
	}
}
