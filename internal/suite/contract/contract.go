// Package contract is the deeper suite of the members: every state, every
// bound at its edges, every error of the closed set, identity, snapshots and
// sweeping.
//
// Source: contract, the whole document.
package contract

import (
	"slices"

	"github.com/checkfu/checkfu/internal/probe"
)

// Probes returns the suite.
func Probes() []probe.Probe {
	return slices.Concat(envelope(), identity(), states(), commands(), writes(), reads(), listings(), snapshots(), sweeps(), activeWrites(), repeats())
}
