package report

import (
	"strings"
	"testing"
)

func TestSettle(t *testing.T) {
	failing := func(r *Report) {
		r.Cases[1] = failed(r.Cases[1], Fail, Finding{Field: "state", Expected: "active", Got: "gone"})
	}
	expected := func(r *Report) { failing(r); r.Cases[1].Expected = true }
	broken := func(r *Report) { r.Probes[0] = unrun(r.Probes[0], Error, "the control did not fire") }
	blocked := func(r *Report) { r.Cases[2] = unrun(r.Cases[2], Blocked, "first that") }
	withheld := func(r *Report) { r.Cases[2] = unrun(r.Cases[2], Withheld, "hidden") }
	skipped := func(r *Report) { r.Cases[2] = unrun(r.Cases[2], Skip, "not claimed") }
	leaking := func(r *Report) { r.Leaks.SecondSweep = []string{"i-1"} }
	stale := func(r *Report) { r.Stale = []Stale{{ID: "x", Line: 1, Reason: "passes now"}} }
	filtered := func(r *Report) { r.Run.Filters = []string{"x"} }
	nothing := func(r *Report) {
		for _, rows := range [][]Row{r.Cases, r.Probes} {
			for i := range rows {
				rows[i] = unrun(rows[i], Skip, "x")
			}
		}
	}
	for _, c := range []struct {
		name    string
		changes []func(*Report)
		verdict Verdict
		code    int64
		reason  string
	}{
		{"all passed", nil, Conformant, 0, "12 passed"},
		{"a skip", []func(*Report){skipped}, Conformant, 0, "11 passed, 1 skipped"},
		{"a failure", []func(*Report){failing}, Nonconformant, 1, "stage-git-project: state: expected active, got gone"},
		{"an expected failure", []func(*Report){expected}, Nonconformant, 0, "1 failed, all of them listed"},
		{"a withheld token", []func(*Report){withheld}, Partial, 3, "hidden"},
		{"a blocked case", []func(*Report){blocked}, Partial, 3, "first that"},
		{"a filter", []func(*Report){filtered}, Partial, 3, "filter"},
		{"without the nine", []func(*Report){func(r *Report) { r.Run.Suites = []Suite{Contract} }}, Partial, 3, "nine"},
		{"nothing applied", []func(*Report){nothing}, Partial, 3, "nothing applied"},
		{"a leak", []func(*Report){leaking}, Nonconformant, 5, "i-1"},
		{"unknown ids alone", []func(*Report){func(r *Report) { r.Leaks.Unknown = []string{"i-9"} }}, Conformant, 0, "passed"},
		{"an error", []func(*Report){broken}, Failed, 4, "identity.provision could not be judged: the control did not fire"},
		{"a stale ratchet", []func(*Report){stale}, Conformant, 1, "stale: x: passes now (1 in all)"},
		// Precedence: 4 before 5 before 1 before 3 before 0.
		{"error and leak", []func(*Report){broken, leaking, failing, withheld}, Failed, 4, "control"},
		{"leak and failure", []func(*Report){leaking, failing, withheld}, Nonconformant, 5, "leak"},
		{"failure and withheld", []func(*Report){failing, withheld}, Nonconformant, 1, "failed"},
		{"failure and stale", []func(*Report){failing, stale}, Nonconformant, 1, "failed"},
		{"stale and withheld", []func(*Report){stale, withheld}, Partial, 1, "stale"},
		{"leak and stale", []func(*Report){leaking, stale}, Nonconformant, 5, "leak"},
		// An excuse for one row is no badge for the rest.
		{"expected and withheld", []func(*Report){expected, withheld}, Nonconformant, 3, "hidden"},
		{"expected and filter", []func(*Report){expected, filtered}, Nonconformant, 3, "filter"},
		{"expected, nothing passed", []func(*Report){nothing, expected}, Nonconformant, 0, "1 failed, all"},
	} {
		r := sample()
		for _, change := range c.changes {
			change(&r)
		}
		r.Settle()
		if r.Verdict != c.verdict || r.ExitCode != c.code || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%s: %s, exit %d, %q", c.name, r.Verdict, r.ExitCode, r.Reason)
		}
	}
}

func TestWorse(t *testing.T) {
	order := Statuses()
	for i, a := range order {
		for j, b := range order {
			if got := a.Worse(b); got != order[max(i, j)] {
				t.Errorf("%s and %s: %s", a, b, got)
			}
		}
	}
}
