package sandboxruntime_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// TestErrors_AnythingElseIsADefect: what a provider may not author is loud and
// maps to no kind, however it is wrapped.
func TestErrors_AnythingElseIsADefect(t *testing.T) {
	foreign := &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid, Operation: sandbox.OpExecute}
	var none *sandbox.Error
	if got := (&sandboxruntime.Defect{Operation: sandbox.OpExecute, Cause: errors.New("boom")}).Error(); got != "execute: provider defect: boom" {
		t.Error(got)
	}
	for name, cause := range map[string]error{
		"a plain error":              errors.New("boom"),
		"a runtime kind":             foreign,
		"a wrapped adapter error":    fmt.Errorf("x: %w", sandbox.Failed(sandbox.OpExecute, "r", nil)),
		"joined adapter errors":      errors.Join(sandbox.Failed(sandbox.OpExecute, "r", nil)),
		"a ninth kind":               &sandbox.Error{Kind: "SandboxHungry", Operation: sandbox.OpExecute},
		"another operation's":        sandbox.Failed(sandbox.OpProvision, "r", nil),
		"no operation":               &sandbox.Error{Kind: sandbox.OperationFailed, Reason: "r"},
		"a kind that cannot be":      sandbox.NoSnapshot(sandbox.OpExecute, "s1"),
		"an open requirement":        sandbox.Unavailable(sandbox.OpExecute, "gpu", "", ""),
		"a conflict without actual":  sandbox.Conflict(sandbox.OpExecute, "active", ""),
		"a failure without reason":   sandbox.Failed(sandbox.OpExecute, "", nil),
		"a field of five kilobytes":  sandbox.Failed(sandbox.OpExecute, strings.Repeat("r", 5000), nil),
		"a nil *Error":               none,
		"cancelled without a cancel": context.Canceled,
		"an error that panics":       bomb{},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id := b.activate(durable)
			b.fake.on[sandbox.OpExecute] = func(context.Context) error { return cause }
			_, err := b.runtime.Execute(b.ctx, id, command)
			d, ok := err.(*sandboxruntime.Defect)
			if !ok || d.Operation != sandbox.OpExecute || err.Error() == "" {
				t.Fatalf("got %T", err)
			}
			if errors.As(err, new(*sandbox.Error)) || errors.As(err, new(*sandboxruntime.Error)) || errors.Is(err, context.Canceled) {
				t.Error("a defect matches a kind")
			}
		})
	}
}

type bomb struct{}

func (bomb) Error() string { panic("printed") }

// TestErrors_TheClosedSetPasses, with its local cause kept for the log only.
func TestErrors_TheClosedSetPasses(t *testing.T) {
	smuggled := &sandboxruntime.Error{Kind: sandboxruntime.AdapterAmbiguous}
	for _, want := range []*sandbox.Error{
		sandbox.Unavailable(sandbox.OpExecute, sandbox.RequireResources, "a", "b"),
		sandbox.NoInstance(sandbox.OpExecute, "i1"),
		sandbox.Conflict(sandbox.OpExecute, "active", "busy"),
		sandbox.Failed(sandbox.OpExecute, sandbox.ReasonStartFailed, smuggled),
		sandbox.FailedAt(sandbox.OpExecute, strings.Repeat("p", sandbox.MaxPathBytes), "r", nil),
		sandbox.OverLimit(sandbox.StreamStdout, 5),
	} {
		b := newBench(t)
		id := b.activate(durable)
		b.fake.on[sandbox.OpExecute] = func(context.Context) error { return want }
		_, err := b.runtime.Execute(b.ctx, id, command)
		if got, ok := err.(*sandbox.Error); !ok || !got.Is(want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if errors.As(err, new(*sandboxruntime.Error)) {
			t.Error("a provider smuggled a runtime kind")
		}
	}
}

// TestErrors_APanicIsADefectNotACrash, also one that ends its goroutine.
func TestErrors_APanicIsADefectNotACrash(t *testing.T) {
	for name, die := range map[string]func(context.Context) error{
		"panic": func(context.Context) error { panic("provider bug") },
		//lint:ignore SA5000 the panic is what is wanted
		"nil":    func(context.Context) error { var m map[string]int; m["x"] = 1; return nil },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		eachHandoff(t, func(b *bench, op sandbox.Operation, drive func(context.Context) error) {
			b.fake.on[op] = die
			d, ok := errors.AsType[*sandboxruntime.Defect](drive(b.ctx))
			if !ok || d.Operation != op {
				b.Fatal(name, d)
			}
			if _, nested := d.Cause.(*sandboxruntime.Defect); nested {
				b.Error(name, "a defect in a defect")
			}
		})
	}
}
