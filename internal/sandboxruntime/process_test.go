package sandboxruntime_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

func (b *bench) open(id sandbox.InstanceID) (sandbox.Process, *fakeProcess) {
	b.Helper()
	p, err := b.runtime.OpenProcess(b.ctx, id, program)
	if err != nil {
		b.Fatal(err)
	}
	return p, b.fake.processes[len(b.fake.processes)-1]
}

// TestOpenProcess_RequestBounds: refused before the provider is called.
func TestOpenProcess_RequestBounds(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	long := strings.Repeat("a", sandbox.MaxArgumentBytes)
	for name, c := range map[string]struct {
		arguments []string
		ok        bool
	}{
		"256":     {slices.Repeat([]string{"a"}, 256), true},
		"257":     {slices.Repeat([]string{"a"}, 257), false},
		"65536":   {[]string{long}, true},
		"65536+1": {[]string{long + "a"}, false},
		"NUL":     {[]string{"a\x00b"}, false},
	} {
		q := program
		q.Arguments = c.arguments
		before := b.called(sandbox.OpOpenProcess)
		p, err := b.runtime.OpenProcess(b.ctx, id, q)
		if called := b.called(sandbox.OpOpenProcess) > before; called != c.ok || (err == nil) != c.ok {
			t.Error(name, called, err)
		}
		if p != nil {
			_ = p.Destroy(b.ctx)
		}
	}
}

