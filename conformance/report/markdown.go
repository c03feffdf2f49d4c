package report

import (
	"fmt"
	"slices"
	"strings"
)

// Markdown gives report.md, for a person: the verdict and why, the subject, the
// tokens, the nine as a table, what was found, the standing checks, leaks,
// limits, and how to run it again. Text that may come from a provider stands in
// code spans, all other text is escaped: neither can make a heading, a link, an
// element or another cell.
// Source: GitHub Flavored Markdown 0.29 "Code spans", "Backslash escapes".
func Markdown(r Report) []byte {
	r = clean(r)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("# Sandbox conformance: %s\n", prose(string(r.Verdict)))
	line("%s\n", code(r.Reason))
	line("Exit code %d. Class %s: a run that somebody makes of their own provider, it raises no grade.\n", r.ExitCode, prose(r.Class))

	line("## Subject\n")
	for _, f := range [][2]string{
		{"target", r.Subject.Target}, {"provider", r.Subject.Provider}, {"revision", r.Subject.ProviderRevision},
		{"materialization", r.Subject.MaterializationRevision}, {"placement", string(r.Subject.Placement)},
		{"envelope", r.Subject.EnvelopeDigest}, {"suite", r.Suite.Revision}, {"cases", r.Suite.CasesDigest},
		{"transcript", r.TranscriptDigest}, {"started", string(r.Run.StartedAt)},
	} {
		if f[1] != "" {
			line("- %s %s", f[0], code(f[1]))
		}
	}
	if m := r.Suite.Mutation; m.Total > 0 {
		line("- the suite catches %d of %d wrong providers", m.Killed, m.Total)
	}

	line("\n## Tokens\n")
	line("- derived from the envelope: %s", list(r.Tokens.Derived))
	line("- declared by the target: %s", list(r.Tokens.Declared))
	line("- withheld: %s", list(r.Tokens.Withheld))
	for _, n := range r.Ceiling {
		line("- %s claimed %s, counts as %s", code(n.Path), code(n.Claimed), code(n.Admitted))
	}

	line("\n## The nine cases\n")
	line("| case | status | time | why |\n| --- | --- | ---: | --- |")
	for _, row := range r.Cases {
		reason := ""
		if row.Status != Pass {
			reason = cell(why(row))
		}
		line("| %s | %s | %s | %s |", cell(row.ID), row.verdict(), row.duration(), reason)
	}

	for _, suite := range append(Suites()[1:], Standing) {
		rows := slices.DeleteFunc(r.Rows(), func(row Row) bool { return row.Suite != suite })
		if len(rows) > 0 {
			line("\n## %s\n\n%s.", prose(string(suite)), summary(rows))
		}
	}

	line("\n## Findings")
	found := false
	for _, row := range r.Rows() {
		if row.Status != Pass && row.Status != Skip {
			found = true
			row.markdown(line)
		}
	}
	if !found {
		line("\nNone.")
	}

	line("\n## Leaks\n\n%d allocated, %d destroyed.", r.Leaks.Allocated, r.Leaks.Destroyed)
	for _, l := range append(r.Leaks.lists(), leaked{"came out of a cleanup and was never seen by this run", r.Leaks.Unknown}) {
		for _, id := range l.ids {
			line("- %s %s", code(id), l.what)
		}
	}
	if len(r.Stale) > 0 {
		line("\n## Stale expected failures\n")
		for _, s := range r.Stale {
			line("- line %d, %s: %s (%s, %s)", s.Line, code(s.ID), prose(s.Reason), code(s.Link), prose(s.Expires))
		}
	}
	if len(r.Limits) > 0 {
		line("\n## What this run cannot show\n")
		for _, l := range r.Limits {
			line("- %s", prose(l))
		}
	}
	line("\n## Run it again\n\n%s", code(r.reproduce()))
	return []byte(b.String())
}

// markdown writes one row that is neither passed nor skipped.
func (row Row) markdown(line func(string, ...any)) {
	line("\n### %s %s\n", code(row.ID), row.verdict())
	line("%s. %s %s (%s)\n", prose(row.Title), prose(string(row.Level)), prose(row.Clause), prose(row.Source))
	if row.Reason != "" {
		line("- %s", code(row.Reason))
	}
	for _, f := range row.Findings {
		line("- %s %s: expected %s, got %s", prose(string(f.Status)), code(f.subject()), code(f.Expected), code(f.Got))
		if f.Hint != "" {
			line("  hint: %s", prose(f.Hint))
		}
	}
	for _, c := range row.Controls {
		if !c.Fired {
			line("- the control %s did not fire", code(c.ID))
		}
	}
	for _, o := range row.Observations {
		line("- seen: %s", code(o))
	}
}

func list(tokens []Token) string {
	if len(tokens) == 0 {
		return "none"
	}
	words := make([]string, len(tokens))
	for i, t := range tokens {
		words[i] = prose(string(t))
	}
	return strings.Join(words, ", ")
}

// code is a code span around printable text, with a fence longer than every run
// of backticks in it.
func code(s string) string {
	switch {
	case s == "":
		return "(nothing)"
	case strings.Trim(s, " ") == "": // a span of blanks is no span
		return fmt.Sprintf("(%d blanks)", len(s))
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if s[0] == '`' || s[len(s)-1] == '`' || s[0] == ' ' && s[len(s)-1] == ' ' {
		s = " " + s + " "
	}
	return fence + s + fence
}

// cell is a code span in a table, where a bar ends the cell even inside of one
// and readers differ on what a backslash before it does.
func cell(s string) string { return code(strings.ReplaceAll(s, "|", `\x7c`)) }

// prose escapes every character that can mean something, and what makes a list
// or a rule only at the start of a line. Two marks do not help: some readers
// look for addresses and names behind an @ once more when the escapes are gone,
// and find them anywhere but in a code span; and they take www. for a link.
func prose(s string) string {
	var b strings.Builder
	start := true // nothing but digits so far
	var before rune
	for i, c := range strings.TrimSpace(s) {
		switch {
		case c == '@':
			b.WriteString("`@`")
			continue
		case strings.ContainsRune("\\`*_{}[]<>()#+!|~&:=$^", c), i == 0 && c == '-', c == '.' && (start || before == 'w' || before == 'W'):
			b.WriteByte('\\')
		}
		b.WriteRune(c)
		start, before = start && c >= '0' && c <= '9', c
	}
	return b.String()
}
