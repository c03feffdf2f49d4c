package report

import (
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

// Settle sets verdict, reason and exit code from the rows, the leaks and the
// filters. A row whose failure a ratchet expects does not count against the
// exit code; the verdict stays what it is.
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
	passed := Count(rows, Pass)
	work := Count(r.Cases, Pass) + Count(r.Probes, Pass)
	switch row, found := worst(Error); {
	case found:
		set(Failed, ExitError, "%s could not be judged: %s", row.ID, why(row))
		return
	case !r.Leaks.None():
		set(Nonconformant, ExitLeak, "%s", r.Leaks.first())
		return
	}
	failed := Count(rows, Fail) + Count(rows, Overclaim)
	for _, s := range []Status{Overclaim, Fail} {
		if row, found := worst(s); found {
			set(Nonconformant, ExitFail, "%d of %d failed, the first is %s: %s", failed, failed+passed, row.ID, why(row))
			return
		}
	}
	if failed > 0 {
		set(Nonconformant, ExitConformant, "all %d failures are listed as expected", failed)
		return
	}
	for _, s := range []Status{Blocked, Withheld} {
		if row, found := worst(s); found {
			set(Partial, ExitIncomplete, "%s is %s: %s", row.ID, s, why(row))
			return
		}
	}
	switch {
	case len(r.Run.Filters) > 0:
		set(Partial, ExitIncomplete, "a filter left out a part of the suite")
	case !slices.Contains(r.Run.Suites, Nine):
		set(Partial, ExitIncomplete, "the nine cases were not run")
	case work == 0:
		set(Partial, ExitIncomplete, "nothing applied to this target")
	default:
		set(Conformant, ExitConformant, "%d passed, %d skipped for what the envelope does not claim", passed, Count(rows, Skip))
	}
}

// why is a row's first finding, or its reason.
func why(row Row) string {
	for _, f := range row.Findings {
		if f.Status == row.Status {
			if f.Field != "" {
				return fmt.Sprintf("%s: expected %s, got %s", f.Field, f.Expected, f.Got)
			}
			return fmt.Sprintf("%s: expected %s, got %s", f.Check, f.Expected, f.Got)
		}
	}
	return row.Reason
}

func (l Leaks) first() string {
	for _, list := range []struct {
		what string
		ids  []string
	}{
		{"could not be destroyed", l.Undestroyed}, {"was still there after its teardown", l.SecondSweep}, {"is left on the host", l.Census},
	} {
		if len(list.ids) > 0 {
			return fmt.Sprintf("leak: %s %s (%d in all)", list.ids[0], list.what, len(list.ids))
		}
	}
	return ""
}
