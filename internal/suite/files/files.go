// Package files is the deeper suite of reading, writing and listing: containment
// under a live swapper, special files, odd names, the edges of the bounds.
//
// Source: contract.
package files

import "github.com/checkfu/checkfu/internal/probe"

// Probes returns the suite.
func Probes() []probe.Probe { return nil }
