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
	partOfMatrix(t)
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
	partOfMatrix(t)
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

// seenBy names a saboteur of another group for the halves of a case that none
// of this one names.
var seenBy = map[string]string{
	"stage-seal-execute/output-bounded": "X7",
	"stage-seal-execute/read-contained": "F4",
	"stage-git-project/runs":            "V22",
	"checkpoint-clone/clone-content":    "V10b",
	"checkpoint-clone/clone-survives":   "N14",
	"durable-round-trip/files":          "V30",
	"durable-round-trip/home-modes":     "V27",
	"durable-round-trip/home-links":     "V27",
	"none-egress/unlisted-denied":       "G1",
	"zdr-release/gone":                  "S6",
	"orphan-reclaim/expired-gone":       "C12",
	"orphan-reclaim/owned-kept":         "C2",
	"pause-pinning/pin-kept":            "C4",
}

// TestEachHalfBites wants a saboteur for every named check of the nine cases,
// save those that only say that a call was answered or a machine works.
func TestEachHalfBites(t *testing.T) {
	steps := []string{"provision", "activate", "execute", "snapshot", "clone", "release", "resume", "destroy", "destroy-snapshot", "cleanup",
		"written", "writable", "works", "write-output", "environment"}
	byID := map[string]sandboxtest.Saboteur{}
	names := map[string]string{}
	for _, s := range sandboxtest.Saboteurs() {
		byID[s.ID], names[s.Kills] = s, s.ID
	}
	whole, _ := suitecheck.Run(t.Context(), sandboxtest.Saboteur{ID: "halves"}, "", report.Nine)
	for _, row := range whole.Cases {
		for _, check := range row.Checks {
			half := row.ID + "/" + check.ID
			if slices.Contains(steps, check.ID) || check.ID == "stage" && row.ID != "stage-seal-execute" {
				continue
			}
			s, ok := byID[names[half]]
			if !ok {
				s, ok = byID[seenBy[half]]
			}
			if !ok {
				t.Errorf("%s: no saboteur is there for it", half)
				continue
			}
			rep, _ := suitecheck.Run(t.Context(), s, "", report.Nine)
			if !slices.ContainsFunc(rep.Cases, func(r report.Row) bool {
				return r.ID == row.ID && slices.ContainsFunc(r.Checks, func(c report.Check) bool { return c.ID == check.ID && c.Status != report.Pass })
			}) {
				t.Errorf("%s does not see %s (%s)", half, s.ID, s.Fault)
			}
		}
	}
}
