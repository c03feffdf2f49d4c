package files_test

import (
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/files"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestOracle runs the suite against the right provider: as it is, without live
// processes, so that the swapper is a command beside the reads, and with the
// whole volume.
func TestOracle(t *testing.T) {
	for _, c := range []struct {
		name    string
		members func(o *sandbox.Optional)
		options probe.Options
	}{
		{"two passes", nil, probe.Options{StreamBytes: 4 << 20}},
		{"without live processes", func(o *sandbox.Optional) { o.OpenProcess = nil }, probe.Options{StreamBytes: 4 << 20, Passes: 1}},
		{"whole volume", nil, probe.Options{Passes: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.options.StreamBytes == 0 {
				t.Skip("moves some hundred MiB")
			}
			target, p := oracle.New(c.name)
			target.Provider = sandboxtest.Override{Provider: p, Members: c.members}
			c.options.Suites = []report.Suite{report.Files}
			rep := probe.Run(t.Context(), target, files.Probes(), c.options)
			for _, row := range rep.Probes {
				if row.Status != report.Pass {
					t.Errorf("%s is %s: %s %+v", row.ID, row.Status, row.Reason, row.Findings)
				}
				t.Logf("%s: %d ms %q", row.ID, row.Milliseconds, row.Observations)
			}
			for _, row := range rep.Standing {
				if row.Status != report.Pass && row.Status != report.Skip {
					t.Errorf("%s is %s: %+v", row.ID, row.Status, row.Findings)
				}
			}
			if !rep.Leaks.None() {
				t.Errorf("leaks: %+v", rep.Leaks)
			}
		})
	}
}
