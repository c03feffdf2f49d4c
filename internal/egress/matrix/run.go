package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
)

// Options say what to run. The zero value is everything.
type Options struct {
	Topologies     []lab.Topology
	Configurations []Configuration
	Cases          []string         // ids; a letter alone is all of that fact's
	NoMutants      bool             // the matrix is then not shown to catch anything
	Providers      []Provider       // that ship, for the cases that need a real machine; with none these are not run
	Progress       func(report.Row) // called for each row as it ends, one at a time
}

// Run runs the matrix. Each configuration of each topology runs in a lab of its
// own, all side by side: they wait more than they work.
// Blocks: until all is judged, or ctx is done; what is left is then blocked.
// Errors: *launch.MissingError; *UnknownError; *lab.Error where no lab can be
// built. What goes wrong later is in the rows.
func Run(ctx context.Context, o Options) (*Report, error) {
	o = o.whole()
	cases, err := choose(Cases(), o.Cases)
	if err != nil {
		return nil, err
	}
	r := &Report{Schema: Schema, Filters: o.filters(), StartedAt: now(), Mutants: []Mutant{}, Taken: []Taken{}, Rules: map[string]string{}, Topologies: map[string]string{}}
	if r.GuardDigest, err = launch.GuardProgram.Digest(); err != nil {
		return nil, err
	}
	lab.Sweep()
	var mu sync.Mutex
	add := func(row report.Row) {
		mu.Lock()
		defer mu.Unlock()
		r.Rows = append(r.Rows, row)
		if o.Progress != nil {
			o.Progress(row)
		}
	}
	var wait sync.WaitGroup
	errs := make([]error, len(o.Topologies)*len(o.Configurations))
	for i, topology := range o.Topologies {
		for j, configuration := range o.Configurations {
			a := &arena{cases: cases, all: Cases(), topology: topology, configuration: configuration, options: o, add: add}
			// Machines of providers are joined to their guards so; once is enough.
			a.real = topology == SealedTopology && j == 0
			wait.Go(func() {
				errs[i*len(o.Configurations)+j] = a.run(ctx)
				mu.Lock()
				r.Mutants, r.Taken = append(r.Mutants, a.mutants...), append(r.Taken, a.taken...)
				mu.Unlock()
				for what, digest := range map[string]string{"topology": a.dump, "rules": a.rules} {
					if err := r.binds(&mu, what, string(topology), digest); err != nil {
						add(a.row(what, report.Error, err.Error()))
					}
				}
			})
		}
	}
	wait.Wait()
	r.settle()
	return r, errors.Join(errs...)
}

// filters is what was asked for where that is not everything. One topology is
// everything of one: a provider has no other.
func (o Options) filters() []string {
	out := append([]string{}, o.Cases...)
	for _, c := range Configurations() {
		if !slices.Contains(o.Configurations, c) {
			for _, asked := range o.Configurations {
				out = append(out, string(asked))
			}
			break
		}
	}
	return out
}

func (o Options) whole() Options {
	if len(o.Topologies) == 0 {
		o.Topologies = lab.Topologies()
	}
	if len(o.Configurations) == 0 {
		o.Configurations = Configurations()
	}
	return o
}

// Rows is how many rows a run has, if nothing goes wrong.
// Errors: *UnknownError.
func (o Options) Rows() (int, error) {
	o = o.whole()
	cases, err := choose(Cases(), o.Cases)
	n := len(cases) * len(o.Topologies) * len(o.Configurations)
	if slices.Contains(o.Topologies, lab.SocketFile) {
		for _, c := range inRun {
			if slices.ContainsFunc(cases, func(each Case) bool { return each.ID == c.id }) {
				n += len(o.Providers)
			}
		}
	}
	return n, err
}

// Real reports whether a case that was asked for needs a real machine.
func (o Options) Real() bool {
	cases, err := choose(Cases(), o.Cases)
	return err == nil && slices.ContainsFunc(cases, func(c Case) bool {
		return c.real || slices.ContainsFunc(inRun, func(each runCase) bool { return each.id == c.ID })
	})
}

