package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
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

// TestPythonReadsVectors: it reads every request of the kit as the kit says, with
// the kit's own codec.
func TestPythonReadsVectors(t *testing.T) {
	dir := filepath.Dir(python(t))
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

// TestPython: the day-one tier skips four of the nine and passes five, and what
// it has of the deeper suites holds, also by hand over its wire.
func TestPython(t *testing.T) {
	t.Parallel()
	conforms(t, spawn(t, python(t)), "python", conformance.Options{Suites: report.Suites(), Passes: 1, StreamBytes: 64 << 20, Patience: 2 * time.Minute}, 4, 5)
}

// TestPythonKilled: a provider that is killed takes every process of its machines
// with it.
func TestPythonKilled(t *testing.T) {
	t.Parallel()
	killed(t, python(t))
}
