package sandboxtest_test

import "testing"

func TestActiveWriteFaultsAreKilled(t *testing.T) { killedByName(t, group("W"), probesOf("AW")) }