// TestOpenProcess_TheRunnerMintsTheID: new for each call, of one form.
func TestOpenProcess_TheRunnerMintsTheID(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	seen := map[string]bool{}
	for range 100 {
		p, _ := b.open(id)
		minted := p.Evidence().ProcessID
		if seen[minted] || !regexp.MustCompile(`^pr_[0-9a-f]{32}$`).MatchString(minted) {
			t.Fatal(minted)
		}
		seen[minted] = true
		if err := p.Destroy(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenProcess_StreamsAreTheProvidersOwn: nothing lies in between.
func TestOpenProcess_StreamsAreTheProvidersOwn(t *testing.T) {
	b := newBench(t)
	p, f := b.open(b.activate(durable))
	if p.Input() != f.input || p.Output() != f.output || p.Error() != f.errors {
		t.Error("a stream was wrapped")
	}
}

// TestOpenProcess_AlreadyOpenIsTheProvidersRule: the runtime passes its
// refusal on and keeps no such rule itself.
func TestOpenProcess_AlreadyOpenIsTheProvidersRule(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	b.open(id)
	b.open(id) // a provider that quietly allows two gets no error
	want := sandbox.Conflict(sandbox.OpOpenProcess, "", sandbox.ActualProcessAlreadyOpen)
	b.fake.on[sandbox.OpOpenProcess] = func(context.Context) error { return want }
	if _, err := b.runtime.OpenProcess(b.ctx, id, program); !errors.Is(err, want) {
		t.Error(err)
	}
}

// TestOpenProcess_ExitIsDecodedAgain when wait settles, and re-readable.
func TestOpenProcess_ExitIsDecodedAgain(t *testing.T) {
	code := int64(0)
	for name, c := range map[string]struct {
		exit  sandbox.Exit
		field string
	}{
		"both":    {sandbox.Exit{ExitCode: &code, Signal: "SIGTERM"}, "exit"},
		"none":    {sandbox.Exit{}, "exit"},
		"256":     {sandbox.Exited(256), "exit_code"},
		"-1":      {sandbox.Exited(-1), "exit_code"},
		"KILL":    {sandbox.Signaled("KILL"), "signal"},
		"255":     {sandbox.Exited(255), ""},
		"SIGRT+1": {sandbox.Signaled("SIGRTMIN+1"), ""},
	} {
		b := newBench(t)
		p, f := b.open(b.activate(durable))
		answers := 0
		f.wait = func() (sandbox.Exit, error) { answers++; return c.exit, nil }
		for range 2 {
			e, err := p.Wait(b.ctx)
			if c.field != "" {
				wantField(t, err, sandbox.OpOpenProcess, c.field)
			} else if err != nil || e.Validate() != nil {
				t.Error(name, err)
			}
		}
		if c.field == "" && answers != 1 {
			t.Errorf("%s: a settled exit was asked for %d times", name, answers)
		}
	}
}

// TestOpenProcess_WaitObeysItsContext and can be asked again.
func TestOpenProcess_WaitObeysItsContext(t *testing.T) {
	b := newBench(t)
	p, f := b.open(b.activate(durable))
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := p.Wait(ctx); err != context.Canceled {
		t.Error(err)
	}
	f.end(sandbox.Exited(7))
	if e, err := p.Wait(b.ctx); err != nil || *e.ExitCode != 7 {
		t.Error(e, err)
	}
}

// TestOpenProcess_Signals: three are the vocabulary.
func TestOpenProcess_Signals(t *testing.T) {
	b := newBench(t)
	p, f := b.open(b.activate(durable))
	f.deaf = true
	for s, ok := range map[sandbox.ControlSignal]bool{"SIGINT": true, "SIGTERM": true, "SIGKILL": true, "SIGHUP": false, "": false, "9": false} {
		if err := p.Signal(b.ctx, s); (err == nil) != ok {
			t.Error(s, err)
		}
	}
	if len(f.signals) != 3 {
		t.Error(f.signals)
	}
}

// TestOpenProcess_InterruptedBeforeOwnership: destroyed, also when the
// provider comes back only after the caller has gone.
func TestOpenProcess_InterruptedBeforeOwnership(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	ctx, cancel := context.WithCancel(b.ctx)
	b.fake.on[sandbox.OpOpenProcess] = func(context.Context) error { cancel(); return nil }
	if _, err := b.runtime.OpenProcess(ctx, id, program); err != context.Canceled || b.fake.processes[0].destroys != 1 {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(b.ctx)
	let, destroyed := make(chan struct{}), make(chan struct{})
	b.fake.on[sandbox.OpOpenProcess] = func(context.Context) error { <-let; return nil }
	b.fake.lieProcess = func(p *fakeProcess) sandbox.Process {
		p.onDestroy = func(context.Context) error { close(destroyed); return nil }
		return p
	}
	failed := make(chan error, 1)
	go func() { _, err := b.runtime.OpenProcess(ctx, id, program); failed <- err }()
	cancel()
	b.await(1)
	b.clock.Advance(30 * time.Second)
	if err := <-failed; !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonIndeterminate}) {
		t.Error(err)
	}
	close(let)
	<-destroyed
}

// TestOpenProcess_NothingComesLate: a provider that answers late, and with
// nothing or a failure, leaves nothing to destroy and frees the instance.
func TestOpenProcess_NothingComesLate(t *testing.T) {
	broken := sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonStartFailed, nil)
	for name, answer := range map[string]error{"nil": nil, "failure": broken} {
		for _, op := range []sandbox.Operation{sandbox.OpOpenProcess, sandbox.OpBeginActiveWrite} {
			b := newBench(t)
			id := b.activate(durable)
			ctx, cancel := context.WithCancel(b.ctx)
			let := make(chan struct{})
			b.fake.on[op] = func(context.Context) error { <-let; return answer }
			b.fake.lieProcess = func(*fakeProcess) sandbox.Process { return nil }
			b.fake.lieWrite = func(*fakeWrite) sandbox.ActiveWrite { return nil }
			failed := make(chan error, 1)
			go func() {
				if op == sandbox.OpOpenProcess {
					_, err := b.runtime.OpenProcess(ctx, id, program)
					failed <- err
				} else {
					_, err := b.runtime.BeginActiveWrite(ctx, id, []string{repo + "/a"})
					failed <- err
				}
			}()
			cancel()
			b.await(1)
			b.clock.Advance(30 * time.Second)
			if err := <-failed; !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonIndeterminate}) {
				t.Error(name, op, err)
			}
			close(let)
			b.eventually(func() bool {
				_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
				return err == nil
			})
		}
	}
}

// TestOpenProcess_EvidenceThatPanics costs the process, not the Runner.
func TestOpenProcess_EvidenceThatPanics(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	b.fake.lieProcess = func(p *fakeProcess) sandbox.Process { return explosive{p} }
	_, err := b.runtime.OpenProcess(b.ctx, id, program)
	if _, ok := errors.AsType[*sandboxruntime.Defect](err); !ok || b.fake.processes[0].destroys != 1 {
		t.Error(err)
	}
}

type explosive struct{ *fakeProcess }

func (explosive) Evidence() sandbox.Evidence { panic("no evidence") }

