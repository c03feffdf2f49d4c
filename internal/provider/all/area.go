package all

import (
	"os"
	"path/filepath"
	"strings"
)

// Area is a part of a state directory that holds machines and snapshots of its own.
// The contract's cleanup knows no owner: whoever calls it takes every snapshot that is
// old and not pinned, and knows nobody's pins but its own. So who calls it, a stranger
// at the other end of a wire or the suite, has another area than a person's sessions.
// The image store, the cgroups and the drivers' own directories are common to all
// areas: what lies there has the name of one instance.
// Source: contract "Cleanup and pinning".
type Area string

// The areas.
const (
	AreaSessions Area = "" // runs and sessions
	AreaServed   Area = "served"
	AreaTested   Area = "tested"
)

// Areas returns the areas that a provider of Hosts has in a state directory: that of
// the sessions always, another from when it was first opened. It makes nothing.
func Areas(dir, name string) []Area {
	found := []Area{AreaSessions}
	for _, a := range []Area{AreaServed, AreaTested} {
		if info, err := os.Lstat(a.dir(dir, strings.TrimPrefix(name, Native+":"))); err == nil && info.IsDir() {
			found = append(found, a)
		}
	}
	return found
}

// dir is where the machines and snapshots of a driver lie.
func (a Area) dir(state, driver string) string {
	name := "native-" + driver
	if a != AreaSessions {
		name += "-" + string(a)
	}
	return filepath.Join(state, name)
}
