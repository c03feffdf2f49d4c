package examples

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/scaffold"
)

func python(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	program, err := filepath.Abs("../../examples/provider-python/run")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// pythonSkeleton makes a provider of a tier.
func pythonSkeleton(t *testing.T, tier string) string {
	t.Helper()
	python(t)
	dir := filepath.Join(t.TempDir(), "acme")
	if err := scaffold.Write(dir, scaffold.Options{Language: "python", Tier: tier, Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "run")
}

// TestPythonReadsVectors: it reads every request of the kit as the kit says, with
// the kit's own codec.
func TestPythonReadsVectors(t *testing.T) {
	dir := filepath.Dir(pythonSkeleton(t, scaffold.Durable))
	out, err := exec.CommandContext(t.Context(), "python3", "-B", "-X", "utf8", filepath.Join(dir, "selfcheck.py")).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), " requests, 0 wrong\n") {
		t.Errorf("%v\n%s", err, out)
	}
	kit, err := os.ReadFile(filepath.Join(dir, "kit", "check.py"))
	if err != nil {
		t.Fatal(err)
	}
	_, codec, _ := strings.Cut(string(kit), "# --- the codec")
	codec, _, _ = strings.Cut(codec, "# --- the check")
	_, codec, _ = strings.Cut(codec, "\n")
	own, err := os.ReadFile(filepath.Join(dir, "codec.py"))
	if err != nil || len(codec) < 1000 || !strings.Contains(string(own), strings.TrimSpace(codec)) {
		t.Errorf("codec.py is not that of the kit any more, or %v", err)
	}
}

// TestPythonNeedsNamespaces: a machine that gives none gets no provider, under
// the exit code that a suite does not take for a pass.
func TestPythonNeedsNamespaces(t *testing.T) { needsNamespaces(t, python(t)) }

func TestPython(t *testing.T) {
	t.Parallel()
	everyTier(t, "python", pythonSkeleton)
}

// TestPythonKilled: a provider that is killed takes every process of its machines
// with it.
func TestPythonKilled(t *testing.T) {
	t.Parallel()
	killed(t, python(t))
}

// TestPythonStartsAgain: the socket of one that was killed keeps nobody from it.
func TestPythonStartsAgain(t *testing.T) {
	t.Parallel()
	p := spawn(t, pythonSkeleton(t, scaffold.Durable))
	p.durable = true
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := errors.Join(p.Close(), p.start(t.Context())); err != nil {
		t.Fatal(err)
	}
}
