package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// runCase is a case that is judged during a real Run too.
type runCase struct {
	id      string
	planted bool // with a guard that was given the token
	judge   func(*trial, *realRun) error
}

// Taken is what the cases of who holds what found during a real Run: of the
// provider itself, through the transport, with a token made for that Run.
// Source: grading "The five facts, and the three that cannot be self-attested",
// authority_separation.
type Taken struct {
	Provider          string         `json:"provider"`
	Target            sandbox.Target `json:"target"`
	Run               RunRecord      `json:"run"`
	GuardConfigDigest string         `json:"guard_config_sha256"`
	ECH               string         `json:"ech"`
}

// inRun are the cases that are judged once more during a real Run. Its end is that
// of the guard, or of the relay, which comes last.
var inRun = []runCase{
	{"A06", false, func(t *trial, r *realRun) error { return t.modelsFromInside(r, true) }},
	{"A01", false, func(t *trial, r *realRun) error { return t.lacks(r.guard.pid, "the token of the Run", r.token) }},
	{"A02", false, func(_ *trial, r *realRun) error { return r.guard.opens() }},
	{"A08", false, func(_ *trial, r *realRun) error { return r.logsLack(r.token) }},
	{"A10", false, func(t *trial, r *realRun) error { return t.relayOfRun(r) }},
	{"A14", false, func(_ *trial, r *realRun) error { return r.guard.isWhatShips() }},
	{"A15", false, func(t *trial, r *realRun) error { return r.environments(t) }},
	{"A16", false, func(t *trial, r *realRun) error { return t.noLookingInto(r.guard.pid) }},
	{"A11", false, func(t *trial, r *realRun) error { return t.withoutGuard(r) }},
	{"A17", true, func(t *trial, r *realRun) error {
		n, err := t.holds(r.guard.pid, r.token)
		if err == nil && n == 0 {
			err = errors.New("a scan during a Run does not find a token that is there")
		}
		return err
	}},
	{"A12", true, func(t *trial, r *realRun) error { return t.withoutRelay(r) }},
}

// realRuns judges the cases of inRun, for each provider in two Runs: one as it
// ships, and one whose guard was given the token, which shows that the scan can
// fail.
func (a *arena) realRuns(ctx context.Context) {
	for _, p := range a.options.Providers {
		for _, planted := range []bool{false, true} {
			var ids []string
			for _, c := range inRun {
				if c.planted == planted && slices.ContainsFunc(a.cases, func(each Case) bool { return each.ID == c.id }) {
					ids = append(ids, c.id)
				}
			}
			if len(ids) > 0 {
				a.realRun(ctx, p, planted, ids)
			}
		}
	}
}

func (a *arena) realRun(ctx context.Context, p Provider, planted bool, ids []string) {
	say := func(id string, status report.Status, reason string, took time.Duration) {
		i := slices.IndexFunc(a.cases, func(c Case) bool { return c.ID == id })
		row := a.row(id, status, reason)
		row.ID, row.Title, row.Milliseconds = inRunRow(id, p.Name), a.cases[i].Title, took.Milliseconds()
		a.add(row)
	}
	all := func(status report.Status, reason string) {
		for _, id := range ids {
			say(id, status, reason, 0)
		}
	}
	if p.Lacks != "" {
		all(report.Skip, p.Name+": no real machine can be had here: "+p.Lacks)
		return
	}
	b := a.bench(product)
	t := &trial{bench: b, ctx: ctx}
	r, err := b.beginRun(ctx, p, planted)
	if err == nil && !planted {
		// What is scanned is a guard that has both ways in use, and keeps one.
		err = t.connectsFromInside(r, true)
	}
	if err != nil {
		if ctx.Err() != nil {
			all(report.Blocked, context.Cause(ctx).Error())
		} else {
			all(report.Error, err.Error())
		}
		if r != nil {
			r.end(ctx)
		}
		return
	}
	type verdict struct {
		status report.Status
		reason string
		took   time.Duration
	}
	said := map[string]verdict{}
	for _, c := range inRun {
		if slices.Contains(ids, c.id) {
			status, reason, took := t.judge(Case{run: func(t *trial) error { return c.judge(t, r) }})
			said[c.id] = verdict{status, reason, took}
		}
	}
	taken := Taken{Provider: p.Name, Target: p.Target, GuardConfigDigest: canonical.Digest(r.guard.config), ECH: r.guard.ech(), Run: r.lease}
	err = r.end(ctx)
	for _, id := range ids {
		v := said[id]
		// A Run that did not end as one should have been judged in the middle of
		// something else.
		if err != nil && v.status == report.Pass {
			v.status, v.reason = report.Error, "the end of the Run: "+err.Error()
		}
		say(id, v.status, v.reason, v.took)
	}
	if !planted && err == nil {
		a.taken = append(a.taken, taken)
	}
}

