// Package wire is the suite of what a provider must do because it is reached
// over HTTP: strict bodies, operations that are delivered more than once,
// rollback by an id, fencing, and a live process whose reader comes and goes.
//
// Most probes speak by hand, because a client would never send what they send.
// The others put a fault between the client and the target, on our side.
//
// Trusts: the codec of package wire, which the target's author has as schemas
// and vectors. Does not trust: one byte of the target.
// Source: contract "Machine-readable author kit"; docs/wire.md.
package wire

import (
	"slices"

	"github.com/checkfu/checkfu/internal/probe"
)

// Probes returns the suite.
func Probes() []probe.Probe {
	return slices.Concat(requestProbes(), operationProbes(), rollbackProbes(), byteProbes(), streamProbes(), inputProbes(), fenceProbes())
}
