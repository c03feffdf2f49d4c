package sandboxtest_test

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/internal/crosscheck"
)

func TestSnapshotFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	checks := probesOf("SN")
	for _, row := range []string{"identity.snapshot", "identity.clone", "identity.release"} {
		for _, check := range append(crosscheck.SnapshotChecks(), "form") {
			checks = append(checks, row+"/"+check)
		}
	}
	for _, check := range crosscheck.CloneChecks() {
		checks = append(checks, "identity.clone/"+check)
	}
	// What C11 is wrong in is in the group of cleanup, and a time that is none is
	// not about now either: snapshot.time sees it too.
	checks = slices.DeleteFunc(checks, func(id string) bool {
		return id == "snapshot.destroyed-is-gone" || id == "identity.snapshot/form"
	})
	killedByName(t, group("N"), checks)
}
