// Package faults is the drills of what goes wrong between the Runner and a
// provider: rollbacks, lost replies, duplicates, interruptions, crashes.
//
// Source: contract.
package faults

import "github.com/checkfu/checkfu/internal/probe"

// Probes returns the suite.
func Probes() []probe.Probe { return nil }
