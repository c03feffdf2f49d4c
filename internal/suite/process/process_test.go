package process_test

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/internal/suite/process"
)

// TestOracle: the reference passes every probe, again and again, in any order,
// and leaves nothing.
func TestOracle(t *testing.T) {
	passes := 20
	if testing.Short() {
		passes = 2
	}
	target, _ := oracle.New(t.Name())
	green(t, target, passes)
}

// TestOracle_ThroughTheRunner: the Runner's own checks stand in no probe's way.
func TestOracle_ThroughTheRunner(t *testing.T) {
	target, p := oracle.New(t.Name())
	c, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: p}}}.Attach(t.Context(), c.Target())
	if err != nil {
		t.Fatal(err)
	}
	target.Provider, target.ThroughRunner = r.Provider(), true
	green(t, target, 2)
}

func green(t *testing.T, target probe.Target, passes int) {
	t.Helper()
	rep := probe.Run(t.Context(), target, process.Probes(), probe.Options{Suites: []report.Suite{report.Live}, Passes: passes, StreamBytes: 4 << 20})
	for _, row := range rep.Rows() {
		if row.Status != report.Pass && !(row.Suite == report.Standing && row.Status == report.Skip) {
			t.Errorf("%s: %s %s %+v", row.ID, row.Status, row.Reason, row.Findings)
		}
		if row.Suite == report.Live {
			t.Logf("%4d ms %s %v", row.Milliseconds, row.ID, row.Observations)
		}
	}
	if !rep.Leaks.None() {
		t.Errorf("leaks: %+v", rep.Leaks)
	}
}

// TestProbes: each has an id and a clause of its own and says what holds.
func TestProbes(t *testing.T) {
	ids, clauses := map[string]bool{}, map[string]bool{}
	for _, p := range process.Probes() {
		if ids[p.ID] || clauses[p.Clause] || p.Suite != report.Live || !strings.HasPrefix(p.ID, "process.") || !strings.HasPrefix(p.Clause, "CF-LP-") {
			t.Errorf("%+v", p)
		}
		if p.Title == "" || p.Source == "" || p.Run == nil {
			t.Errorf("%s is not described", p.ID)
		}
		ids[p.ID], clauses[p.Clause] = true, true
	}
}
