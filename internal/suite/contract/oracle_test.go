package contract

import (
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// passes runs probes on the oracle, in two passes: every row must pass and
// nothing may be left.
func passes(t *testing.T, probes []probe.Probe) {
	t.Helper()
	target, _ := oracle.New("oracle")
	rep := probe.Run(t.Context(), target, probes, probe.Options{Suites: []report.Suite{report.Contract}, StreamBytes: 4 << 20})
	if len(rep.Probes) != len(probes) {
		t.Errorf("%d rows of %d probes", len(rep.Probes), len(probes))
	}
	for _, row := range rep.Rows() {
		if row.Suite != report.Standing && row.Status != report.Pass || row.Status != report.Pass && row.Status != report.Skip {
			t.Errorf("%s: %s %s %v", row.ID, row.Status, row.Reason, row.Findings)
		}
		if row.Milliseconds > 200 {
			t.Errorf("%s took %d ms", row.ID, row.Milliseconds)
		}
	}
	if !rep.Leaks.None() {
		t.Errorf("leaks: %+v", rep.Leaks)
	}
}

func TestTheOraclePassesTheContract(t *testing.T) {
	for name, probes := range map[string][]probe.Probe{
		"envelope": envelope(), "identity": identity(), "states": states(), "commands": commands(),
	} {
		t.Run(name, func(t *testing.T) {
			if len(probes) > 0 {
				passes(t, probes)
			}
		})
	}
}
