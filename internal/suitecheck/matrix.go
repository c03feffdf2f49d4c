package suitecheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite"
	"github.com/checkfu/checkfu/sandboxtest"
)

// Matrix is the whole test of the suite.
type Matrix struct {
	Oracle    []string // rows that the right provider does not pass
	Saboteurs []Result
	Reverse   []Switched
	Benign    []Result // Survived is right
	Baselines []Result // anything but exit 0 is right
	Pending   []sandboxtest.Pending
	Took      time.Duration
}

// Switched is one check switched off.
type Switched struct {
	Check string // a row, or "row/check"
	// Needed is a saboteur that lives without it, "" if none does: then the
	// check is dead.
	Needed string
	Tried  []string
}

// Options are how the matrix is run.
type Options struct {
	Workers  int // 0 is 4: much of what they do is to wait
	Progress func(done, total int)
}

// Check runs everything.
// Blocks: for as long as it takes, or until ctx is done; what is left then is
// Broken or not needed.
func Check(ctx context.Context, o Options) Matrix {
	began := time.Now()
	m := Matrix{Pending: sandboxtest.PendingSaboteurs()}
	all := sandboxtest.Saboteurs()
	m.Saboteurs = make([]Result, len(all))
	checks := switches()
	m.Reverse = make([]Switched, len(checks))
	benign, baselines := sandboxtest.Benign(), sandboxtest.Baselines()
	m.Benign, m.Baselines = make([]Result, len(benign)), make([]Result, len(baselines))

	var jobs []func()
	jobs = append(jobs, func() { m.Oracle = rightProvider(ctx) })
	for i, s := range all {
		jobs = append(jobs, func() { m.Saboteurs[i] = kill(ctx, s) })
	}
	for i, check := range checks {
		jobs = append(jobs, func() { m.Reverse[i] = without(ctx, check, all) })
	}
	for i, s := range benign {
		jobs = append(jobs, func() { m.Benign[i] = whole(ctx, s) })
	}
	for i, s := range baselines {
		jobs = append(jobs, func() { m.Baselines[i] = whole(ctx, s) })
	}
	work(jobs, o)
	m.Took = time.Since(began)
	return m
}

// kill tries a saboteur. One that lies in front of a real server gets a second
// chance to be caught: in what order a process, its streams and its callers get
// on there is the machine's, and a fault may find nothing to show itself in. So
// does one that never came to commit its fault: it may need a race that a busy
// host does not run.
func kill(ctx context.Context, s sandboxtest.Saboteur) Result {
	r := Try(ctx, s, "")
	if r.Outcome == Inert || r.Outcome != Killed && s.Serve != nil {
		r = Try(ctx, s, "")
	}
	return r
}

func work(jobs []func(), o Options) {
	workers := o.Workers
	if workers == 0 {
		workers = 4
	}
	queue := make(chan func())
	var mu sync.Mutex
	var all sync.WaitGroup
	done := 0
	for range workers {
		all.Go(func() {
			for job := range queue {
				job()
				mu.Lock()
				done++
				if o.Progress != nil {
					o.Progress(done, len(jobs))
				}
				mu.Unlock()
			}
		})
	}
	for _, job := range jobs {
		queue <- job
	}
	close(queue)
	all.Wait()
}

// switches names every check that can be switched off: each probe, each
// standing row that is one check, and each of the comparisons of the others.
func switches() []string {
	var all []string
	for _, p := range suite.All() {
		all = append(all, p.ID)
	}
	parts := map[string][]string{
		"identity.provision": append(crosscheck.InstanceChecks(), "instance_id"),
		"identity.activate":  append(crosscheck.InstanceChecks(), "instance_id"),
		"identity.resume":    crosscheck.InstanceChecks(),
		"identity.snapshot":  crosscheck.SnapshotChecks(),
		"identity.release":   crosscheck.SnapshotChecks(),
		"identity.clone":     append(crosscheck.SnapshotChecks(), crosscheck.CloneChecks()...),
	}
	for n := range crosscheck.EvidenceClauses {
		parts["identity.evidence"] = append(parts["identity.evidence"], fmt.Sprintf("clause-%d", n+1))
	}
	for _, p := range probe.Standing() {
		if p.ID == "runner.accepts" {
			continue // the Runner's own checks, which no run without a Runner has
		}
		if list := parts[p.ID]; list != nil {
			for _, check := range list {
				all = append(all, p.ID+"/"+check)
			}
		} else {
			all = append(all, p.ID)
		}
	}
	return all
}

// without looks for a saboteur that lives when one check is switched off: one
// that the check is there to kill.
func without(ctx context.Context, check string, all []sandboxtest.Saboteur) Switched {
	out := Switched{Check: check}
	row, _ := rowOf(check)
	for _, s := range all {
		names, _ := rowOf(s.Kills)
		if s.Kills != check && (names != row || strings.Contains(check, "/")) {
			continue
		}
		out.Tried = append(out.Tried, s.ID)
		// Without the probe a fault may never be committed: then the probe is the
		// only one that brings it out, and is needed all the more.
		if lives(ctx, s, check) {
			out.Needed = s.ID
			break
		}
	}
	return out
}

