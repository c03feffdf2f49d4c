package nine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite/nine"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// contract is the table of the document: ids, order, tokens.
var contract = []struct {
	id       string
	requires []report.Token
}{
	{"stage-seal-execute", []report.Token{report.Filesystem, report.Process}},
	{"stage-git-project", []report.Token{report.Filesystem, report.Process}},
	{"checkpoint-clone", []report.Token{report.SnapshotToken}},
	{"allowlist-egress", []report.Token{report.NetworkAllowlist}},
	{"durable-round-trip", []report.Token{report.SnapshotToken}},
	{"none-egress", []report.Token{report.NetworkNone}},
	{"zdr-release", []report.Token{report.ZDR}},
	{"orphan-reclaim", []report.Token{report.Cleanup}},
	{"pause-pinning", []report.Token{report.SnapshotToken, report.Cleanup}},
}

func TestTheNineAreTheContracts(t *testing.T) {
	got := nine.Probes()
	if len(got) != len(contract) {
		t.Fatalf("%d cases", len(got))
	}
	for i, want := range contract {
		if p := got[i]; p.ID != want.id || !slices.Equal(p.Requires, want.requires) || p.Suite != report.Nine || p.Level != report.Must {
			t.Errorf("case %d: %s needs %v, want %s %v", i, p.ID, p.Requires, want.id, want.requires)
		}
	}
}

func run(target probe.Target, seed string) report.Report {
	return probe.Run(context.Background(), target, nine.Probes(), probe.Options{Seed: seed, Suites: []report.Suite{report.Nine}})
}

// green wants every case to pass and nothing to be left.
func green(t *testing.T, rep report.Report) {
	t.Helper()
	if rep.ExitCode != report.ExitConformant || report.Count(rep.Cases, report.Pass) != len(contract) || !rep.Leaks.None() {
		t.Errorf("%s, exit %d: %s", rep.Verdict, rep.ExitCode, rep.Reason)
	}
	for _, row := range rep.Rows() {
		if row.Status != report.Pass && row.Status != report.Skip {
			t.Errorf("%s: %s %s %+v", row.ID, row.Status, row.Reason, row.Findings)
		}
	}
}

func TestOraclePassesNineOfNine(t *testing.T) {
	target, p := oracle.New("nine")
	rep := run(target, "")
	green(t, rep)
	if left := p.Census(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	t.Logf("nine cases in two passes: %d ms", rep.Run.Milliseconds)
	if rep.Run.Milliseconds > 2000 {
		t.Errorf("the nine cases took %d ms", rep.Run.Milliseconds)
	}
}

func TestOraclePassesThroughTheRunner(t *testing.T) {
	target, p := oracle.New("runner")
	c, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: p}}, Clock: target.Clock}.Attach(t.Context(), c.Target())
	if err != nil {
		t.Fatal(err)
	}
	target.Provider, target.ThroughRunner = r.Provider(), true
	green(t, run(target, ""))
}

func BenchmarkNine(b *testing.B) {
	for b.Loop() {
		target, _ := oracle.New("bench")
		if rep := run(target, "bench"); rep.ExitCode != report.ExitConformant {
			b.Fatal(rep.Reason)
		}
	}
}
