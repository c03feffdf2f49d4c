// Package process is the deeper suite of openProcess.
//
// Source: contract.
package process

import "github.com/checkfu/checkfu/internal/probe"

// Probes returns the suite.
func Probes() []probe.Probe { return nil }
