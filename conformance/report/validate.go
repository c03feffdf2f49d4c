package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// CaseIDs returns the ids of the nine cases in the contract's order.
// Source: contract "Conformance".
func CaseIDs() []string {
	return []string{
		"stage-seal-execute", "stage-git-project", "checkpoint-clone", "allowlist-egress", "durable-round-trip",
		"none-egress", "zdr-release", "orphan-reclaim", "pause-pinning",
	}
}

// GradeEffectNone is the only effect that a self-run has on a grade.
// Source: grading "The grading rule".
const GradeEffectNone = "none"

// tokens returns every token there is.
func tokens() []Token {
	return append(CaseTokens(), Mounts, Durable, SnapshotClone, ReadFiles, ListDir, ListProjectDir, OpenProcess, ActiveWrite)
}

// validate finds the first thing in a report that is outside its closed set or
// contradicts another part of it.
func (r *Report) validate() error {
	err := first(
		oneOf("schema", r.Schema, []string{Schema}),
		oneOf("class", r.Class, []string{ClassDiagnostic}),
		oneOf("grade_effect", r.GradeEffect, []string{GradeEffectNone}),
		oneOf("verdict", r.Verdict, []Verdict{Conformant, Partial, Nonconformant, Failed}),
		optionalDigest("subject.envelope_sha256", r.Subject.EnvelopeDigest),
		optionalDigest("suite.cases_sha256", r.Suite.CasesDigest),
		optionalDigest("suite.binary_sha256", r.Suite.BinaryDigest),
		optionalDigest("suite.mutation.matrix_sha256", r.Suite.Mutation.MatrixDigest),
		optionalDigest("transcript_sha256", r.TranscriptDigest),
		count("suite.mutation.killed", r.Suite.Mutation.Killed, 0),
		count("suite.mutation.total", r.Suite.Mutation.Total, r.Suite.Mutation.Killed),
		timestamp("run.started_at", r.Run.StartedAt),
		timestamp("run.finished_at", r.Run.FinishedAt),
		count("run.ms", r.Run.Milliseconds, 0),
		count("run.passes", r.Run.Passes, 0),
		set("run.suites", r.Run.Suites, Suites()),
		set("tokens.derived", r.Tokens.Derived, tokens()),
		set("tokens.declared", r.Tokens.Declared, tokens()),
		set("tokens.withheld", r.Tokens.Withheld, tokens()),
		count("leaks.allocated", r.Leaks.Allocated, 0),
		count("leaks.destroyed", r.Leaks.Destroyed, 0),
	)
	if err != nil {
		return err
	}
	if r.Run.FinishedAt.Before(r.Run.StartedAt) {
		return invalid("run.finished_at", "at or after run.started_at", string(r.Run.FinishedAt))
	}
	if err := r.validateRows(); err != nil {
		return err
	}
	// Whoever edits a verdict must also edit every row that led to it.
	settled := *r
	settled.Settle()
	return first(
		oneOf("verdict", r.Verdict, []Verdict{settled.Verdict}),
		oneOf("exit_code", strconv.FormatInt(r.ExitCode, 10), []string{strconv.FormatInt(settled.ExitCode, 10)}),
	)
}

func (r *Report) validateRows() error {
	ids := CaseIDs()
	if len(r.Cases) != len(ids) {
		return invalid("cases", fmt.Sprintf("%d rows, always", len(ids)), fmt.Sprintf("%d rows", len(r.Cases)))
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		name   string
		rows   []Row
		suites []Suite
	}{
		{"cases", r.Cases, []Suite{Nine}},
		{"probes", r.Probes, slices.DeleteFunc(Suites(), func(s Suite) bool { return s == Nine })},
		{"standing", r.Standing, []Suite{Standing}},
	} {
		for i, row := range list.rows {
			at := fmt.Sprintf("%s[%d]", list.name, i)
			if list.name == "cases" && row.ID != ids[i] {
				return invalid(at+".id", ids[i], row.ID)
			}
			if seen[row.ID] {
				return invalid(at+".id", "no other row with this id", row.ID)
			}
			seen[row.ID] = true
			if err := first(oneOf(at+".suite", row.Suite, list.suites), row.validate(at)); err != nil {
				return err
			}
		}
	}
	for i, s := range r.Stale {
		if err := count(fmt.Sprintf("stale[%d].line", i), s.Line, 1); err != nil {
			return err
		}
	}
	return nil
}