// UnknownError is a case that there is not.
type UnknownError struct{ Case string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("case: expected one of E01 to E53, P01 to P90, R01 to R13, D01 to D38, A01 to A17, or a letter, got %q", e.Case)
}

func choose(cases []Case, filters []string) ([]Case, error) {
	if len(filters) == 0 {
		return cases, nil
	}
	var out []Case
	taken := map[string]bool{}
	for _, filter := range filters {
		found := false
		for _, c := range cases {
			if c.ID == filter || len(filter) == 1 && strings.HasPrefix(c.ID, filter) {
				found = true
				if !taken[c.ID] {
					out = append(out, c)
				}
				taken[c.ID] = true
			}
		}
		if !found {
			return nil, &UnknownError{filter}
		}
	}
	return out, nil
}

// arena is one configuration of one topology.
type arena struct {
	cases, all    []Case
	topology      lab.Topology
	configuration Configuration
	real          bool // it makes the real Runs
	options       Options
	add           func(report.Row)
	mutants       []Mutant
	taken         []Taken
	rules         string // digest of the gate
	dump          string // digest of the topology

	lab   *lab.Lab
	loose atomic.Bool
	plane *plane
	live  map[netip.AddrPort]error
}

func (a *arena) run(ctx context.Context) error {
	l, err := lab.Open(a.topology)
	if err != nil {
		return err
	}
	a.lab = l
	inodes, err := l.Inodes()
	if err != nil {
		l.Close()
		return err
	}
	if a.dump, err = topologyDigest(l); err != nil {
		l.Close()
		return err
	}
	if a.plane, err = openPlane(l); err != nil {
		l.Close()
		return fmt.Errorf("open the plane of a lab: %w", err)
	}
	a.live = a.reach(ctx)
	if a.real {
		a.realRuns(ctx)
	}
	a.configured(ctx)
	// What was live at first must be live at last, or it may not have been in
	// between.
	for at, err := range a.reach(ctx) {
		if ctx.Err() == nil && (err == nil) != (a.live[at] == nil) {
			a.add(a.row("live-"+at.String(), report.Error, "live at first: "+word(a.live[at])+"; at last: "+word(err)))
		}
	}
	if err := a.plane.close(); err != nil {
		a.add(a.row("plane", report.Error, err.Error()))
	}
	l.Close()
	if left := lab.Census(inodes); len(left) > 0 {
		a.add(a.row("census", report.Error, strings.Join(left, ", ")))
	}
	return nil
}

func word(err error) string {
	if err == nil {
		return "yes"
	}
	return err.Error()
}

// reach asks of every address that a case leans on whether somebody is there.
func (a *arena) reach(ctx context.Context) map[netip.AddrPort]error {
	out := map[netip.AddrPort]error{}
	for _, c := range a.cases {
		for _, at := range c.live {
			if _, asked := out[at]; !asked {
				out[at] = a.lab.Live(ctx, at)
			}
		}
	}
	return out
}

func (a *arena) bench(start starter) *bench {
	b := &bench{lab: a.lab, configuration: a.configuration, start: start, allow: list(a.all), live: a.live, loose: &a.loose, plane: a.plane, providers: a.options.Providers}
	b.script()
	return b
}

// configured runs all cases, between two controls, and then the mutants.
func (a *arena) configured(ctx context.Context) {
	b := a.bench(product)
	if a.configuration == KernelOnly {
		b.start = altered("no-classifier")
		b.base = "no-classifier"
	}
	if a.configuration != GuardOnly {
		gate, err := a.lab.LoadGate(special())
		if err != nil {
			a.add(a.row("gate", report.Error, err.Error()))
			return
		}
		a.rules = gate.Digest()
		defer gate.Unload()
	}
	a.each(ctx, b, a.cases, func(c Case, status report.Status, reason string, took time.Duration) {
		row := a.row(c.ID, status, reason)
		row.Title, row.Milliseconds = c.Title, took.Milliseconds()
		for _, at := range c.live {
			row.Controls = append(row.Controls, report.Control{ID: "live " + at.String(), Fired: a.live[at] == nil})
		}
		a.add(row)
	})
	if !a.options.NoMutants && ctx.Err() == nil {
		a.kill(ctx)
	}
}

