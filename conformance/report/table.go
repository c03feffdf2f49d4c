package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// The escape sequences of a colored table.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	faint  = "\x1b[2m"
	plain  = "\x1b[0m"
)

// shortBytes bounds what a table shows of one text, listed how many leaks and
// stale entries.
const (
	shortBytes = 160
	listed     = 10
)

// Progress is one row on one line, for live progress: id, status, time and a
// short reason.
func Progress(row Row) string { return row.line(0, false, why(row)) }

// Table writes the final table of a run for a terminal: the nine cases always,
// of every other suite the counts and the rows that did not pass, findings with
// field, expected, got and hint, leaks, verdict, exit code, and how to run it
// again. With color it uses the ANSI colors; without, what is wrong stands in
// capitals, so that nothing is said by color alone.
// Errors: the writer's; it is called once.
func Table(w io.Writer, r Report, color bool) error {
	r = clean(r)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("%s  provider %s %s  suite %s  seed %s\n", short(r.Subject.Target), short(r.Subject.Provider), short(r.Subject.ProviderRevision), short(r.Suite.Revision), short(r.Run.Seed))
	width := 0
	for _, row := range r.Rows() {
		width = max(width, len(row.ID))
	}
	width = min(width, 40)
	for _, row := range r.Cases {
		row.table(line, width, color)
	}
	for _, suite := range append(Suites()[1:], Standing) {
		rows := slices.DeleteFunc(r.Rows(), func(row Row) bool { return row.Suite != suite })
		if len(rows) == 0 {
			continue
		}
		line("\n%-10s %s", suite, summary(rows))
		same := map[string]int{} // what was not run for one reason is listed once
		for _, row := range rows {
			if row.Status == Blocked || row.Status == Withheld {
				if same[row.Reason]++; same[row.Reason] > 1 {
					continue
				}
			}
			if row.Status != Pass && row.Status != Skip {
				row.table(line, width, color)
			}
		}
		more := 0
		for _, n := range same {
			more += n - 1
		}
		if more > 0 {
			line("  and %d more for the same reason", more)
		}
	}
	line("\n%-10s %d allocated, %d destroyed", "leaks", r.Leaks.Allocated, r.Leaks.Destroyed)
	for _, l := range append(r.Leaks.lists(), leaked{"came out of a cleanup, unknown to this run", r.Leaks.Unknown}) {
		some(line, l.ids, func(id string) string { return short(id) + " " + l.what })
	}
	if len(r.Stale) > 0 {
		line("%-10s %d", "stale", len(r.Stale))
		some(line, r.Stale, func(s Stale) string { return fmt.Sprintf("line %d: %s: %s", s.Line, short(s.ID), short(s.Reason)) })
	}
	line("\n%-10s %s", "verdict", paint(r.verdictColor(), string(r.Verdict), color))
	line("%-10s %s", "why", r.Reason)
	line("%-10s %s", "nine", summary(r.Cases))
	line("%-10s %d", "exit code", r.ExitCode)
	line("%-10s %s", "again", r.reproduce())
	_, err := io.WriteString(w, b.String())
	return err
}

// some writes the first of a list and how many more there are.
func some[T any](line func(string, ...any), list []T, text func(T) string) {
	for _, each := range list[:min(len(list), listed)] {
		line("  %s", text(each))
	}
	if more := len(list) - listed; more > 0 {
		line("  and %d more", more)
	}
}

// line is one row, its id padded to width.
func (row Row) line(width int, color bool, reason string) string {
	status := fmt.Sprintf("%-9s", row.verdict())
	id := fmt.Sprintf("%-*s", max(width, 24), Printable(row.ID))
	out := fmt.Sprintf("%s %s %7s", id, paint(row.Status.color(), status, color), row.duration())
	if reason != "" && row.Status != Pass {
		out += "  " + short(reason)
	}
	return strings.TrimRight(out, " ")
}

