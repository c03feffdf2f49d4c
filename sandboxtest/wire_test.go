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
	under := map[string][]sandboxtest.Saboteur{}
	for _, p := range wire.Probes() {
		under[p.ID] = nil
	}
	for _, s := range sandboxtest.Saboteurs() {
		probe, _, _ := strings.Cut(s.Kills, "/")
		if _, ours := under[probe]; ours {
			under[probe] = append(under[probe], s)
		}
	}
	bothWays(t, under)
}

// bothWays wants each saboteur killed, and of those that stand under one check
// at least one to live where that check is switched off.
func bothWays(t *testing.T, under map[string][]sandboxtest.Saboteur) {
	t.Helper()
	var mu sync.Mutex
	needed := map[string]bool{}
	t.Run("killed", func(t *testing.T) {
		for check, all := range under {
			for _, s := range all {
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
		}
	})
	for check := range under {
		if !needed[check] {
			t.Errorf("without %s no saboteur lives", check)
		}
	}
}
