package sandboxtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/suite"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// group is the saboteurs whose ids are the letter and a number.
func group(letter string) []sandboxtest.Saboteur {
	return slices.DeleteFunc(sandboxtest.Saboteurs(), func(s sandboxtest.Saboteur) bool {
		rest, ok := strings.CutPrefix(s.ID, letter)
		return !ok || rest == "" || rest[0] < '0' || rest[0] > '9'
	})
}

// killedByName wants every saboteur killed by the check that it names, and
// each of checks needed: switched off, it lets a saboteur live.
func killedByName(t *testing.T, all []sandboxtest.Saboteur, checks []string) {
	t.Helper()
	if len(all) == 0 {
		t.Fatal("no saboteurs")
	}
	for _, s := range all {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			if r := suitecheck.Try(t.Context(), s, ""); r.Outcome != suitecheck.Killed {
				t.Errorf("%s (%s): %s instead of killed by %s; also %v; %s", s.ID, s.Fault, r.Outcome, s.Kills, r.Also, r.Reason)
			}
		})
	}
	for _, check := range checks {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			row, _, part := strings.Cut(check, "/")
			var tried []string
			for _, s := range all {
				if names, _, _ := strings.Cut(s.Kills, "/"); s.Kills != check && (names != row || part) {
					continue
				}
				r := suitecheck.Try(t.Context(), s, check)
				if r.Outcome == suitecheck.Survived || r.Outcome == suitecheck.Inert {
					return
				}
				tried = append(tried, s.ID+" "+string(r.Outcome)+" "+strings.Join(r.Also, ","))
			}
			t.Errorf("without %s no saboteur lives: %v", check, tried)
		})
	}
}

// probesOf are the probes whose clause has the two letters.
func probesOf(letters string) []string {
	var ids []string
	for _, p := range suite.All() {
		if strings.HasPrefix(p.Clause, "CF-"+letters+"-") {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// partOfMatrix leaves a test of one group to whoever works on that group: the
// whole matrix runs in tests/conformance.
func partOfMatrix(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("part of the matrix in tests/conformance")
	}
}

func TestEnvelopeFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	all := slices.DeleteFunc(group("E"), func(s sandboxtest.Saboteur) bool { return s.ID == "E15" }) // a fault of custody
	killedByName(t, all, append(probesOf("CE"), "envelope.valid", "envelope.unchanging", "envelope.ceiling", "envelope.members"))
}