func (row *Row) validate(at string) error {
	if !rowID(row.ID) {
		return invalid(at+".id", rowIDForm, row.ID)
	}
	err := first(
		oneOf(at+".status", row.Status, Statuses()),
		oneOf(at+".level", row.Level, []Level{Must, Should}),
		set(at+".requires", row.Requires, tokens()),
		count(at+".ms", row.Milliseconds, 0),
	)
	if err != nil {
		return err
	}
	if t := row.Transcript; len(t) != 0 && (len(t) != 2 || t[0] < 1 || t[1] < t[0]) {
		return invalid(at+".transcript", "first and last line, or nothing", fmt.Sprint(t))
	}
	if row.Expected && row.Status != Fail && row.Status != Overclaim {
		return invalid(at+".expected_failure", "only on a failure", string(row.Status))
	}
	for i, c := range row.Controls {
		// A negative check whose live control did not fire has shown nothing.
		if !c.Fired && row.Status == Pass {
			return invalid(fmt.Sprintf("%s.controls[%d].fired", at, i), "true in a row that passed", "false")
		}
	}
	for i, c := range row.Checks {
		at := fmt.Sprintf("%s.checks[%d]", at, i)
		allowed := []Status{Pass, Fail, Overclaim, Error}
		if row.Status == Pass {
			allowed = allowed[:1]
		}
		if err := first(oneOf(at+".status", c.Status, allowed), count(at+".times", c.Times, 0)); err != nil {
			return err
		}
	}
	for i, f := range row.Findings {
		at := fmt.Sprintf("%s.findings[%d]", at, i)
		if row.Status == Pass {
			return invalid(at, "no finding in a row that passed", f.Check)
		}
		if err := oneOf(at+".status", f.Status, []Status{Fail, Overclaim, Error}); err != nil {
			return err
		}
	}
	return nil
}

// rowIDForm is what a row's id looks like: it is a word in the ratchet, on the
// command line and in a table.
const rowIDForm = "1 to 128 letters, digits or ._:/+-"

func rowID(id string) bool {
	ok := len(id) >= 1 && len(id) <= 128
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '+' && c <= ':' && c != ',' || c == '_'
	}
	return ok
}

// first returns the first error, so that a check reads as a list of rules.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func oneOf[T ~string](field string, v T, allowed []T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	expected := ""
	for i, a := range allowed {
		if i > 0 {
			expected += " or "
		}
		expected += string(a)
	}
	return invalid(field, expected, string(v))
}

func set[T ~string](field string, list, allowed []T) error {
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := oneOf(at, v, allowed); err != nil {
			return err
		}
		if slices.Contains(list[:i], v) {
			return invalid(at, "no duplicate", string(v))
		}
	}
	return nil
}

func count(field string, n, low int64) error {
	if n < low {
		return invalid(field, fmt.Sprintf("at least %d", low), strconv.FormatInt(n, 10))
	}
	return nil
}

func optionalDigest(field, digest string) error {
	if digest != "" && !sandbox.Digest(digest).Valid() {
		return invalid(field, "sha256: and 64 lower-case hex digits, or nothing", digest)
	}
	return nil
}

func timestamp(field string, t sandbox.Timestamp) error {
	if !t.Valid() {
		return invalid(field, "YYYY-MM-DDTHH:MM:SS.mmmZ", string(t))
	}
	return nil
}
