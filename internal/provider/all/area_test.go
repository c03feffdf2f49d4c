package all

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAreasLieApartAndAreThereOnceTheyAreMade(t *testing.T) {
	state := t.TempDir()
	seen := map[string]bool{}
	for _, driver := range []string{"runsc", "runc"} {
		for _, a := range []Area{AreaSessions, AreaServed, AreaTested} {
			at := a.dir(state, driver)
			if seen[at] || filepath.Dir(at) != state {
				t.Errorf("%q of %s lies in %s", a, driver, at)
			}
			seen[at] = true
		}
	}
	if got := Areas(state, NativeRunc); !slices.Equal(got, []Area{AreaSessions}) {
		t.Errorf("of a new state directory: %q", got)
	}
	if err := os.Mkdir(AreaTested.dir(state, "runc"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), AreaServed.dir(state, "runc")); err != nil { // nothing that Open makes
		t.Fatal(err)
	}
	if got := Areas(state, NativeRunc); !slices.Equal(got, []Area{AreaSessions, AreaTested}) {
		t.Errorf("%q", got)
	}
	if got := Areas(state, NativeRunsc); !slices.Equal(got, []Area{AreaSessions}) {
		t.Errorf("of the other driver: %q", got)
	}
}
