package contract

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// passes runs probes on the oracle behind some envelope, in two passes: every
// row must pass or be skipped for a reason, and nothing may be left.
func passes(t *testing.T, probes []probe.Probe, behind func(sandbox.Provider) sandbox.Provider) {
	t.Helper()
	target, inner := oracle.New(t.Name())
	target.Provider = behind(inner)
	rep := probe.Run(t.Context(), target, probes, probe.Options{Suites: []report.Suite{report.Contract}, StreamBytes: 4 << 20})
	if len(rep.Probes) != len(probes) {
		t.Errorf("%d rows of %d probes", len(rep.Probes), len(probes))
	}
	for _, row := range rep.Rows() {
		if row.Status != report.Pass && (row.Status != report.Skip || row.Reason == "") {
			t.Errorf("%s: %s %s %v", row.ID, row.Status, row.Reason, row.Findings)
		}
	}
	if !rep.Leaks.None() {
		t.Errorf("leaks: %+v", rep.Leaks)
	}
}

func TestTheOraclePassesTheContract(t *testing.T) {
	mine := slices.Concat(envelope(), identity(), states(), commands())
	for name, behind := range map[string]func(sandbox.Provider) sandbox.Provider{
		"whole":   func(p sandbox.Provider) sandbox.Provider { return p },
		"day one": sandboxtest.DayOne, "minimum": sandboxtest.Minimum, "docker": sandboxtest.DockerPosture,
		"one mount": func(p sandbox.Provider) sandbox.Provider {
			return sandboxtest.Reduce(p, func(c *sandbox.Capabilities) { c.MaxMounts = 1 })
		},
		"hosted and small": func(p sandbox.Provider) sandbox.Provider {
			return sandboxtest.Reduce(p, func(c *sandbox.Capabilities) {
				c.MaximumResources = sandbox.Resources{CPUMillis: 500, MemoryBytes: 64 << 20, DiskBytes: 8 << 20, MaxProcesses: 32, MaxDurationSeconds: 60}
				c.NetworkModes = []sandbox.NetworkMode{sandbox.NetworkUnrestricted}
				c.EgressCertification = sandbox.EgressUnsupported
			})
		},
	} {
		t.Run(name, func(t *testing.T) { passes(t, mine, behind) })
	}
}

// Every row passes on the whole oracle, none is skipped.
func TestTheOracleSkipsNothing(t *testing.T) {
	target, _ := oracle.New("whole")
	probes := slices.Concat(envelope(), identity(), states(), commands())
	rep := probe.Run(t.Context(), target, probes, probe.Options{Suites: []report.Suite{report.Contract}, Passes: 1, StreamBytes: 4 << 20})
	for _, row := range rep.Probes {
		if row.Status != report.Pass {
			t.Errorf("%s: %s %s %v", row.ID, row.Status, row.Reason, row.Findings)
		}
	}
}
