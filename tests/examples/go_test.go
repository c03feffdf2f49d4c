package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
)

// goProgram builds the provider of this tree.
func goProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "provider")
	goBuild(t, "../../examples/provider-go", path)
	return path
}

// goSkeleton makes a provider of a tier and builds it as a stranger would who has
// the Go toolchain and nothing else: no network, no module ever fetched.
func goSkeleton(t *testing.T, tier string) string {
	t.Helper()
	dir := t.TempDir()
	if err := scaffold.Write(dir, scaffold.Options{Language: "go", Tier: tier, Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(t.TempDir(), "none")
	path := filepath.Join(dir, "provider")
	goBuild(t, dir, path, "GOFLAGS=-mod=mod", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off", "GOMODCACHE="+modules)
	if left, err := os.ReadDir(modules); err == nil && len(left) > 0 {
		t.Errorf("it took modules: %v", left)
	}
	return path
}

func goBuild(t *testing.T, dir, to string, environment ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", to, ".")
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

var nine = []string{
	"stage-seal-execute", "stage-git-project", "checkpoint-clone", "allowlist-egress", "durable-round-trip", "none-egress",
	"zdr-release", "orphan-reclaim", "pause-pinning",
}

// What each tier has of the nine, and what it has of the deeper suites holds.
func TestGoDayOne(t *testing.T) {
	t.Parallel()
	conforms(t, spawn(t, goProgram(t)), "go-day-one", conformance.Options{
		Suites: []report.Suite{report.Nine, report.Contract, report.Wire}, Passes: 1, Patience: 2 * time.Minute,
	}, 4, 5)
}

func TestGoDurable(t *testing.T) {
	t.Parallel()
	p := spawn(t, goSkeleton(t, scaffold.Durable))
	p.durable = true
	conforms(t, p, "go-durable", conformance.Options{
		Passes: 1, Patience: 2 * time.Minute,
		Only: append(nine, "snapshot.*", "clone.*", "release.*", "resume.*", "identity.resume-in-full"), // the rest is the day-one tier's
	}, 1, 8)
}

func TestGoMinimum(t *testing.T) {
	t.Parallel()
	conforms(t, spawn(t, goSkeleton(t, scaffold.Minimum)), "go-minimum", conformance.Options{
		Suites: []report.Suite{report.Nine}, Passes: 1, Patience: 2 * time.Minute,
	}, 6, 3)
}

// TestGoNeedsNamespaces: a machine that gives none gets no provider, under the
// exit code that a suite does not take for a pass.
func TestGoNeedsNamespaces(t *testing.T) { needsNamespaces(t, goProgram(t)) }

// TestGoKilled: a provider that is killed takes every process of its machines
// with it.
func TestGoKilled(t *testing.T) {
	t.Parallel()
	killed(t, goProgram(t))
}

// TestGoRestarts: what a durable provider retained survives its being killed, and
// what died with it is swept by the next one and left by nobody.
func TestGoRestarts(t *testing.T) {
	t.Parallel()
	path := goSkeleton(t, scaffold.Durable)
	p := spawn(t, path)
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, q := t.Context(), request(envelope, sandbox.RetentionDurable, "first")
	made := func(lease string) sandbox.InstanceID {
		q.LeaseID = lease
		h, err := p.Provision(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Activate(ctx, h.Value.InstanceID); err != nil {
			t.Fatal(err)
		}
		return h.Value.InstanceID
	}
	id := made("first")
	if err := p.WriteFile(ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/kept", Content: []byte("kept")}); err != nil {
		t.Fatal(err)
	}
	released, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	lost := made("second")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.end(t)

	p = spawnOn(t, path, p.state)
	p.durable = true
	q.LeaseID = "third"
	h, err := p.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: *released.Value.Snapshot})
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.ReadFile(ctx, h.Value.InstanceID, sandbox.FileRead{Path: sandbox.OutputPath + "/kept", AllowedRoot: sandbox.OutputPath, MaximumBytes: 99})
	if err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	later := sandbox.At(time.Now().Add(90 * time.Minute))
	swept, err := p.Cleanup(ctx, sandbox.CleanupRequest{Now: later, OrphanedBefore: later})
	if err != nil || len(swept.InstanceIDs) != 2 || len(swept.SnapshotIDs) != 1 {
		t.Errorf("%v, %v; there were %s and %s", swept, err, lost, h.Value.InstanceID)
	}
}