// inRunRow is the id of a row that was judged during a real Run.
func inRunRow(id, provider string) string { return id + "/run/" + provider }

// modelsFromInside asks the model API from inside and says whether the plane was
// reached as it should be, by what the plane's side saw.
func (t *trial) modelsFromInside(r *realRun, should bool) error {
	answer, asked := "", t.plane.asked.Load()
	s, err := t.watch(func() (err error) { answer, err = r.ask(tellModel); return err })
	if err != nil {
		return err
	}
	var want []netip.AddrPort
	if should {
		want = at(gatewayAddr)
	}
	upstream := t.plane.asked.Load() - asked
	if err := s.reached(want...); err != nil || (answer == "answered") != should || (upstream == 1) != should || upstream > 1 {
		return fmt.Errorf("a model call from inside: expected the plane to be reached: %v, got %q and %d requests upstream: %w", should, answer, upstream, err)
	}
	return nil
}

// connectsFromInside asks for the listed host from inside, likewise.
func (t *trial) connectsFromInside(r *realRun, should bool) error {
	mark := t.lab.Ledger.Mark()
	answer, err := r.ask(tellConnect, fmt.Sprintf("%s:%d", r.host, runPort))
	if err != nil {
		return err
	}
	if err := t.lab.Settle(t.ctx); err != nil {
		return blind(err)
	}
	accepts := t.lab.Ledger.Since(mark)
	reached := len(accepts) == 1 && accepts[0].Local == netip.AddrPortFrom(lab.PublicAddr, runPort)
	if reached != should || len(accepts) > 0 != should || (answer == "connected") != should {
		return fmt.Errorf("a listed host from inside: expected it to be reached: %v, got %v and %q", should, accepts, answer)
	}
	return nil
}

// withoutGuard kills the guard: the plane is reached and nothing else.
func (t *trial) withoutGuard(r *realRun) error {
	if err := t.kills(r.guard); err != nil {
		return err
	}
	return errors.Join(t.connectsFromInside(r, false), t.modelsFromInside(r, true))
}

// withoutRelay kills the relay: listed hosts are reached and no plane. Both were
// there before.
func (t *trial) withoutRelay(r *realRun) error {
	if err := t.modelsFromInside(r, true); err != nil {
		return blind(err)
	}
	if err := t.kills(r.relay); err != nil {
		return err
	}
	return errors.Join(t.modelsFromInside(r, false), t.connectsFromInside(r, true))
}

func (t *trial) kills(w *watched) error {
	if err := unix.Kill(w.pid, unix.SIGKILL); err != nil {
		return blind(err)
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return blind(errors.New("a killed process does not end"))
	}
}

// relayOfRun holds that the relay knows no listed host, and neither of the two the
// key of the plane; and that a scan finds the host in who has the list.
func (t *trial) relayOfRun(r *realRun) error {
	n, err := t.holds(r.guard.pid, r.host)
	if err == nil && n == 0 {
		err = blind(errors.New("the scan does not find a listed host in the guard"))
	}
	if err != nil {
		return err
	}
	key := t.plane.key
	return errors.Join(t.lacks(r.relay.pid, "a listed host", r.host), t.lacks(r.relay.pid, "the plane's key", key), t.lacks(r.guard.pid, "the plane's key", key))
}
