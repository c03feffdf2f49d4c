package sandboxtest_test

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/process"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestProcessFaults: each is killed by the check that it names; and without a
// probe, or without a clause, one of those that name it lives.
func TestProcessFaults(t *testing.T) {
	partOfMatrix(t)
	under := map[string][]sandboxtest.Saboteur{"open-process.exit": nil}
	for _, p := range process.Probes() {
		under[p.ID] = nil
	}
	clauses := 0
	for _, s := range sandboxtest.Saboteurs() {
		if s.Suite != report.Live || !strings.HasPrefix(s.ID, "P") {
			continue
		}
		check, _, _ := strings.Cut(s.Kills, "/")
		if check == "identity.evidence" {
			check = s.Kills
			if len(under[check]) == 0 {
				clauses++
			}
		}
		under[check] = append(under[check], s)
	}
	bothWays(t, under)
	if clauses != 16 {
		t.Errorf("%d clauses of evidence have a saboteur, want 16", clauses)
	}
}
