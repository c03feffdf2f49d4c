// Package suitecheck tests the suite: it runs every saboteur and wants it
// killed by the check that it names, and it switches every check off and wants
// a saboteur to live.
//
// Trusts: the memory oracle to be right, which it checks first.
// Concurrency: the runs are independent of each other.
package suitecheck

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// Outcome is what became of one saboteur. Only Killed counts.
type Outcome string

// The outcomes.
const (
	Killed    Outcome = "killed"    // by the check that it names
	Elsewhere Outcome = "elsewhere" // by other checks only
	Survived  Outcome = "survived"  // by none
	Inert     Outcome = "inert"     // it never did anything wrong
	Broken    Outcome = "broken"    // the run could not be judged, for another reason
)

// Result is one run of one saboteur.
type Result struct {
	ID      string
	Kills   string
	Outcome Outcome
	Also    []string // rows that failed beside the named one
	Verdict report.Verdict
	Exit    int64
	Reason  string
	Took    time.Duration
}

// bound is the longest that one run may take by the machine's clock.
const bound = 4 * time.Minute

// streamBytes is how much the process suite moves here.
const streamBytes = 4 << 20

// rowOf splits what a saboteur names into the row and the check, "" for any.
func rowOf(kills string) (row, check string) {
	row, check, _ = strings.Cut(kills, "/")
	return row, check
}

// suiteOf is the suite that a saboteur must be run against.
func suiteOf(s *sandboxtest.Saboteur) report.Suite {
	if s.Suite != "" {
		return s.Suite
	}
	row, _ := rowOf(s.Kills)
	for _, p := range suite.All() {
		if p.ID == row {
			return p.Suite
		}
	}
	return report.Nine
}

// Run runs one saboteur against suites and returns the whole report and how
// often the fault was committed.
func Run(ctx context.Context, s sandboxtest.Saboteur, disabled string, suites ...report.Suite) (report.Report, int64) {
	return run(ctx, s, disabled, nil, suites...)
}

// run is Run of the probes that only wants; nil wants all.
func run(ctx context.Context, s sandboxtest.Saboteur, disabled string, only func(string) bool, suites ...report.Suite) (report.Report, int64) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	target, inner := oracle.New(s.ID)
	watch := &watch{}
	var fired atomic.Int64
	over := make(chan struct{})
	defer close(over)
	env := &sandboxtest.Env{
		Fire: func() { fired.Add(1) },
		Hang: func() { watch.pass(); <-over },
		Now:  target.Clock.Now,
	}
	target.Remote, target.Withhold = s.Remote, s.Withhold
	if s.Wrap != nil {
		target.Provider = s.Wrap(inner, env)
	}
	target.Restart = func(context.Context) (sandbox.Provider, error) {
		if s.Restarted != nil {
			return s.Restarted(inner, env), nil
		}
		return target.Provider, nil
	}
	if s.Serve != nil || slices.Contains(suites, report.Wire) && len(suites) == 1 {
		served, err := overWire(ctx, &target, s.Serve, env)
		if err != nil {
			return report.Report{Verdict: report.Failed, ExitCode: report.ExitError, Reason: err.Error()}, fired.Load()
		}
		defer served.close()
	}
	o := probe.Options{Suites: suites, Seed: s.ID, Passes: 1, StreamBytes: streamBytes, Watch: watch, Linger: time.Millisecond, Only: only}
	if disabled != "" {
		o.Disabled = map[string]bool{disabled: true}
	}
	list := suite.Of(suites...)
	if !slices.Contains(suites, report.Nine) {
		list = slices.DeleteFunc(list, func(p probe.Probe) bool { return p.Suite == report.Nine })
	}
	return probe.Run(ctx, target, list, o), fired.Load()
}

// Try runs one saboteur against the suite of the check that it names.
func Try(ctx context.Context, s sandboxtest.Saboteur, disabled string) Result {
	began := time.Now()
	row, check := rowOf(s.Kills)
	of := suiteOf(&s)
	var only func(string) bool
	if of == report.Wire && disabled == "" && strings.HasPrefix(row, "wire.") {
		// What else would kill it is not asked here, and each of these runs costs a
		// server, a journal on disk and every byte twice.
		only = func(id string) bool { return id == row }
	}
	rep, fired := run(ctx, s, disabled, only, of)
	out := Result{ID: s.ID, Kills: s.Kills, Verdict: rep.Verdict, Exit: rep.ExitCode, Reason: rep.Reason, Took: time.Since(began)}
	killed := false
	broken := ""
	for _, r := range rep.Rows() {
		bad := r.Status == report.Fail || r.Status == report.Overclaim || r.ID == row && (r.Status == report.Withheld || r.Status == report.Error)
		switch {
		case r.ID == row && bad && (check == "" || slices.ContainsFunc(r.Checks, func(c report.Check) bool { return c.ID == check && c.Status != report.Pass })):
			killed = true
		case bad:
			out.Also = append(out.Also, r.ID)
		case r.Status == report.Error && broken == "":
			broken = r.ID
		}
	}
	switch {
	case killed && fired > 0:
		out.Outcome = Killed
	case fired == 0:
		out.Outcome = Inert
	case len(out.Also) > 0 || !rep.Leaks.None():
		out.Outcome = Elsewhere
	case broken != "":
		out.Outcome = Broken
	default:
		out.Outcome = Survived
	}
	return out
}

// watch is the engine's clock for its bounds. It stands still; a saboteur that
// hangs lets all the time pass that anybody waits for.
type watch struct {
	mu     sync.Mutex
	timers []chan time.Time
}

func (w *watch) Now() time.Time { return time.Unix(0, 0) }

func (w *watch) NewTimer(time.Duration) sandboxruntime.Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan time.Time, 1)
	w.timers = append(w.timers, c)
	return watchTimer{w, c}
}

// pass fires every timer that is running.
func (w *watch) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.timers {
		c <- time.Unix(0, 0)
	}
	w.timers = nil
}

type watchTimer struct {
	w *watch
	c chan time.Time
}

func (t watchTimer) C() <-chan time.Time { return t.c }

func (t watchTimer) Stop() bool {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	i := slices.Index(t.w.timers, t.c)
	if i >= 0 {
		t.w.timers = slices.Delete(t.w.timers, i, i+1)
	}
	return i >= 0
}
