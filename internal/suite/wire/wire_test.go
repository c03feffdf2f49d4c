package wire_test

import (
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// The reference provider behind the real server passes everything.
func TestTheRightServerPasses(t *testing.T) {
	rep, _ := suitecheck.Run(t.Context(), sandboxtest.Saboteur{ID: "right"}, "", report.Wire)
	for _, row := range rep.Rows() {
		if row.Suite == report.Wire {
			t.Logf("%-32s %-6s %5d ms %s", row.ID, row.Status, row.Milliseconds, row.Reason)
			if row.Status != report.Pass {
				t.Errorf("%s: %s %+v", row.ID, row.Status, row.Findings)
			}
		}
	}
	if !rep.Leaks.None() {
		t.Errorf("left: %+v", rep.Leaks)
	}
}
