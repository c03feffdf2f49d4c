package sandboxtest_test

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestFileFaults wants every saboteur of files killed by the check that it
// names, and alive when that check is off.
func TestFileFaults(t *testing.T) {
	partOfMatrix(t)
	tried := 0
	for _, s := range sandboxtest.Saboteurs() {
		if s.ID[0] != 'F' && s.ID != "X16" {
			continue
		}
		tried++
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			if r := suitecheck.Try(t.Context(), s, ""); r.Outcome != suitecheck.Killed {
				t.Errorf("%s: %s instead of killed by %s; also %v; %s", s.Fault, r.Outcome, s.Kills, r.Also, r.Reason)
			}
			row, _, _ := strings.Cut(s.Kills, "/")
			if r := suitecheck.Try(t.Context(), s, row); r.Outcome != suitecheck.Survived && r.Outcome != suitecheck.Inert {
				t.Errorf("%s: without %s it is %s; also %v; %s", s.Fault, row, r.Outcome, r.Also, r.Reason)
			}
		})
	}
	if tried < 50 {
		t.Errorf("%d saboteurs of files", tried)
	}
}
