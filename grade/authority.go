package grade

import (
	"slices"

	"github.com/checkfu/checkfu/sandbox"
)

// authorityOrder is the order of the authorities, weakest first. The two that
// count as enforcement are above the two that do not.
var authorityOrder = []sandbox.Authority{sandbox.NotEnforced, sandbox.GuestObserved, sandbox.ProviderAttested, sandbox.RunnerEnforced}

// Weaker returns the weaker of two authorities. A word that is none is weaker
// than all.
// Source: concept "The enforcement statement".
func Weaker(a, b sandbox.Authority) sandbox.Authority {
	if slices.Index(authorityOrder, a) <= slices.Index(authorityOrder, b) {
		return a
	}
	return b
}

// Cap returns e with no axis above most.
// Source: concept "The enforcement statement"; grading "The enforcement ceiling
// gap".
func Cap(e sandbox.Enforcement, most sandbox.Authority) sandbox.Enforcement {
	for _, axis := range sandbox.Axes() {
		e = e.With(axis, Weaker(e.On(axis), most))
	}
	return e
}
