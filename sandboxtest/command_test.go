package sandboxtest_test

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/sandboxtest"
)

func TestCommandFaultsAreKilled(t *testing.T) {
	partOfMatrix(t)
	all := slices.DeleteFunc(group("X"), func(s sandboxtest.Saboteur) bool { return s.ID == "X16" }) // a fault of listings
	killedByName(t, all, append(probesOf("CX"), "execute.settlement"))
}