// lives tries a saboteur with one check switched off. As in kill, one in front of
// a real server has a second chance: it may be caught by what a busy host does.
func lives(ctx context.Context, s sandboxtest.Saboteur, check string) bool {
	lived := func() bool { o := Try(ctx, s, check).Outcome; return o == Survived || o == Inert }
	return lived() || s.Serve != nil && lived()
}

// rightProvider names what the oracle does not pass.
func rightProvider(ctx context.Context) []string {
	var bad []string
	// Bare, and over a wire for the suite of that.
	bare := slices.DeleteFunc(report.Suites(), func(s report.Suite) bool { return s == report.Wire })
	for _, suites := range [][]report.Suite{bare, {report.Wire}} {
		rep, _ := Run(ctx, sandboxtest.Saboteur{ID: "oracle"}, "", suites...)
		if rep.Verdict == report.Failed {
			bad = append(bad, rep.Reason)
		}
		for _, row := range rep.Rows() {
			if row.Status != report.Pass && row.ID != "runner.accepts" && (row.Suite != report.Standing || len(suites) > 1) {
				bad = append(bad, row.ID+" "+string(row.Status))
			}
		}
		if !rep.Leaks.None() {
			bad = append(bad, "leaks")
		}
	}
	return bad
}

// whole runs one provider against everything.
func whole(ctx context.Context, s sandboxtest.Saboteur) Result {
	began := time.Now()
	rep, _ := Run(ctx, s, "", report.Suites()...)
	out := Result{ID: s.ID, Verdict: rep.Verdict, Exit: rep.ExitCode, Reason: rep.Reason, Took: time.Since(began), Outcome: Survived}
	for _, row := range rep.Rows() {
		if row.Status != report.Pass && row.Status != report.Skip {
			out.Also = append(out.Also, row.ID)
		}
	}
	if rep.ExitCode != report.ExitConformant {
		out.Outcome = Elsewhere
	}
	return out
}

// Faults says what is wrong with the suite, a line each; none is right.
func (m *Matrix) Faults() []string {
	var all []string
	for _, row := range m.Oracle {
		all = append(all, "oracle: "+row)
	}
	for _, r := range m.Saboteurs {
		if r.Outcome != Killed {
			all = append(all, fmt.Sprintf("saboteur %s: %s instead of killed by %s (also: %s; %s)", r.ID, r.Outcome, r.Kills, strings.Join(r.Also, " "), r.Reason))
		}
	}
	for _, s := range m.Reverse {
		if s.Needed == "" {
			all = append(all, fmt.Sprintf("check %s: no saboteur lives without it (tried: %s)", s.Check, strings.Join(s.Tried, " ")))
		}
	}
	for _, r := range m.Benign {
		if r.Outcome != Survived {
			all = append(all, fmt.Sprintf("benign %s: %s (%s)", r.ID, strings.Join(r.Also, " "), r.Reason))
		}
	}
	for _, r := range m.Baselines {
		if r.Exit == report.ExitConformant {
			all = append(all, "baseline "+r.ID+": exit 0")
		}
	}
	return all
}

// Golden is the matrix as a list: what the golden file holds. It has no times
// and depends on no order of running.
func (m *Matrix) Golden() string {
	var b strings.Builder
	faults := map[string]string{}
	for _, s := range slices.Concat(sandboxtest.Saboteurs(), sandboxtest.Benign(), sandboxtest.Baselines()) {
		faults[s.ID] = s.Fault
	}
	for _, r := range m.Saboteurs {
		fmt.Fprintf(&b, "saboteur\t%s\t%s\t%s\t%s\n", r.ID, faults[r.ID], r.Kills, r.Outcome)
	}
	for _, s := range m.Reverse {
		fmt.Fprintf(&b, "check\t%s\tlets live\t%s\n", s.Check, s.Needed)
	}
	for _, r := range m.Benign {
		fmt.Fprintf(&b, "benign\t%s\t%s\t%s\n", r.ID, faults[r.ID], r.Verdict)
	}
	for _, r := range m.Baselines {
		fmt.Fprintf(&b, "baseline\t%s\t%s\texit %d\n", r.ID, faults[r.ID], r.Exit)
	}
	for _, p := range m.Pending {
		fmt.Fprintf(&b, "pending\t%s\t%s\t%s\n", p.ID, p.Fault, p.Reason)
	}
	return b.String()
}

// Agrees reports whether a text that Golden once gave says the same as this matrix. It
// may name other saboteurs that live without a check: which is the first to live is not
// the suite's alone, since one in front of a real server may be caught by what a busy
// host does. A check that nobody lives without agrees with none that somebody does.
func (m *Matrix) Agrees(published string) bool {
	return nameless(published) == nameless(m.Golden())
}

func nameless(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if i := strings.LastIndexByte(line, '\t'); strings.HasPrefix(line, "check\t") && strings.TrimSpace(line[i:]) != "" {
			line = line[:i] + "\tsomebody\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
