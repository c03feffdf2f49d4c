package probe

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	random "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// run is one run on its way.
type run struct {
	target       *Target
	o            Options
	clock, watch Clock

	envelope  sandbox.Capabilities
	spelled   []byte // canonical JSON of the envelope as it first came
	optional  sandbox.Optional
	derived   []report.Token
	declared  map[report.Token]bool
	workspace string
	session   string

	ledger ledger
	report report.Report

	mu         sync.Mutex // guards what follows
	source     *random.ChaCha8
	standing   map[string]*stand
	order      []string
	hung       string // what hung, once something did
	readClosed *bool  // nil until it was asked
}

// Run drives target through probes and reports: a row for each, run or not.
// Blocks: until every probe has ended, ctx is done, or the budget is used up;
// what is left then is blocked.
func Run(ctx context.Context, target Target, probes []Probe, o Options) report.Report {
	r := begin(&target, o)
	if o.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Budget, fmt.Errorf("the budget of %v is used up", o.Budget))
		defer cancel()
	}
	rows := map[string]*report.Row{}
	done, total := 0, 0
	for pass := range r.o.Passes {
		for i := range probes {
			if r.runs(&probes[i], pass) {
				total++
			}
		}
	}
	census := r.census(ctx)
	if r.enter(ctx) {
		for pass := range r.o.Passes {
			r.workspace, r.session = r.mint("ws_"), r.mint("ses_")
			for _, p := range r.shuffle(probes) {
				if !r.runs(&p, pass) {
					continue
				}
				if o.Started != nil {
					o.Started(Step{p.ID, pass + 1, r.o.Passes, done, total})
				}
				done++
				row := r.probe(ctx, &p)
				if before := rows[p.ID]; before != nil {
					row = merge(*before, row)
				}
				rows[p.ID] = &row
				if o.Progress != nil {
					o.Progress(row)
				}
			}
			r.unchanged(ctx)
		}
		r.sweep(ctx)
	}
	if ctx.Err() != nil {
		r.block(standCleanup, "the run ended before its last sweep: "+context.Cause(ctx).Error())
	}
	r.compare(ctx, census)
	reason := "it was not run: the target could not be entered"
	if ctx.Err() != nil {
		reason = "the run ended before: " + context.Cause(ctx).Error()
	}
	r.finish(probes, rows, reason)
	return r.report
}

func begin(target *Target, o Options) *run {
	if o.Passes == 0 {
		o.Passes = 2
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Linger == 0 {
		o.Linger = grace
	}
	if o.StreamBytes == 0 {
		o.StreamBytes = 1 << 30
	}
	if o.Seed == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		o.Seed = hex.EncodeToString(b[:])
	}
	r := &run{target: target, o: o, clock: target.Clock, watch: o.Watch, standing: map[string]*stand{}, declared: map[report.Token]bool{}}
	if r.clock == nil {
		r.clock = sandboxruntime.System
	}
	if r.watch == nil {
		r.watch = sandboxruntime.System
	}
	r.source = random.NewChaCha8(sha256.Sum256([]byte(o.Seed)))
	for _, p := range Standing() {
		row := p.Row()
		row.Status = report.Skip
		row.Reason = "no such answer came"
		r.standing[p.ID] = &stand{row: row, seen: map[string]bool{}}
		r.order = append(r.order, p.ID)
	}
	r.report = report.Report{
		Schema: report.Schema, Class: report.ClassDiagnostic, GradeEffect: "none",
		Subject: report.Subject{Target: report.Printable(target.Name), Remote: target.Remote},
		Run: report.RunInfo{
			Nonce: r.mint(""), Seed: o.Seed, StartedAt: sandbox.At(time.Now()), Suites: o.Suites, Filters: o.Filter, Passes: int64(o.Passes),
		},
	}
	r.ledger.run, r.ledger.hung = r, map[sandbox.Operation]bool{}
	return r
}

