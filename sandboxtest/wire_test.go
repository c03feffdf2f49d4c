package sandboxtest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/checkfu/checkfu/internal/suite/wire"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestWireFaults: each is killed by the check that it names; and without a
// probe one of those that name it lives.
func TestWireFaults(t *testing.T) {
	partOfMatrix(t)
	var mu sync.Mutex
	needed := map[string]bool{}
	for _, p := range wire.Probes() {
		needed[p.ID] = false
	}
	t.Run("killed", func(t *testing.T) {
		for _, s := range sandboxtest.Saboteurs() {
			probe, _, _ := strings.Cut(s.Kills, "/")
			if _, ours := needed[probe]; !ours {
				continue
			}
			t.Run(s.ID, func(t *testing.T) {
				t.Parallel()
				if r := suitecheck.Try(t.Context(), s, ""); r.Outcome != suitecheck.Killed {
					t.Errorf("%s: %s, not killed by %s; also %v; %s", s.Fault, r.Outcome, s.Kills, r.Also, r.Reason)
				}
				if r := suitecheck.Try(t.Context(), s, probe); r.Outcome == suitecheck.Survived || r.Outcome == suitecheck.Inert {
					mu.Lock()
					defer mu.Unlock()
					needed[probe] = true
				}
			})
		}
	})
	for check, is := range needed {
		if !is {
			t.Errorf("without %s no saboteur lives", check)
		}
	}
}
