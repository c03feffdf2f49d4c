package conformancetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/conformancetest"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

var nine = conformance.Options{Suites: []report.Suite{report.Nine}}

// TestOracle: the right provider passes everything that there is.
func TestOracle(t *testing.T) {
	target, _ := oracle.New("golden")
	rep := conformancetest.Golden(t, target, conformance.Options{Suites: report.Suites(), StreamBytes: 16 << 20}, "testdata/memory.golden")
	if rep.Verdict != report.Conformant || report.Count(rep.Cases, report.Pass) != 9 {
		t.Errorf("%s: %s", rep.Verdict, rep.Reason)
	}
}

// witness records what a test would have said.
type witness struct {
	testing.TB
	ctx    context.Context
	failed []string
}

func (w *witness) Helper()                      {}
func (w *witness) Context() context.Context     { return w.ctx }
func (w *witness) Logf(string, ...any)          {}
func (w *witness) Errorf(f string, args ...any) { w.failed = append(w.failed, fmt.Sprintf(f, args...)) }

// TestUnexpected: a case that passes although the file says otherwise fails the
// test, and so does one that fails although it should pass.
func TestUnexpected(t *testing.T) {
	target, p := oracle.New("unexpected")
	good := conformancetest.Outcomes(conformance.Run(t.Context(), target, nine))
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "golden")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		golden string
		change func(*conformance.Target)
		says   string
	}{
		"right":           {golden: good},
		"unexpected pass": {golden: strings.Replace(good, "zdr-release\tpass", "zdr-release\tfail", 1), says: "zdr-release\tpass"},
		"unexpected fail": {golden: good, says: "zdr-release\tfail", change: func(t *conformance.Target) {
			t.Provider = sandboxtest.Override{Provider: p, ReleaseFunc: func(context.Context, sandbox.InstanceID, sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
				return sandbox.Handoff[sandbox.Released]{}, sandbox.Failed(sandbox.OpRelease, "no", nil)
			}}
		}},
		"leak": {golden: good, says: "left behind", change: func(t *conformance.Target) {
			n := 0
			t.Census = func(context.Context) ([]string, error) {
				n++
				return []string{"process", "process 2"}[:min(n, 2)], nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			target := target
			if c.change != nil {
				c.change(&target)
			}
			w := &witness{TB: t, ctx: t.Context()}
			conformancetest.Golden(w, target, nine, write(c.golden))
			if said := strings.Join(w.failed, "\n"); (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
				t.Errorf("said %q", said)
			}
		})
	}
}
