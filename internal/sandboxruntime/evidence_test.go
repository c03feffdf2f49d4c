package sandboxruntime_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// clauses is the list of the sixteen, with one saboteur or more for each that
// breaks it and nothing before it.
var clauses = []struct {
	number int
	field  string
	lie    func(*sandbox.Evidence)
}{
	{1, "instance_id", func(e *sandbox.Evidence) { e.InstanceID = "i2" }},
	{2, "provider", func(e *sandbox.Evidence) { e.Provider = "other" }},
	{3, "provider_revision", func(e *sandbox.Evidence) { e.ProviderRevision = "fake@2" }},
	{4, "materialization_revision", func(e *sandbox.Evidence) { e.MaterializationRevision = "image@2" }},
	{5, "root_image", func(e *sandbox.Evidence) { e.RootImage = strings.Replace(e.RootImage, "base", "evil", 1) }},
	{6, "platform.architecture", func(e *sandbox.Evidence) { e.Platform.Architecture = "arm64" }},
	{7, "profile_digest", func(e *sandbox.Evidence) { e.ProfileDigest = sandbox.ImageDigest(image) }},
	{8, "network_mode", func(e *sandbox.Evidence) { e.NetworkMode = sandbox.NetworkUnrestricted }},
	{9, "resource_limits.memory_bytes", func(e *sandbox.Evidence) { e.ResourceLimits.MemoryBytes++ }},
	{10, "schema", func(e *sandbox.Evidence) { e.Schema = "checkfu.sandbox-process-evidence.v2" }},
	{11, "process_id", func(e *sandbox.Evidence) { e.ProcessID = "pr_00000000000000000000000000000000" }},
	{12, "image_digest", func(e *sandbox.Evidence) { e.ImageDigest = e.ProfileDigest }},
	{13, "started_at", func(e *sandbox.Evidence) { e.StartedAt = "2026-11-29T12:00:00Z" }},
	{13, "observed_at", func(e *sandbox.Evidence) { e.ObservedAt = "" }},
	{13, "observed_at", func(e *sandbox.Evidence) { e.StartedAt = sandbox.At(epoch.Add(time.Millisecond)) }},
	{14, "enforcement.disk_limit", func(e *sandbox.Evidence) { e.Enforcement.DiskLimit = "" }},
	{14, "enforcement.non_root", func(e *sandbox.Evidence) { e.Enforcement.NonRoot = "trust_me" }},
	{15, "enforcement.network_policy", func(e *sandbox.Evidence) { e.Enforcement.NetworkPolicy = sandbox.NotEnforced }},
	{15, "enforcement.network_policy", func(e *sandbox.Evidence) { e.Enforcement.NetworkPolicy = sandbox.GuestObserved }},
	{16, "enforcement.root_read_only", func(e *sandbox.Evidence) { e.Enforcement.RootReadOnly = sandbox.NotEnforced }},
	{16, "enforcement.sandbox_isolation", func(e *sandbox.Evidence) { e.Enforcement.SandboxIsolation = sandbox.RunnerEnforced }},
}

// TestEvidence_SixteenClauses: a process whose evidence breaks one clause is
// named by clause and field and destroyed exactly once.
func TestEvidence_SixteenClauses(t *testing.T) {
	seen := map[int]bool{}
	for _, c := range clauses {
		t.Run(c.field, func(t *testing.T) {
			b := newBench(t)
			id := b.activate(durable)
			b.fake.lieProcess = func(p *fakeProcess) sandbox.Process { c.lie(&p.evidence); return p }
			p, err := b.runtime.OpenProcess(b.ctx, id, program)
			if p != nil {
				t.Error("the process was handed over")
			}
			want := &sandboxruntime.Error{Kind: sandboxruntime.ProtocolInvalid, Operation: sandboxruntime.OpOpenProcessIdentity, Field: "evidence." + c.field, Check: c.number}
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			seen[c.number] = true
			if n := b.fake.processes[0].destroys; n != 1 {
				t.Errorf("destroyed %d times", n)
			}
		})
	}
	if len(seen) != 16 {
		t.Errorf("%d clauses have a saboteur, want 16", len(seen))
	}
}

