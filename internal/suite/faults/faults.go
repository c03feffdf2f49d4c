// Package faults is the drills of what goes wrong between the Runner and a
// provider: rollbacks, lost replies, duplicates, interruptions, crashes.
//
// What a drill leaves behind is looked for in three ways: the target no longer
// knows the id; a census of its host, where there is one, does not name it; a
// cleanup past its expiry does not return it.
//
// Source: contract "Allocation handoff"; "Cleanup and pinning".
package faults

import (
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
)

// What the drills need.
var (
	always  = []report.Token{report.Process}
	durable = []report.Token{report.SnapshotToken, report.Durable}
	clone   = []report.Token{report.SnapshotToken, report.Durable, report.SnapshotClone}
)

const (
	handoff   = `contract "Allocation handoff"`
	lifecycle = `contract "Lifecycle and states"`
	sweeping  = `contract "Cleanup and pinning"`
)

// drill is a probe of this suite.
func drill(id, clause, source, title string, requires []report.Token, run func(t *probe.T)) probe.Probe {
	return probe.Probe{ID: id, Suite: report.Faults, Clause: "CF-FA-" + clause, Source: source, Title: title, Requires: requires, Level: report.Must, Run: run}
}

// once marks a drill that waits for a deadline.
func once(p probe.Probe) probe.Probe {
	p.Once = true
	return p
}

// Probes returns the suite.
func Probes() []probe.Probe {
	return slices.Concat(rollbacks(), redeliveries(), interruptions(), crashes())
}
