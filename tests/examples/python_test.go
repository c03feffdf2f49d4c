package examples

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
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

// TestPython: what each tier has of the nine. The most that there is holds to every
// suite, also by hand over its wire and across crashes: two providers share them,
// for most of the time it is a clock that they wait for.
func TestPython(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, tier     string
		suites         []report.Suite
		skips, passing int
	}{
		{"durable", scaffold.Durable, []report.Suite{report.Nine, report.Contract, report.Wire}, 1, 8},
		{"durable-deep", scaffold.Durable, []report.Suite{report.Faults, report.Live, report.Files, report.Egress}, 9, 0},
		{"day-one", scaffold.DayOne, []report.Suite{report.Nine}, 4, 5},
		{"minimum", scaffold.Minimum, []report.Suite{report.Nine}, 6, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := spawn(t, pythonSkeleton(t, c.tier))
			p.durable = c.tier == scaffold.Durable
			conforms(t, p, "python-"+c.name, conformance.Options{
				Suites: c.suites, Passes: 1, StreamBytes: 64 << 20, Patience: 2 * time.Minute,
			}, c.skips, c.passing)
		})
	}
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
