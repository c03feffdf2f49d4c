package sandboxtest_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestBaselinesNeverConform wants a verdict that says why, for everybody who
// does not even try. The nine cases alone are run: enough for a badge.
func TestBaselinesNeverConform(t *testing.T) {
	const golden = "testdata/baselines.golden"
	var b strings.Builder
	for _, s := range sandboxtest.Baselines() {
		rep, _ := suitecheck.Run(t.Context(), s, "", report.Nine)
		if rep.ExitCode == report.ExitConformant || rep.Verdict == report.Conformant || rep.Verdict == report.Partial {
			t.Errorf("%s (%s): %s, exit %d", s.ID, s.Fault, rep.Verdict, rep.ExitCode)
		}
		var passed []string
		for _, row := range rep.Cases {
			if row.Status == report.Pass {
				passed = append(passed, row.ID)
			}
		}
		fmt.Fprintf(&b, "%s %s\n\t%s, exit %d, cases passed: %d %s\n\t%s\n", s.ID, s.Fault, rep.Verdict, rep.ExitCode, len(passed), strings.Join(passed, " "), rep.Reason)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("the verdicts changed (-update writes them):\n%s", got)
	}
}
