package sandboxtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandboxtest"
)

// Every fault is killed by the drill that it names, and without its drill one
// lives, so no drill is for nothing.
func TestHandoffFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	drills := probesOf("FA")
	faults := slices.DeleteFunc(sandboxtest.Saboteurs(), func(s sandboxtest.Saboteur) bool {
		row, _, _ := strings.Cut(s.Kills, "/")
		return !slices.Contains(drills, row) && s.Suite != report.Faults
	})
	killedByName(t, faults, append(drills, "handoff.rollback", "calls.answered"))
}
