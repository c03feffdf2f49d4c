package memory

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) sandbox.Timestamp { return sandbox.At(start.Add(d)) }

const image = "registry.example/base@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func request() sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "l", LeaseEpoch: 1,
		Target: DefaultTarget,
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 64 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionDurable,
		},
		Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts: []sandbox.Mount{
			{MountPath: "/workspace/ro", Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit},
			{MountPath: "/workspace/rw", Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject},
			{MountPath: "/workspace/rw/sealed", Access: sandbox.AccessReadOnly, Kind: sandbox.MountMemory},
		},
		ExpiresAt: at(time.Hour),
	}
}

func with(change func(*sandbox.ProvisionRequest)) sandbox.ProvisionRequest {
	r := request()
	change(&r)
	return r
}

func zdr(r *sandbox.ProvisionRequest) { r.Profile.RetentionMode = sandbox.RetentionEphemeralZDR }

type fixture struct {
	*testing.T
	p     *Provider
	clock *Manual
}

// newFixture makes a provider, and sees to it that the test leaves no
// goroutine.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	before := runtime.NumGoroutine()
	clock := NewManual(start)
	f := &fixture{t, New(Options{Seed: "test", Clock: clock}), clock}
	t.Cleanup(func() {
		for id := range f.p.instances {
			f.must(f.p.Destroy(context.Background(), id))
		}
		deadline := time.Now().Add(10 * time.Second)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
				return
			}
			runtime.Gosched()
		}
	})
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) ctx() context.Context { return f.Context() }

// want fails unless err is the *sandbox.Error that agrees with e.
func (f *fixture) want(err error, e *sandbox.Error) {
	f.Helper()
	if err == nil || !errors.Is(err, e) {
		f.Fatalf("error %v, want %v", err, e)
	}
}

func (f *fixture) provision(r sandbox.ProvisionRequest) sandbox.InstanceID {
	f.Helper()
	h, err := f.p.Provision(f.ctx(), r)
	f.must(err)
	return h.Value.InstanceID
}

func (f *fixture) activate(id sandbox.InstanceID) {
	f.Helper()
	_, err := f.p.Activate(f.ctx(), id)
	f.must(err)
}

func (f *fixture) active(r sandbox.ProvisionRequest) sandbox.InstanceID {
	f.Helper()
	id := f.provision(r)
	f.activate(id)
	return id
}

func (f *fixture) write(id sandbox.InstanceID, path, content string) {
	f.Helper()
	f.must(f.p.WriteFile(f.ctx(), id, sandbox.FileWrite{Path: path, Content: []byte(content)}))
}

func shellCommand(script string) sandbox.Command {
	return sandbox.Command{
		Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/",
		Environment: map[string]string{"HOME": sandbox.HomePath}, TimeoutSeconds: 10, OutputLimitBytes: 1 << 20,
	}
}

func (f *fixture) run(id sandbox.InstanceID, script string) sandbox.Settlement {
	f.Helper()
	s, err := f.p.Execute(f.ctx(), id, shellCommand(script))
	f.must(err)
	f.must(s.Validate(1 << 20))
	return s
}

// sh runs a script that must succeed and returns what it wrote.
func (f *fixture) sh(id sandbox.InstanceID, script string) string {
	f.Helper()
	s := f.run(id, script)
	if s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
		f.Fatalf("%q: %s %s %q", script, show(s), s.Stdout, s.Stderr)
	}
	return string(s.Stdout)
}

func show(s sandbox.Settlement) string {
	switch {
	case s.TimedOut:
		return "timed out"
	case s.Exit.ExitCode != nil:
		return "exit " + string(rune('0'+*s.Exit.ExitCode/100%10)) + string(rune('0'+*s.Exit.ExitCode/10%10)) + string(rune('0'+*s.Exit.ExitCode%10))
	}
	return s.Exit.Signal
}

func (f *fixture) read(id sandbox.InstanceID, path, root string) string {
	f.Helper()
	b, err := f.p.ReadFile(f.ctx(), id, sandbox.FileRead{Path: path, AllowedRoot: root, MaximumBytes: sandbox.MaxFileBytes})
	f.must(err)
	return string(b)
}

func contains(t *testing.T, got []byte, want string) {
	t.Helper()
	if !strings.Contains(string(got), want) {
		t.Errorf("%q does not contain %q", got, want)
	}
}