// enter asks the target what it is. Without an envelope nothing can be judged.
func (r *run) enter(ctx context.Context) bool {
	if r.target.Provider == nil {
		r.brokeAs(report.Error, standAnswers, "target", "provider", "a provider", "none")
		return false
	}
	envelope, err := r.capabilities(ctx)
	if err != nil && ctx.Err() != nil && !Hung(err) {
		return false // nobody waited for the answer
	}
	if err != nil {
		// An envelope that does not come is no sandbox that could be wrong.
		r.brokeAs(report.Error, standAnswers, "capabilities", "capabilities", "an envelope", err.Error())
		return false
	}
	r.envelope = envelope.WithDefaults()
	r.spelled, _ = canonical.Encode(envelope)
	r.optional, err = bounded(ctx, r.within(ctx, r.o.Patience), func(context.Context) (sandbox.Optional, error) {
		return r.target.Provider.Optional(), nil
	}, nil)
	r.judge("optional", err, ctx.Err() != nil)
	s := &r.report.Subject
	s.Provider, s.ProviderRevision = report.Printable(envelope.Provider), report.Printable(envelope.ProviderRevision)
	s.MaterializationRevision, s.Placement = report.Printable(envelope.MaterializationRevision), envelope.Placement
	s.EnvelopeDigest = canonical.Digest(r.spelled)
	r.admit()
	return err == nil && r.standing[standEnvelope].row.Status == report.Pass || r.o.Disabled[standEnvelope]
}

// Ask asks a provider what it is. A call that does not come back by the end of
// ctx is left behind.
// Errors: the provider's; what a panic said.
func Ask(ctx context.Context, p sandbox.Provider) (sandbox.Capabilities, sandbox.Optional, error) {
	var members sandbox.Optional
	envelope, err := bounded(ctx, wait{sandboxruntime.System, 24 * time.Hour, ctx.Done()}, func(ctx context.Context) (sandbox.Capabilities, error) {
		members = p.Optional()
		return p.Capabilities(ctx)
	}, nil)
	if err != nil {
		return sandbox.Capabilities{}, sandbox.Optional{}, err
	}
	return envelope, members, nil
}

func (r *run) capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	envelope, err := bounded(ctx, r.within(ctx, r.o.Patience), r.target.Provider.Capabilities, nil)
	r.judge(sandbox.OpCapabilities, err, ctx.Err() != nil)
	if err == nil {
		r.valid(standEnvelope, envelope.Validate())
	}
	return envelope, err
}

// unchanged asks for the envelope again.
func (r *run) unchanged(ctx context.Context) {
	if ctx.Err() != nil || r.stuck() != "" {
		return
	}
	envelope, err := r.capabilities(ctx)
	if err != nil {
		return
	}
	again, _ := canonical.Encode(envelope)
	r.held(standUnchanging)
	if string(again) != string(r.spelled) {
		r.broke(standUnchanging, "same-bytes", "envelope", canonical.Digest(r.spelled), canonical.Digest(again))
	}
}

// runs reports whether a probe has its turn in a pass, the first of which is 0.
func (r *run) runs(p *Probe, pass int) bool {
	return !r.o.Disabled[p.ID] && (r.o.Only == nil || r.o.Only(p.ID)) && (pass == 0 || !p.Once)
}

