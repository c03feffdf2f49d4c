package sandboxtest_test

import "testing"

func TestStateFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	killedByName(t, group("S"), append(probesOf("CS"), "release.disposition"))
}
