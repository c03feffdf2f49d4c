package sandboxtest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/process"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestProcessFaults: each is killed by the check that it names; and without a
// probe, or without a clause, one of those that name it lives.
func TestProcessFaults(t *testing.T) {
	partOfMatrix(t)
	var mu sync.Mutex
	needed := map[string]bool{"open-process.exit": false}
	for _, p := range process.Probes() {
		needed[p.ID] = false
	}
	clauses := map[string]bool{}
	t.Run("killed", func(t *testing.T) {
		for _, s := range sandboxtest.Saboteurs() {
			if s.Suite != report.Live || !strings.HasPrefix(s.ID, "P") {
				continue
			}
			check, _, _ := strings.Cut(s.Kills, "/")
			if check == "identity.evidence" {
				check = s.Kills
				needed[check], clauses[check] = false, true
			}
			t.Run(s.ID, func(t *testing.T) {
				t.Parallel()
				if r := suitecheck.Try(t.Context(), s, ""); r.Outcome != suitecheck.Killed {
					t.Errorf("%s: %s, not killed by %s; also %v; %s", s.Fault, r.Outcome, s.Kills, r.Also, r.Reason)
				}
				if r := suitecheck.Try(t.Context(), s, check); r.Outcome == suitecheck.Survived || r.Outcome == suitecheck.Inert {
					mu.Lock()
					defer mu.Unlock()
					needed[check] = true
				}
			})
		}
	})
	for check, is := range needed {
		if !is {
			t.Errorf("without %s no saboteur lives", check)
		}
	}
	if len(clauses) != 16 {
		t.Errorf("%d clauses of evidence have a saboteur, want 16", len(clauses))
	}
}
