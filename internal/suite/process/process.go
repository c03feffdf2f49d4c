// Package process is the deeper suite of openProcess: what a live process owes
// the one who holds it, stream by stream, signal by signal.
//
// Each probe holds one sentence of the contract and stays clear of the others:
// it ends its programs by their own count of bytes, not by a half-close, and
// reads what it needs, not up to the end of file, unless that is its sentence.
// So a report names what is wrong and not what follows from it.
//
// Trusts: the engine. Does not trust: one byte, error or silence of the target.
// Concurrency: the probes share nothing.
// Source: contract "openProcess"; grading "What openProcess costs across a
// wire".
package process

import (
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
)

const source = `contract "openProcess"`

// Probes returns the suite.
func Probes() []probe.Probe {
	return slices.Concat(streamProbes(), volumeProbes(), exitProbes(), signalProbes(), openProbes(), endProbes())
}

// holds is a probe that needs the member and no more.
func holds(id, clause, title string, run func(t *probe.T)) probe.Probe {
	return probe.Probe{
		ID: "process." + id, Suite: report.Live, Title: title, Source: source, Clause: "CF-LP-" + clause,
		Requires: []report.Token{report.OpenProcess}, Run: run,
	}
}
