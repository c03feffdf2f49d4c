package sandboxtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/process"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestProcessFaults: each is killed by the check that it names; and without a
// probe, or without a clause, one of those that name it lives.
func TestProcessFaults(t *testing.T) {
	needed := map[string]bool{"open-process.exit": false}
	for _, p := range process.Probes() {
		needed[p.ID] = false
	}
	for _, s := range sandboxtest.Saboteurs() {
		if s.Suite != report.Live || !strings.HasPrefix(s.ID, "P") {
			continue
		}
		r := suitecheck.Try(t.Context(), s, "")
		if r.Outcome != suitecheck.Killed {
			t.Errorf("%s %s: %s, not killed by %s; also %v; %s", s.ID, s.Fault, r.Outcome, s.Kills, r.Also, r.Reason)
		}
		check, _, _ := strings.Cut(s.Kills, "/")
		if check == "identity.evidence" {
			check = s.Kills
			needed[check] = false
		}
		without := suitecheck.Try(t.Context(), s, check)
		t.Logf("%s %s %v also %v; without %s: %s also %v", s.ID, r.Outcome, r.Took, r.Also, check, without.Outcome, without.Also)
		if slices.Contains([]suitecheck.Outcome{suitecheck.Survived, suitecheck.Inert}, without.Outcome) {
			needed[check] = true
		}
	}
	clauses := 0
	for check, is := range needed {
		if !is {
			t.Errorf("without %s no saboteur lives", check)
		}
		if strings.HasPrefix(check, "identity.evidence/") {
			clauses++
		}
	}
	if clauses != 16 {
		t.Errorf("%d clauses of evidence have a saboteur, want 16", clauses)
	}
}
