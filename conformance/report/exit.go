package report

import (
	"cmp"
	"fmt"
	"slices"
)

// The exit codes of a run. Of several that apply the first of 2, 4, 5, 1, 3 is
// taken.
const (
	ExitConformant = 0 // every case passed or was skipped for a token that the envelope does not give
	ExitFail       = 1 // a failure, an overclaim, or a stale ratchet
	ExitUsage      = 2 // the command line or the configuration is wrong; nothing ran
	ExitIncomplete = 3 // withheld, blocked, filtered, or nothing applied: never a badge
	ExitError      = 4 // a control did not fire, the target is not there or hung, the engine failed
	ExitLeak       = 5 // something of this run was left behind
	ExitEvidence   = 6 // evidence that was read is invalid
)

// Rows returns every row: cases, probes, standing checks.
func (r *Report) Rows() []Row {
	return slices.Concat(r.Cases, r.Probes, r.Standing)
}

// Count returns how many rows have a status.
func Count(rows []Row, s Status) int {
	n := 0
	for _, row := range rows {
		if row.Status == s {
			n++
		}
	}
	return n
}

// Settle sets verdict, reason and exit code from the rows, the leaks, the
// filters and the ratchet. A row whose failure a ratchet expects does not count
// against the exit code; the verdict stays what it is. A stale ratchet counts
// against the exit code and says nothing of the subject.
func (r *Report) Settle() {
	rows := r.Rows()
	worst := func(s Status) (Row, bool) {
		for _, row := range rows {
			if row.Status == s && !row.Expected {
				return row, true
			}
		}
		return Row{}, false
	}
	set := func(v Verdict, code int64, format string, args ...any) {
		r.Verdict, r.ExitCode, r.Reason = v, code, fmt.Sprintf(format, args...)
	}
	if row, found := worst(Error); found {
		set(Failed, ExitError, "%s could not be judged: %s", row.ID, why(row))
		return
	}
	if !r.Leaks.None() {
		set(Nonconformant, ExitLeak, "%s", r.Leaks.first())
		return
	}
	passed, failed := Count(rows, Pass), Count(rows, Fail)+Count(rows, Overclaim)
	for _, s := range []Status{Overclaim, Fail} {
		if row, found := worst(s); found {
			set(Nonconformant, ExitFail, "%d of %d failed, the first is %s: %s", failed, failed+passed, row.ID, why(row))
			return
		}
	}
	switch missing := r.missing(worst); {
	case missing != "":
		set(Partial, ExitIncomplete, "%s", missing)
	case failed > 0:
		set(Nonconformant, ExitConformant, "%d failed, all of them listed as expected", failed)
	default:
		set(Conformant, ExitConformant, "%d passed, %d skipped for what the target does not have", passed, Count(r.Cases, Skip)+Count(r.Probes, Skip))
	}
	if failed > 0 {
		r.Verdict = Nonconformant
	}
	if len(r.Stale) > 0 {
		r.ExitCode = ExitFail
		r.Reason = fmt.Sprintf("the list of expected failures is stale: %s: %s (%d in all)", r.Stale[0].ID, r.Stale[0].Reason, len(r.Stale))
	}
}

// missing says why a run is incomplete, or nothing.
func (r *Report) missing(worst func(Status) (Row, bool)) string {
	for _, s := range []Status{Blocked, Withheld} {
		if row, found := worst(s); found {
			return fmt.Sprintf("%s is %s: %s", row.ID, s, why(row))
		}
	}
	judged := 0
	for _, s := range []Status{Pass, Fail, Overclaim} {
		judged += Count(r.Cases, s) + Count(r.Probes, s)
	}
	switch {
	case len(r.Run.Filters) > 0:
		return "a filter left out a part of the suite"
	case !slices.Contains(r.Run.Suites, Nine):
		return "the nine cases were not run"
	case judged == 0:
		return "nothing applied to this target"
	}
	return ""
}

// why is a row's first finding, or its reason.
func why(row Row) string {
	for _, f := range row.Findings {
		if f.Status == row.Status {
			return f.subject() + ": " + f.sentence()
		}
	}
	if row.Reason == "" && len(row.Findings) > 0 {
		return row.Findings[0].subject() + ": " + row.Findings[0].sentence()
	}
	return row.Reason
}

// subject is the field that a finding is about, or the check that made it.
func (f Finding) subject() string { return cmp.Or(f.Field, f.Check) }

// sentence is what was expected and what came.
func (f Finding) sentence() string { return fmt.Sprintf("expected %s, got %s", f.Expected, f.Got) }

// leaked is one way to leak and who did.
type leaked struct {
	what string
	ids  []string
}

// lists returns the ways that count, with their ids.
func (l Leaks) lists() []leaked {
	return []leaked{
		{"could not be destroyed", l.Undestroyed},
		{"was still there after its teardown", l.SecondSweep},
		{"is left on the host", l.Census},
	}
}

func (l Leaks) first() string {
	for _, list := range l.lists() {
		if len(list.ids) > 0 {
			return fmt.Sprintf("leak: %s %s (%d in all)", list.ids[0], list.what, len(list.ids))
		}
	}
	return ""
}
