package contract

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// The oracle passes every probe, twice, and keeps nothing.
func TestOracleRetains(t *testing.T) {
	target, _ := oracle.New("retains")
	probes := slices.Concat(snapshots(), sweeps(), activeWrites())
	r := probe.Run(t.Context(), target, probes, probe.Options{Suites: []report.Suite{report.Contract}, Seed: "retains"})
	for _, row := range r.Rows() {
		if row.Status != report.Pass && row.Suite == report.Contract {
			t.Errorf("%s: %s %s %+v", row.ID, row.Status, row.Reason, row.Findings)
		}
		if row.Status == report.Fail {
			t.Errorf("%s: %+v", row.ID, row.Findings)
		}
		if len(row.Observations) > 0 {
			t.Logf("%s: %v", row.ID, row.Observations)
		}
	}
	if !r.Leaks.None() {
		t.Errorf("%+v", r.Leaks)
	}
}

// Without the tokens nothing runs that needs them: every probe that a target
// cannot serve is a skip by name.
func TestRetainedProbesAreSkippedByName(t *testing.T) {
	for _, p := range slices.Concat(snapshots(), sweeps(), activeWrites()) {
		status, reason := probe.Applies(&p, nil, []report.Token{report.Process, report.Cleanup}, nil)
		plain := !slices.ContainsFunc(p.Requires, func(k report.Token) bool { return k != report.Cleanup })
		if plain != (status == "") || status == report.Skip && reason == "" {
			t.Errorf("%s: %q %q", p.ID, status, reason)
		}
	}
}
