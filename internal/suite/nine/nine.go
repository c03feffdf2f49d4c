// Package nine is the nine cases that define a conforming provider.
//
// Source: contract.
package nine

import "github.com/checkfu/checkfu/internal/probe"

// Probes returns the suite.
func Probes() []probe.Probe { return nil }