// TestOpenProcess_ReleaseEndsALiveProcess: SIGTERM, a 5 s wait, then force.
func TestOpenProcess_ReleaseEndsALiveProcess(t *testing.T) {
	t.Run("obeys SIGTERM", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		_, f := b.open(id)
		if _, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.signals, []sandbox.ControlSignal{sandbox.SignalTerminate}) || f.destroys != 0 {
			t.Error(f.signals, f.destroys)
		}
	})
	t.Run("is deaf", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		_, f := b.open(id)
		f.deaf = true
		failed := make(chan error, 1)
		go func() {
			_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
			failed <- err
		}()
		b.await(1)
		b.clock.Advance(5*time.Second - 1)
		select {
		case err := <-failed:
			t.Fatal("did not wait 5 s:", err)
		default:
		}
		b.clock.Advance(1)
		if err := <-failed; err != nil || f.destroys != 1 {
			t.Error(err, f.destroys)
		}
	})
	t.Run("cannot be destroyed", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		_, f := b.open(id)
		f.wait = func() (sandbox.Exit, error) { return sandbox.Exit{}, nil } // no exit at all
		f.onDestroy = func(context.Context) error { return sandbox.Failed(sandbox.OpOpenProcess, "stuck", nil) }
		_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
		if !errors.Is(err, &sandbox.Error{Reason: "stuck"}) || b.called(sandbox.OpRelease) != 0 {
			t.Error(err)
		}
		if _, err := b.runtime.Execute(b.ctx, id, command); err != nil {
			t.Error("the refused release left the instance:", err)
		}
	})
	t.Run("was destroyed", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		p, f := b.open(id)
		if err := errors.Join(p.Destroy(b.ctx), p.Destroy(b.ctx)); err != nil || f.destroys != 2 {
			t.Fatal(err)
		}
		if _, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); err != nil || len(f.signals) != 0 {
			t.Error(err, f.signals)
		}
	})
	t.Run("has ended", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		p, f := b.open(id)
		f.end(sandbox.Exited(0))
		if _, err := p.Wait(b.ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later}); err != nil || len(f.signals) != 0 {
			t.Error(err, f.signals)
		}
	})
}

// TestErrors_NetworkPolicyIsCheckedOnEachStart: an instance that was retained
// under a policy that no longer fits may be torn down and read, not started.
func TestErrors_NetworkPolicyIsCheckedOnEachStart(t *testing.T) {
	for name, policy := range map[string]sandbox.NetworkPolicy{
		"mode":  {Mode: sandbox.NetworkUnrestricted},
		"grade": {Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: sandbox.EgressSecurityBoundary},
		"shape": {Mode: "legacy"},
	} {
		b := newBench(t)
		q := request(b.fake, durable)
		q.Profile.NetworkPolicy = policy
		if err := errors.Join(b.runtime.Adopt(q, "old1", sandbox.StateProvisioning), b.runtime.Adopt(q, "old2", sandbox.StateActive)); err != nil {
			t.Fatal(err)
		}
		if err := b.runtime.Adopt(q, "old2", sandbox.StateActive); err == nil {
			t.Error("adopted twice")
		}
		_, activate := b.runtime.Activate(b.ctx, "old1")
		_, execute := b.runtime.Execute(b.ctx, "old2", command)
		_, open := b.runtime.OpenProcess(b.ctx, "old2", program)
		_, resume := b.runtime.Resume(b.ctx, sandbox.ResumeRequest{Request: q, Snapshot: snapshot(b)})
		for op, err := range map[sandbox.Operation]error{sandbox.OpActivate: activate, sandbox.OpExecute: execute, sandbox.OpOpenProcess: open, sandbox.OpResume: resume} {
			e, ok := err.(*sandbox.Error)
			if !ok || e.Kind != sandbox.CapabilityUnavailable || e.Requirement != sandbox.RequireNetworkPolicy || e.Operation != op || !strings.HasPrefix(e.Expected, string(policy.Mode)) || b.called(op) != 0 {
				t.Error(name, op, err)
			}
		}
		if err := errors.Join(b.runtime.Destroy(b.ctx, "old1"), b.runtime.Destroy(b.ctx, "old2")); err != nil {
			t.Error(err)
		}
	}
	b := newBench(t)
	q := request(b.fake, durable)
	for _, bad := range []func() error{
		func() error { return b.runtime.Adopt(q, "a b", sandbox.StateActive) },
		func() error { return b.runtime.Adopt(q, "a", "gone") },
		func() error { q := q; q.ExpiresAt = ""; return b.runtime.Adopt(q, "a", sandbox.StateActive) },
		func() error { q := q; q.Target.Provider = "x"; return b.runtime.Adopt(q, "a", sandbox.StateActive) },
	} {
		if bad() == nil {
			t.Error("adopted")
		}
	}
}
