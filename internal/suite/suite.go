// Package suite is the one list of probes, by suite.
//
// Source: contract "Conformance".
package suite

import (
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/contract"
	"github.com/checkfu/checkfu/internal/suite/faults"
	"github.com/checkfu/checkfu/internal/suite/files"
	"github.com/checkfu/checkfu/internal/suite/nine"
	"github.com/checkfu/checkfu/internal/suite/process"
	"github.com/checkfu/checkfu/internal/suite/wire"
)

// Revision names this suite. It changes with what a case demands.
const Revision = "2026.12"

// All returns every probe, the nine cases first.
func All() []probe.Probe {
	return slices.Concat(nine.Probes(), contract.Probes(), faults.Probes(), process.Probes(), files.Probes(), wire.Probes())
}

// Of returns the nine cases, which always have their rows, and the probes of
// the suites that are asked for.
func Of(suites ...report.Suite) []probe.Probe {
	return slices.DeleteFunc(All(), func(p probe.Probe) bool {
		return p.Suite != report.Nine && !slices.Contains(suites, p.Suite)
	})
}

// described is what the digest covers of a probe.
type described struct {
	ID       string         `json:"id"`
	Suite    report.Suite   `json:"suite"`
	Title    string         `json:"title"`
	Requires []report.Token `json:"requires"`
	Source   string         `json:"source"`
	Clause   string         `json:"clause"`
	Level    report.Level   `json:"level"`
}

// Digest is the identity of the list: of what each probe is called, needs and
// proves. That its function does so is what the mutation matrix shows.
func Digest() string {
	var list []described
	for _, p := range slices.Concat(All(), probe.Standing()) {
		list = append(list, described{p.ID, p.Suite, p.Title, p.Requires, p.Source, p.Clause, p.Level})
	}
	encoded, err := canonical.Encode(list)
	if err != nil {
		return "" // plain text always encodes
	}
	return canonical.Digest(encoded)
}