// probe runs one probe once.
func (r *run) probe(ctx context.Context, p *Probe) report.Row {
	row := p.Row()
	if status, reason := r.applies(ctx, p); status != "" {
		row.Status, row.Reason = status, reason
		return row
	}
	switch {
	case r.stuck() != "":
		row.Status, row.Reason = report.Blocked, "the target hung in "+r.stuck()
		return row
	case ctx.Err() != nil:
		row.Status, row.Reason = report.Blocked, "the run ended before: "+context.Cause(ctx).Error()
		return row
	}
	row.Status = report.Pass
	defer r.draw(p.ID)()
	t := &T{run: r, probe: p, ctx: ctx, row: row, checks: map[string]int{}}
	began := time.Now()
	first := r.lines() + 1
	t.drive()
	for _, f := range slices.Backward(t.cleanup) {
		f()
	}
	r.ledger.settle(ctx, p.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.row.Milliseconds = time.Since(began).Milliseconds()
	if last := r.lines(); last >= first {
		t.row.Transcript = []int64{first, last}
	}
	if ctx.Err() != nil && !slices.ContainsFunc(t.row.Findings, func(f report.Finding) bool { return f.Check == "engine" }) {
		// What failed may have failed for that.
		t.row.Status, t.row.Reason = report.Blocked, "the run ended meanwhile: "+context.Cause(ctx).Error()
	}
	return t.row
}

// drive runs the probe's function and survives it.
func (t *T) drive() {
	defer func() {
		switch p := recover(); p.(type) {
		case nil, stopped:
		default:
			t.mu.Lock()
			t.row.Status = report.Error
			t.find(report.Finding{Check: "engine", Status: report.Error, Expected: "a probe that ends", Got: fmt.Sprintf("panic: %v", p)})
			t.mu.Unlock()
		}
	}()
	t.probe.Run(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	// A probe that asserted nothing has shown nothing.
	if len(t.row.Checks) == 0 && t.row.Status == report.Pass {
		t.row.Status = report.Error
		t.find(report.Finding{Check: "engine", Status: report.Error, Expected: "at least one check", Got: "none"})
	}
}

// Row is the row of a probe that has not run.
func (p *Probe) Row() report.Row {
	level := p.Level
	if level == "" {
		level = report.Must
	}
	return report.Row{ID: p.ID, Suite: p.Suite, Title: p.Title, Requires: slices.Clone(p.Requires), Source: p.Source, Clause: p.Clause, Level: level}
}

// merge adds one more pass over a probe to the row.
func merge(a, b report.Row) report.Row {
	out := a
	if a.Status != b.Status && a.Status.Worse(b.Status) == b.Status {
		out.Status, out.Reason = b.Status, b.Reason
	}
	out.Milliseconds += b.Milliseconds
	out.Checks = slices.Clone(a.Checks)
	for _, c := range b.Checks {
		if i := slices.IndexFunc(out.Checks, func(o report.Check) bool { return o.ID == c.ID }); i >= 0 {
			out.Checks[i].Status = out.Checks[i].Status.Worse(c.Status)
			out.Checks[i].Times += c.Times
		} else {
			out.Checks = append(out.Checks, c)
		}
	}
	for _, c := range b.Controls {
		if !slices.Contains(out.Controls, c) {
			out.Controls = append(out.Controls, c)
		}
	}
	for _, f := range b.Findings {
		if !slices.ContainsFunc(out.Findings, func(o report.Finding) bool { return o.Check == f.Check && o.Field == f.Field }) {
			out.Findings = append(out.Findings, f)
		}
	}
	for _, o := range b.Observations {
		if !slices.Contains(out.Observations, o) && len(out.Observations) < 32 {
			out.Observations = append(out.Observations, o)
		}
	}
	if len(a.Transcript) == 0 {
		out.Transcript = b.Transcript
	}
	return out
}

// finish writes the rows in the order of the list, whatever order they ran in.
// reason is of what has no row.
func (r *run) finish(probes []Probe, rows map[string]*report.Row, reason string) {
	rep := &r.report
	for i := range probes {
		p := &probes[i]
		row := rows[p.ID]
		if row == nil {
			missing := p.Row()
			missing.Status, missing.Reason = report.Blocked, reason
			if r.o.Only != nil && !r.o.Only(p.ID) || r.o.Disabled[p.ID] {
				missing.Status, missing.Reason = report.Skip, "left out by the filter"
			}
			row = &missing
		}
		if p.Suite == report.Nine {
			rep.Cases = append(rep.Cases, *row)
		} else {
			rep.Probes = append(rep.Probes, *row)
		}
	}
	r.mu.Lock()
	for _, id := range r.order {
		row := r.standing[id].row
		if row.Status != report.Skip && row.Status != report.Blocked {
			row.Reason = ""
		}
		rep.Standing = append(rep.Standing, row)
	}
	r.mu.Unlock()
	rep.Leaks = r.ledger.leaks()
	if r.o.Transcript != nil {
		rep.TranscriptDigest = r.o.Transcript.Head()
	}
	now := time.Now()
	rep.Run.FinishedAt = sandbox.At(now)
	if began, err := rep.Run.StartedAt.Time(); err == nil {
		rep.Run.Milliseconds = now.Sub(began).Milliseconds()
	}
	rep.Settle()
}

func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	if clock, ok := r.clock.(interface{ Advance(time.Duration) }); ok {
		clock.Advance(d)
		return ctx.Err() == nil
	}
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *run) lines() int64 {
	if r.o.Transcript == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.o.Transcript.Lines()))
}
