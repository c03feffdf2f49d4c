package runner

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

const testImage = "checkfu.local/memory@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// wall lets the programs of the memory provider sleep for real.
type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// world is one provider, one runner on it, and what a command wrote.
type world struct {
	t        *testing.T
	provider *memory.Provider
	runner   *Runner
	spec     Spec
	out, err watched
	patch    bytes.Buffer
}

// newWorld gives a world whose Spec runs script.
func newWorld(t *testing.T, script string) *world {
	w := &world{t: t, provider: memory.New(memory.Options{Clock: wall{}})}
	w.runner = &Runner{
		Target: memory.DefaultTarget, Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"},
		Versions: map[string]string{"checkfu": "test"}, Report: func(err error) { t.Errorf("reported: %v", err) },
	}
	w.use(w.provider)
	w.out.seen, w.err.seen = make(chan struct{}), make(chan struct{})
	w.spec = Spec{
		Image: testImage, Network: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
		Resources: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 64 << 20, DiskBytes: 64 << 20, MaxProcesses: 64},
		Timeout:   time.Minute, Command: []string{"sh", "-c", script},
		Output: &w.out, Errors: &w.err, TempDir: t.TempDir(), Patch: &w.patch,
	}
	return w
}

func (w *world) use(p sandbox.Provider) {
	w.runner.Adapters = []sandboxruntime.Adapter{{Provider: p}}
}

func (w *world) run() (*Record, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := w.runner.Run(ctx, w.spec)
	w.nothingLeft()
	return r, err
}

// nothingLeft asks the provider to sweep everything there is: there must be
// nothing, and staging must have removed what it made.
func (w *world) nothingLeft() {
	w.t.Helper()
	const end sandbox.Timestamp = "9999-01-01T00:00:00.000Z"
	swept, err := w.provider.Cleanup(context.Background(), sandbox.CleanupRequest{Now: end, OrphanedBefore: end})
	if err != nil || len(swept.InstanceIDs) > 0 {
		w.t.Errorf("left behind: %v, %v", swept.InstanceIDs, err)
	}
	if left, err := os.ReadDir(w.spec.TempDir); err != nil || len(left) > 0 {
		w.t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// watched is a buffer that says when it was first written to.
type watched struct {
	mu   sync.Mutex
	b    bytes.Buffer
	once sync.Once
	seen chan struct{}
}

func (b *watched) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.once.Do(func() { close(b.seen) })
	return b.b.Write(p)
}

func (b *watched) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// git runs the real git with nobody's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// repository makes a repository with one commit, one uncommitted change, one
// ignored file and one untracked one.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, dir, ".gitignore", ".env\n")
	write(t, dir, "keep.txt", "one\ntwo\nthree\n")
	write(t, dir, "gone.txt", "bye\n")
	write(t, dir, "dir/dirty.txt", "old\n")
	if err := os.Symlink("keep.txt", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "first")
	write(t, dir, "dir/dirty.txt", "changed here\n")
	write(t, dir, ".env", "SECRET=ignored-secret\n")
	write(t, dir, "untracked.txt", "untracked\n")
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
