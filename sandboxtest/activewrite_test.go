package sandboxtest_test

import "testing"

func TestActiveWriteFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	killedByName(t, group("W"), probesOf("AW"))
}
