package sandboxtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite"
	"github.com/checkfu/checkfu/internal/suite/nine"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// nineFaults are the saboteurs of the network and of the cheats.
func nineFaults() []sandboxtest.Saboteur {
	return slices.DeleteFunc(sandboxtest.Saboteurs(), func(s sandboxtest.Saboteur) bool {
		return s.ID[0] != 'G' && s.ID[0] != 'V'
	})
}

func TestFaultsOfTheNineAreKilled(t *testing.T) {
	for _, s := range nineFaults() {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			if r := suitecheck.Try(t.Context(), s, ""); r.Outcome != suitecheck.Killed {
				t.Errorf("%s: %s instead of killed by %s; also %v; %s", s.Fault, r.Outcome, s.Kills, r.Also, r.Reason)
			}
		})
	}
}

// TestEachCaseIsNeeded switches one off at a time: a saboteur then lives.
func TestEachCaseIsNeeded(t *testing.T) {
	checks := []string{"errors.closed", "errors.no-panic"}
	for _, p := range nine.Probes() {
		checks = append(checks, p.ID)
	}
	for _, p := range suite.All() {
		if strings.HasPrefix(p.ID, "repeat.") {
			checks = append(checks, p.ID)
		}
	}
	for _, check := range checks {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			var tried []string
			for _, s := range nineFaults() {
				if row, _, _ := strings.Cut(s.Kills, "/"); row != check {
					continue
				}
				r := suitecheck.Try(t.Context(), s, check)
				if r.Outcome == suitecheck.Survived {
					return
				}
				tried = append(tried, s.ID+" "+string(r.Outcome)+" "+strings.Join(r.Also, ","))
			}
			t.Errorf("without it no saboteur lives: %s", strings.Join(tried, "; "))
		})
	}
}

func TestBenignTwinsStayGreen(t *testing.T) {
	for _, s := range sandboxtest.Benign() {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			rep, _ := suitecheck.Run(t.Context(), s, "", report.Suites()...)
			if rep.ExitCode == report.ExitConformant {
				return
			}
			t.Errorf("%s: exit %d, %s", s.Fault, rep.ExitCode, rep.Reason)
			for _, row := range rep.Rows() {
				if row.Status != report.Pass && row.Status != report.Skip {
					t.Logf("%s %s %s: %+v", row.ID, row.Status, row.Reason, row.Findings)
				}
			}
		})
	}
}
