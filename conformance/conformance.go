// Package conformance tests a sandbox provider against the contract: the nine
// cases that define a conforming provider, deeper suites, and what is checked
// of every answer.
//
//	report := conformance.Run(ctx, conformance.Target{
//		Name: "acme", Provider: provider, Image: "acme.example/base@sha256:…",
//	}, conformance.Options{})
//
// What it says of itself: a run that somebody makes of their own provider is
// diagnostic. It finds faults; it grants nothing.
//
// Trusts: the clock and the lab that the target brings. Does not trust: the
// provider. By id only what a run allocated is destroyed by it; but it sweeps,
// and cleanup is not scoped: a provider that others use loses their orphans.
// Errors: a run has none of its own; see the report's verdict and exit code.
// Concurrency: several runs may go on at once, each against a target of its
// own.
// Source: contract "Conformance".
package conformance

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite"
)

// Target is what is tested. Provider and Image are needed; the rest widens
// what can be judged.
type Target = probe.Target

// Wire is the way by hand to a target that is reached over a wire.
type Wire = probe.Wire

// Network is the lab of the egress cases.
type Network = probe.Network

// Step is one case or probe in one pass.
type Step = probe.Step

// MaxSeedBytes bounds a seed.
const MaxSeedBytes = 64

// Options are how it is tested. The zero value runs the nine cases and the
// contract suite in two passes.
type Options struct {
	Suites      []report.Suite // nil is nine and contract
	Only        []string       // ids or patterns of path.Match; nil is all
	Seed        string         // gives the same ids, nonces and order again; "" draws one
	Passes      int            // 0 is 2: each in another order and under another Session
	Patience    time.Duration  // the longest wait for one answer; 0 is a minute
	Budget      time.Duration  // of the whole run; 0 is none. What is left is blocked
	StreamBytes int64          // how much the process suite moves; 0 is 1 GiB
	Transcript  *report.Transcript
	Started     func(Step)       // before each case of each pass
	Progress    func(report.Row) // after it, with what all passes so far amount to
}

// DefaultSuites are the suites of a run that names none.
func DefaultSuites() []report.Suite { return []report.Suite{report.Nine, report.Contract} }

// OptionError says which option is wrong.
type OptionError struct{ Option, Expected, Got string }

// Error is "option: expected …, got …".
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %q", e.Option, e.Expected, e.Got)
}

// Check finds what is wrong with the options before anything is called.
// Errors: *OptionError.
func (o Options) Check() error {
	for _, s := range o.Suites {
		if !slices.Contains(report.Suites(), s) {
			return &OptionError{"suite", "one of " + join(report.Suites()), string(s)}
		}
	}
	for _, pattern := range o.Only {
		if !slices.ContainsFunc(suite.Of(o.suites()...), func(p probe.Probe) bool { return matches(pattern, p.ID) }) {
			return &OptionError{"run", "the id of a case or probe of the suites " + join(o.suites()), pattern}
		}
	}
	if !seed(o.Seed) {
		return &OptionError{"seed", fmt.Sprintf("1 to %d letters, digits, - and _", MaxSeedBytes), o.Seed}
	}
	if o.Passes < 0 || o.Passes > 1000 {
		return &OptionError{"repeat", "1 to 1000", fmt.Sprint(o.Passes)}
	}
	return nil
}

// seed reports whether s can be typed again as it was printed. None is one that
// is drawn.
func seed(s string) bool {
	return len(s) <= MaxSeedBytes && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}

func (o Options) suites() []report.Suite {
	if len(o.Suites) == 0 {
		return DefaultSuites()
	}
	return o.Suites
}

func matches(pattern, id string) bool {
	ok, err := path.Match(pattern, id)
	return ok || err != nil && pattern == id
}

func (o Options) wants(id string) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(pattern string) bool { return matches(pattern, id) })
}

// Run tests target. See [Options.Check] for what must hold of o; a pattern
// that names nothing runs nothing.
// Blocks: until all is tested, ctx is done or the budget is used up, and what
// was allocated has been torn down.
func Run(ctx context.Context, target Target, o Options) report.Report {
	probes := suite.Of(o.suites()...)
	run := probe.Options{
		Suites: o.suites(), Filter: o.Only, Seed: o.Seed, Passes: o.Passes, Patience: o.Patience, Budget: o.Budget,
		StreamBytes: o.StreamBytes, Transcript: o.Transcript, Started: o.Started, Progress: o.Progress, Only: o.wants,
	}
	if !slices.Contains(o.suites(), report.Nine) {
		// The nine have their rows in every report, run or not.
		run.Only = func(id string) bool { return o.wants(id) && !isCase(probes, id) }
	}
	rep := probe.Run(ctx, target, probes, run)
	rep.Suite = report.SuiteInfo{Revision: suite.Revision, CasesDigest: suite.Digest(), Mutation: Matrix()}
	rep.Limits = append(rep.Limits, limits(&target)...)
	return rep
}

func isCase(probes []probe.Probe, id string) bool {
	return slices.ContainsFunc(probes, func(p probe.Probe) bool { return p.ID == id && p.Suite == report.Nine })
}

// limits say what no run of this kind can show.
func limits(t *Target) []string {
	all := []string{
		"the enforcement statement is the provider's own; a run shows behaviour, not who enforces it",
		"evidence of a live process is compared with the envelope, which the same party wrote: self-consistency, not isolation",
		"egress beyond one listed and one unlisted destination is not tested here",
	}
	if t.Network == nil {
		all = append(all, "no network lab: the egress cases could not be judged")
	}
	if t.Restart == nil {
		all = append(all, "the provider could not be restarted from here: crash drills were left out")
	}
	return all
}

// Plan predicts what a run would do, from the envelope alone. It asks for the
// envelope and allocates nothing. It cannot see the skip for a readFile that
// fails closed, nor those for what only a machine of the target shows, which
// have their own reasons.
// Errors: what the provider answered; *sandbox.Invalid for an envelope that
// breaks its own rules.
func Plan(ctx context.Context, target Target, o Options) ([]report.Row, error) {
	patience := o.Patience
	if patience == 0 {
		patience = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	envelope, members, err := probe.Ask(ctx, target.Provider)
	if err != nil {
		return nil, err
	}
	if err := envelope.Validate(); err != nil {
		return nil, err
	}
	derived := probe.Derive(envelope, members)
	var rows []report.Row
	for _, p := range suite.Of(o.suites()...) {
		if !o.wants(p.ID) {
			continue
		}
		row := p.Row()
		row.Status, row.Reason = probe.Applies(&p, target.Wire, derived, target.Withhold)
		rows = append(rows, row)
	}
	return rows, nil
}

// Explain describes a case, a probe or a standing check.
func Explain(id string) (report.Row, bool) {
	for _, p := range slices.Concat(suite.All(), probe.Standing()) {
		if p.ID == id {
			return p.Row(), true
		}
	}
	return report.Row{}, false
}

// List describes everything that there is to run, and the standing checks.
func List() []report.Row {
	var rows []report.Row
	for _, p := range slices.Concat(suite.All(), probe.Standing()) {
		rows = append(rows, p.Row())
	}
	return rows
}

func join[S ~string](list []S) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}
