package sandboxruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// far is a provider that says whether there is a wire in between.
type far struct {
	*fake
	remote bool
}

func (f far) Remote() bool { return f.remote }

// broken is what a wire's client says of a peer that broke the wire.
type broken struct{ field, expected, got string }

func (b broken) Error() string                       { return "the wire was broken" }
func (b broken) Violation() (field, exp, got string) { return b.field, b.expected, b.got }

// unspeakable panics where it is asked what was broken.
type unspeakable struct{ broken }

func (unspeakable) Violation() (field, expected, got string) { panic("asked") }

// TestEnforcementStatement_RemoteCannotBeForgotten: a provider that says that it
// is remote is, whatever its adapter says; one that says that it is not takes
// nothing back; and one that panics is a defect.
func TestEnforcementStatement_RemoteCannotBeForgotten(t *testing.T) {
	for _, c := range []struct {
		provider func(*fake) sandbox.Provider
		adapter  bool
		narrowed bool
	}{
		{func(f *fake) sandbox.Provider { return f }, false, false},
		{func(f *fake) sandbox.Provider { return f }, true, true},
		{func(f *fake) sandbox.Provider { return far{f, true} }, false, true},
		{func(f *fake) sandbox.Provider { return far{f, true} }, true, true},
		{func(f *fake) sandbox.Provider { return far{f, false} }, false, false},
		{func(f *fake) sandbox.Provider { return far{f, false} }, true, true},
	} {
		b := newBench(t)
		b.fake.envelope.Enforcement = sandbox.EnforcedBy(sandbox.RunnerEnforced)
		a := sandboxruntime.Adapter{Provider: c.provider(b.fake), Remote: c.adapter}
		r, err := b.selector(a).Attach(b.ctx, b.fake.envelope.Target())
		if err != nil {
			t.Fatal(err)
		}
		want := sandbox.EnforcedBy(sandbox.RunnerEnforced)
		if c.narrowed {
			want = sandbox.EnforcedBy(sandbox.ProviderAttested)
		}
		if got := r.Capabilities().Enforcement; got != want || (len(r.Narrowings()) > 0) != c.narrowed {
			t.Errorf("%T, adapter %v: %+v, %v", a.Provider, c.adapter, got, r.Narrowings())
		}
	}
	b := newBench(t)
	_, err := b.selector(sandboxruntime.Adapter{Provider: panics{b.fake}}).Attach(b.ctx, b.fake.envelope.Target())
	if !errors.Is(err, &sandboxruntime.Error{Kind: sandboxruntime.AdapterUnavailable}) || !strings.Contains(err.Error(), "whether") {
		t.Error(err)
	}
}

type panics struct{ *fake }

func (panics) Remote() bool { panic("asked whether") }

// TestErrors_ABrokenWireIsTheRunnersOwnWord, for a remote provider alone: from
// any other the same error is a defect.
func TestErrors_ABrokenWireIsTheRunnersOwnWord(t *testing.T) {
	peer := broken{"value.\x1b[2J", "a\nb", "c\x00"}
	for _, c := range []struct {
		name   string
		remote bool
		err    error
		mapped bool
	}{
		{"remote", true, peer, true},
		{"local", false, peer, false},
		{"remote, and wrapped", true, errors.Join(peer), false},
		{"remote, and it panics", true, unspeakable{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			var err error
			b.runtime, err = b.selector(sandboxruntime.Adapter{Provider: far{b.fake, c.remote}}).Attach(b.ctx, b.fake.envelope.Target())
			if err != nil {
				t.Fatal(err)
			}
			id := b.activate(durable)
			b.fake.on[sandbox.OpExecute] = func(context.Context) error { return c.err }
			_, err = b.runtime.Execute(b.ctx, id, command)
			got, invalid := err.(*sandboxruntime.Error)
			defect, _ := err.(*sandboxruntime.Defect)
			switch {
			case c.mapped && (!invalid || got.Kind != sandboxruntime.ProtocolInvalid || got.Operation != sandbox.OpExecute ||
				got.Field != peer.field || got.Expected != peer.expected || got.Got != peer.got || !strings.Contains(err.Error(), peer.Error())):
				t.Errorf("%T %v", err, err)
			case !c.mapped && (defect == nil || invalid):
				t.Errorf("%T %v", err, err)
			}
			if strings.ContainsAny(err.Error(), "\x1b\n\x00") {
				t.Errorf("%q", err.Error())
			}
			if errors.As(err, new(broken)) {
				t.Error("the provider's own error is in the chain")
			}
		})
	}
}

// TestErrors_ABrokenWireWhileAllocating: the provider's client has undone the
// call by its id, so the instance is as it was before and can be destroyed; at
// selection it is said of the provider that could not be asked.
func TestErrors_ABrokenWireWhileAllocating(t *testing.T) {
	b := newBench(t)
	target := b.fake.envelope.Target()
	adapter := sandboxruntime.Adapter{Provider: far{b.fake, true}}
	var err error
	if b.runtime, err = b.selector(adapter).Attach(b.ctx, target); err != nil {
		t.Fatal(err)
	}
	invalid := func(op sandbox.Operation) error {
		return &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid, Operation: op, Field: "body"}
	}
	fail := func(context.Context) error { return broken{"body", "what the wire says", "something else"} }
	b.fake.on[sandbox.OpProvision] = fail
	if _, err := b.runtime.Provision(b.ctx, request(b.fake, durable)); !errors.Is(err, invalid(sandbox.OpProvision)) {
		t.Errorf("%T %v", err, err)
	}
	delete(b.fake.on, sandbox.OpProvision)
	id := b.activate(durable)
	b.fake.on[sandbox.OpOpenProcess] = fail
	if _, err := b.runtime.OpenProcess(b.ctx, id, program); !errors.Is(err, invalid(sandbox.OpOpenProcess)) {
		t.Errorf("%T %v", err, err)
	}
	b.fake.rollback = fail
	b.fake.lieSnapshot = func(_ sandbox.Operation, s *sandbox.Snapshot) { s.Provider = "another" }
	if _, err := b.runtime.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later}); !errors.Is(err, invalid("snapshot_rollback")) {
		t.Errorf("%T %v", err, err)
	}
	b.fake.on[sandbox.OpCapabilities] = fail
	if _, err := b.selector(adapter).Attach(b.ctx, target); !errors.Is(err, invalid(sandbox.OpCapabilities)) {
		t.Errorf("%T %v", err, err)
	}
}