// TestEvidence_EveryLeafIsBound: no leaf of the evidence can change unnoticed.
// The times may: they are the provider's, and only their order is checked.
func TestEvidence_EveryLeafIsBound(t *testing.T) {
	for _, l := range leaves(sandbox.Evidence{}) {
		t.Run(l.path, func(t *testing.T) {
			b := newBench(t)
			id := b.activate(durable)
			b.fake.lieProcess = func(p *fakeProcess) sandbox.Process { l.sabotage(&p.evidence); return p }
			_, err := b.runtime.OpenProcess(b.ctx, id, program)
			wantField(t, err, sandboxruntime.OpOpenProcessIdentity, "evidence."+l.path)
		})
	}
}

// TestEvidence_Clause15HoldsOnlyAgainstAClaim: an envelope that honestly says
// not_enforced may run a restricted mode that it does not enforce.
func TestEvidence_Clause15HoldsOnlyAgainstAClaim(t *testing.T) {
	b := newBench(t, func(f *fake) { f.envelope.Enforcement.NetworkPolicy = sandbox.NotEnforced })
	p, err := b.runtime.OpenProcess(b.ctx, b.activate(durable), program)
	if err != nil || p.Evidence().Enforcement.NetworkPolicy != sandbox.NotEnforced {
		t.Error(p, err)
	}
}

// TestEvidence_StreamsAreReal: absent streams, also those that hide in a
// non-nil interface.
func TestEvidence_StreamsAreReal(t *testing.T) {
	var hidden *io.PipeWriter
	var hiddenReader *io.PipeReader
	cases := map[string]func(*fakeProcess) sandbox.Process{
		"input":   func(p *fakeProcess) sandbox.Process { p.input = nil; return p },
		"output":  func(p *fakeProcess) sandbox.Process { p.output = nil; return p },
		"error":   func(p *fakeProcess) sandbox.Process { p.errors = nil; return p },
		"input ":  func(p *fakeProcess) sandbox.Process { p.input = hidden; return p },
		"output ": func(p *fakeProcess) sandbox.Process { p.output = hiddenReader; return p },
		"process": func(*fakeProcess) sandbox.Process { return nil },
		"process ": func(*fakeProcess) sandbox.Process {
			var none *fakeProcess
			return none
		},
	}
	for field, lie := range cases {
		t.Run(field, func(t *testing.T) {
			b := newBench(t)
			id := b.activate(durable)
			b.fake.lieProcess = lie
			_, err := b.runtime.OpenProcess(b.ctx, id, program)
			wantField(t, err, sandboxruntime.OpOpenProcessIdentity, strings.TrimSpace(field))
			want := 1
			if strings.HasPrefix(field, "process") {
				want = 0
			}
			if n := b.fake.processes[0].destroys; n != want {
				t.Errorf("destroyed %d times, want %d", n, want)
			}
		})
	}
}

// TestEvidence_RejectedProcessIsDestroyedUnder30Seconds: a destroy that hangs
// does not hang the Run, and both causes come back.
func TestEvidence_RejectedProcessIsDestroyedUnder30Seconds(t *testing.T) {
	b := newBench(t)
	id := b.activate(durable)
	let, begun := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(let) })
	b.fake.lieProcess = func(p *fakeProcess) sandbox.Process {
		p.evidence.Provider = "other"
		p.onDestroy = func(context.Context) error { close(begun); <-let; return nil }
		return p
	}
	failed := make(chan error, 1)
	go func() {
		_, err := b.runtime.OpenProcess(b.ctx, id, program)
		failed <- err
	}()
	<-begun // its timer runs, and no other
	b.clock.Advance(30*time.Second - 1)
	select {
	case err := <-failed:
		t.Fatal("gave up before 30 s:", err)
	default:
	}
	b.clock.Advance(1)
	err := <-failed
	wantField(t, err, sandboxruntime.OpOpenProcessIdentity, "evidence.provider")
	if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonTimedOut}) {
		t.Error("the second cause is missing:", err)
	}
}

// await waits until n timers run.
func (b *bench) await(n int) {
	b.Helper()
	if err := b.clock.AwaitTimers(b.ctx, n); err != nil {
		b.Fatalf("%d timers run, want %d: %v", b.clock.Timers(), n, err)
	}
}
