package sandboxtest_test

import "testing"

func TestCleanupFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	killedByName(t, group("C"), append(probesOf("SW"), "snapshot.destroyed-is-gone", "cleanup.form/form"))
}
