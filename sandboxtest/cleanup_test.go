package sandboxtest_test

import "testing"

func TestCleanupFaultsAreKilled(t *testing.T) {
	killedByName(t, group("C"), append(probesOf("SW"), "snapshot.destroyed-is-gone", "cleanup.form/form"))
}
