package suitecheck

import (
	"strings"
	"testing"
)

// What a published matrix says of saboteurs and of checks that nobody needs counts, and
// not who it names for a check that somebody needs.
func TestAgrees(t *testing.T) {
	m := Matrix{
		Saboteurs: []Result{{ID: "Y64", Kills: "wire.errors/status", Outcome: Killed}},
		Reverse:   []Switched{{Check: "wire.errors", Needed: "Y64"}, {Check: "dead"}},
	}
	text := m.Golden()
	for _, test := range []struct {
		old, new string
		agrees   bool
	}{
		{"", "", true},
		{"lets live\tY64", "lets live\tY65", true},
		{"lets live\tY64", "lets live\t", false},
		{"dead\tlets live\t", "dead\tlets live\tY1", false},
		{"killed", "survived", false},
		{"saboteur\tY64", "saboteur\tY65", false},
	} {
		published := strings.Replace(text, test.old, test.new, 1)
		if got := m.Agrees(published); got != test.agrees {
			t.Errorf("%q for %q: %v, want %v", test.new, test.old, got, test.agrees)
		}
	}
}
