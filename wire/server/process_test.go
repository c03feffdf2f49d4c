package server

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func TestW90AProcessIsOpenedOnceUnderItsID(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	op := wire.NewOperationID()
	l := &live{fixture: f, instance: id, id: wire.NewProcessID()}
	first := f.call(wire.OpenProcess, op, l.request("cat"))
	if again := f.call(wire.OpenProcess, op, l.request("cat")); !bytes.Equal(first.body, again.body) {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	if again := f.call(wire.OpenProcess, "", l.request("cat")); !bytes.Equal(first.body, again.body) { // another operation, the same process
		t.Errorf("%s\n%s", first.body, again.body)
	}
	f.wantTag(f.call(wire.OpenProcess, "", l.request("cat", "x")), wire.TagOperationMismatch)
	other := &live{fixture: f, instance: id, id: wire.NewProcessID()}
	f.want(f.call(wire.OpenProcess, "", other.request("cat")), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: sandbox.ActualProcessAlreadyOpen})
	l.destroy()
	ok[wire.Opened](f, f.call(wire.OpenProcess, "", other.request("cat"))) // a refused id is not used up
}

func TestW91ADestroyThatComesFirstLeavesATombstone(t *testing.T) {
	f := newFixture(t, nil)
	l := &live{fixture: f, instance: f.active(), id: wire.NewProcessID()}
	l.destroy()
	l.destroy()
	f.wantTag(f.call(wire.OpenProcess, "", l.request("cat")), wire.TagOperationRolledBack)
	f.wantTag(l.open(0, 0).refused(), wire.TagProcessNotFound)
	l.id = wire.NewProcessID()
	ok[wire.Opened](f, f.call(wire.OpenProcess, "", l.request("cat"))) // nothing holds the place
}

func TestW91ADestroyWhileItOpensLeavesNothing(t *testing.T) {
	h, entered, gate := &hooked{}, make(chan struct{}), make(chan struct{})
	made := puppets(h)
	open := h.open
	h.open = func(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
		close(entered)
		<-gate
		return open(ctx, id, processID, r)
	}
	f := newFixture(t, hook(h))
	l := &live{fixture: f, instance: f.active(), id: wire.NewProcessID()}
	opened, destroyed := make(chan response, 1), make(chan struct{})
	go func() { opened <- f.call(wire.OpenProcess, "", l.request("cat")) }()
	<-entered
	go func() { defer close(destroyed); l.destroy() }()
	for doomed := false; !doomed; {
		f.s.processes.mu.Lock()
		p := f.s.processes.byID[l.id]
		f.s.processes.mu.Unlock()
		p.mu.Lock()
		doomed = p.doomed
		p.mu.Unlock()
	}
	close(gate)
	f.wantTag(<-opened, wire.TagOperationRolledBack)
	<-destroyed
	<-(<-made).ended
	f.wantTag(f.call(wire.OpenProcess, "", l.request("cat")), wire.TagOperationRolledBack)
	f.wantTag(l.open(0, 0).refused(), wire.TagProcessNotFound)
}

func TestW92ARetriedSignalIsDeliveredOnce(t *testing.T) {
	l, p := pick(t, nil)
	op := wire.NewOperationID()
	for range 3 {
		if got := l.signal(op, sandbox.SignalInterrupt); !got.Delivered {
			t.Error("not delivered")
		}
	}
	if n := p.signals.Load(); n != 1 {
		t.Errorf("delivered %d times", n)
	}
}

func TestW93AnExitIsAnsweredAgainAndAgain(t *testing.T) {
	f := newFixture(t, nil)
	l := f.spawn(f.active(), "sh", "-c", "exit 9")
	for range 2 {
		if got := l.exit(); got.Exit == nil || *got.Exit.ExitCode != 9 {
			t.Errorf("%+v", got)
		}
	}
	l.destroy()
	if got := l.exit(); got.Exit == nil || *got.Exit.ExitCode != 9 {
		t.Errorf("%+v", got)
	}
	next := f.spawn(l.instance, "cat")
	if got := l.exit(); got.Exit == nil || *got.Exit.ExitCode != 9 { // also beside another
		t.Errorf("%+v", got)
	}
	next.destroy()
	if got := next.exit(); got.Exit == nil || got.Exit.Signal != "SIGKILL" {
		t.Errorf("%+v", got)
	}
	ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: l.instance}))
	f.want(f.call(wire.ProcessWait, "", wire.WaitRequest{InstanceID: l.instance, ProcessID: l.id}), sandbox.NoInstance(sandbox.OpOpenProcess, l.instance))
	l.destroy() // and nothing of it is left
}

func TestTheEndOfAnInstanceEndsItsStreams(t *testing.T) {
	f := newFixture(t, nil)
	l := f.spawn(f.active(), "sh", "-c", "echo x; cat")
	s := l.attach(0)
	if fr := s.next(); fr.Type != wire.TypeOut {
		t.Fatalf("%x", fr.Type)
	}
	ok[wire.Empty](f, f.call(wire.Destroy, "", wire.InstanceRequest{InstanceID: l.instance}))
	got := s.drain(2)
	if got.exit == nil && got.failure == nil || got.exit != nil && got.exit.Signal != "SIGKILL" {
		t.Errorf("%v %v", got.order, got.end)
	}
	if len(f.s.processes.all()) != 0 {
		t.Error("still known")
	}
}

func TestARollbackOfAnOpeningDestroysTheProcess(t *testing.T) {
	l, p := pick(t, nil)
	op := wire.NewOperationID()
	second := &live{fixture: l.fixture, instance: l.instance, id: wire.NewProcessID()}
	ok[wire.Opened](l.fixture, l.call(wire.OpenProcess, op, second.request("y")))
	l.rollback(op, wire.OpenProcess)
	if got := second.exit(); got.Exit == nil || got.Exit.Signal != "SIGKILL" {
		t.Errorf("%+v", got)
	}
	if p.destroyed.Load() != 0 {
		t.Error("the neighbour was destroyed")
	}
}

func TestAProcessWithoutStreamsIsADefect(t *testing.T) {
	h := &hooked{}
	made := puppets(h)
	open := h.open
	h.open = func(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
		p, err := open(ctx, id, processID, r)
		p.(*puppet).evidence.ResourceLimits.CPUMillis = 1 << 60 // has no form on the wire
		return p, err
	}
	f := newFixture(t, hook(h))
	l := &live{fixture: f, instance: f.active(), id: wire.NewProcessID()}
	r := f.call(wire.OpenProcess, "", l.request("x"))
	if failure := f.failure(r); errors.Is(failure, &wire.Error{Tag: wire.TagProcessNotFound}) {
		t.Error(failure)
	}
	<-(<-made).ended // and does not live on
	f.wantTag(l.open(0, 0).refused(), wire.TagProcessNotFound)
}
