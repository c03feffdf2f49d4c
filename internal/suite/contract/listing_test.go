package contract

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// TestFilesOfTheOracle runs every probe of files against the right provider,
// through two passes.
func TestFilesOfTheOracle(t *testing.T) {
	target, _ := oracle.New("files")
	rep := probe.Run(t.Context(), target, slices.Concat(writes(), reads(), listings()), probe.Options{Suites: []report.Suite{report.Contract}})
	for _, row := range rep.Probes {
		if row.Status != report.Pass {
			t.Errorf("%s is %s: %s %+v", row.ID, row.Status, row.Reason, row.Findings)
		}
		if row.Milliseconds > 200 {
			t.Logf("%s took %d ms", row.ID, row.Milliseconds)
		}
	}
	for _, row := range rep.Standing {
		if row.Status != report.Pass && row.Status != report.Skip {
			t.Errorf("%s is %s: %+v", row.ID, row.Status, row.Findings)
		}
	}
	if !rep.Leaks.None() {
		t.Errorf("leaks: %+v", rep.Leaks)
	}
}