// table writes a row and, below it, what was found.
func (row Row) table(line func(string, ...any), width int, color bool) {
	reason := row.Reason
	if wrong := len(row.Checks) - countChecks(row.Checks, Pass); reason == "" && wrong > 0 {
		reason = fmt.Sprintf("%d of %d checks", wrong, len(row.Checks))
	}
	line("  %s", row.line(width, color, reason))
	if row.Status == Pass {
		return
	}
	for _, f := range row.Findings {
		line("      %s  expected %s  got %s", short(f.subject()), short(f.Expected), short(f.Got))
		if f.Hint != "" {
			line("        hint: %s", short(f.Hint))
		}
	}
}

// short cuts a text to what a person reads in a table; evidence.json has it all.
func short(s string) string { return printable(s, shortBytes) }

func countChecks(checks []Check, s Status) int {
	n := 0
	for _, c := range checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

// verdict is the status as it is printed: what counts against the provider is
// in capitals.
func (row Row) verdict() string {
	switch {
	case row.Expected:
		return "expected"
	case row.Status == Fail, row.Status == Overclaim, row.Status == Error:
		return strings.ToUpper(string(row.Status))
	}
	return string(row.Status)
}

func (s Status) color() string {
	switch s {
	case Pass:
		return green
	case Skip:
		return faint
	case Withheld, Blocked:
		return yellow
	}
	return red
}

func (r *Report) verdictColor() string {
	switch r.Verdict {
	case Conformant:
		return green
	case Partial:
		return yellow
	}
	return red
}

func paint(sequence, text string, color bool) string {
	if !color {
		return text
	}
	return sequence + text + plain
}

// duration is a row's time for a person, "" for none.
func (row Row) duration() string {
	switch ms := row.Milliseconds; {
	case ms <= 0 && len(row.Checks) > 0 && row.Suite != Standing:
		return "<1ms"
	case ms <= 0:
		return ""
	case ms < 1000:
		return fmt.Sprintf("%dms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%d.%ds", ms/1000, ms%1000/100)
	default:
		return fmt.Sprintf("%dm%02ds", ms/60_000, ms%60_000/1000)
	}
}

// summary counts rows by status: "61 of 63 passed, 1 skip, 1 fail".
func summary(rows []Row) string {
	text := fmt.Sprintf("%d of %d passed", Count(rows, Pass), len(rows))
	for _, s := range Statuses()[1:] {
		if n := Count(rows, s); n > 0 {
			text += fmt.Sprintf(", %d %s", n, s)
		}
	}
	return text
}

// reproduce is the command line that runs the same again: only the first of the
// worst rows, if one failed. A row that was not reached wants the whole run.
func (r *Report) reproduce() string {
	words := []string{"checkfu", "sandbox", "test", quote(r.Subject.Target)}
	if len(r.Run.Suites) > 0 {
		names := make([]string, len(r.Run.Suites))
		for i, s := range r.Run.Suites {
			names[i] = string(s)
		}
		words = append(words, "--suite", strings.Join(names, ","))
	}
	if r.Run.Seed != "" {
		words = append(words, "--seed", quote(r.Run.Seed))
	}
	if r.Run.Passes > 0 && r.Run.Passes != 2 {
		words = append(words, "--repeat", fmt.Sprint(r.Run.Passes))
	}
	for _, k := range r.Tokens.Withheld {
		if slices.Contains(CaseTokens(), k) {
			words = append(words, "--withhold", string(k))
		}
	}
	for _, status := range []Status{Error, Overclaim, Fail} {
		for _, row := range r.Rows() {
			if row.Status == status && !row.Expected && row.Suite != Standing {
				return strings.Join(append(words, "--run", quote(row.ID)), " ")
			}
		}
	}
	for _, filter := range r.Run.Filters {
		words = append(words, "--run", quote(filter))
	}
	return strings.Join(words, " ")
}

// quote makes s one word of a shell.
func quote(s string) string {
	for _, c := range s {
		safe := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._:/+-@", c)
		if !safe {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return s
}