// each judges cases at a bench: those of the shared guard between its two
// controls, then those with guards of their own.
func (a *arena) each(ctx context.Context, b *bench, cases []Case, judged func(Case, report.Status, string, time.Duration)) {
	var shared, alone []Case
	for _, c := range cases {
		switch reason := a.absent(c); {
		case c.skip != "":
			judged(c, report.Skip, c.skip, 0)
		case reason != "":
			judged(c, report.Blocked, reason, 0)
		case c.alone:
			alone = append(alone, c)
		default:
			shared = append(shared, c)
		}
	}
	if len(shared) > 0 {
		a.shared(ctx, b, shared, judged)
	}
	for _, c := range alone {
		t := &trial{bench: b, ctx: ctx}
		status, reason, took := t.judge(c)
		judged(c, status, reason, took)
	}
}

// absent says why a case is not run.
func (a *arena) absent(c Case) string {
	if c.real && len(a.options.Providers) == 0 {
		return "not run: it needs a real machine, and no provider was given"
	}
	return ""
}

func (a *arena) shared(ctx context.Context, b *bench, cases []Case, judged func(Case, report.Status, string, time.Duration)) {
	fail := func(err error) {
		for _, c := range cases {
			if ctx.Err() != nil {
				judged(c, report.Blocked, context.Cause(ctx).Error(), 0)
			} else {
				judged(c, report.Error, "the guard: "+err.Error(), 0)
			}
		}
	}
	c := b.settings()
	data, err := canonical.Encode(c)
	if err != nil {
		fail(err)
		return
	}
	s, err := startSubject(ctx, b.lab, b.start, data)
	if err != nil {
		fail(err)
		return
	}
	t := &trial{bench: b, ctx: ctx, guard: s}
	control := Case{run: func(t *trial) error { return t.passes("allowed.test:443", public) }}
	type verdict struct {
		c      Case
		status report.Status
		reason string
		took   time.Duration
	}
	var verdicts []verdict
	status, reason, _ := t.judge(control)
	if status == report.Pass {
		for _, c := range cases {
			s, r, took := t.judge(c)
			verdicts = append(verdicts, verdict{c, s, r, took})
		}
		status, reason, _ = t.judge(control)
	}
	if status != report.Pass {
		fail(errors.New("its control did not fire: " + reason))
		s.end()
		return
	}
	if err := s.end(); err != nil {
		fail(err)
		return
	}
	for _, v := range verdicts {
		judged(v.c, v.status, v.reason, v.took)
	}
}

// judge runs a case once.
func (t *trial) judge(c Case) (report.Status, string, time.Duration) {
	if t.ctx.Err() != nil {
		return report.Blocked, context.Cause(t.ctx).Error(), 0
	}
	for _, at := range c.live {
		if err := t.live[at]; err != nil {
			return report.Error, "its control did not fire: " + err.Error(), 0
		}
	}
	started := time.Now()
	err := c.run(t)
	took := time.Since(started)
	var skipped skipError
	switch {
	case err == nil:
		return report.Pass, "", took
	case errors.As(err, &skipped):
		return report.Skip, skipped.reason, took
	case t.ctx.Err() != nil:
		return report.Blocked, context.Cause(t.ctx).Error(), took
	case errors.As(err, new(blindError)), errors.As(err, new(*launch.StartError)):
		// A guard that did not begin was not judged; nor was a mutant of it caught.
		return report.Error, err.Error(), took
	}
	return report.Fail, strings.ReplaceAll(err.Error(), "\n", "; "), took
}

// skipError is a case that this kernel or host has nothing to attack with.
type skipError struct{ reason string }

func (e skipError) Error() string { return e.reason }

func (a *arena) row(id string, status report.Status, reason string) report.Row {
	return report.Row{
		ID: id + "/" + string(a.topology) + "/" + string(a.configuration), Suite: report.Egress, Status: status, Reason: reason, Level: report.Must,
		Source: "grading", Clause: "the five facts",
	}
}
