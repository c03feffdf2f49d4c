package report

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestEncodeAndDecodeAgree(t *testing.T) {
	for name, r := range map[string]Report{"sample": sample(), "mixed": mixed(), "poisoned": poisoned()} {
		data := must(Encode(r))(t)
		back := must(Decode(data))(t)
		if !reflect.DeepEqual(back, clean(r)) {
			t.Errorf("%s: came back as something else", name)
		}
		if again := must(Encode(back))(t); !bytes.Equal(again, data) {
			t.Errorf("%s: another encoding the second time", name)
		}
		if i := bytes.IndexFunc(data, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\u202e' || c == '\ufffd' }); i >= 0 {
			t.Errorf("%s: %q in the file", name, data[i:i+8])
		}
		if bytes.Contains(data, []byte("null")) {
			t.Errorf("%s: null in the file", name)
		}
		for _, list := range []string{"ceiling", "stale", "census", "filters", "controls", "observations"} {
			if !bytes.Contains(data, []byte(`"`+list+`":[`)) {
				t.Errorf("%s: no list %s", name, list)
			}
		}
	}
}

func TestWhatEvidenceIsRefused(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Report)
	}{
		{"schema", func(r *Report) { r.Schema = "checkfu.sandbox-conformance/2" }},
		{"class", func(r *Report) { r.Class = "verified" }},
		{"grade_effect", func(r *Report) { r.GradeEffect = "security_boundary" }},
		{"verdict", func(r *Report) { r.Verdict = "fine" }},
		{"verdict", func(r *Report) { r.Verdict = Partial }},
		{"exit_code", func(r *Report) { r.ExitCode = 1 }},
		{"verdict", func(r *Report) { r.Cases[1] = failed(r.Cases[1], Fail, Finding{}) }},
		{"verdict", func(r *Report) { r.Leaks.Census = []string{"cgroup"} }},
		{"exit_code", func(r *Report) { r.Stale = []Stale{{Line: 1}} }},
		{"cases", func(r *Report) { r.Cases = r.Cases[:8] }},
		{"cases", func(r *Report) { r.Cases = append(r.Cases, r.Cases[0]) }},
		{"cases[0].id", func(r *Report) { r.Cases[0], r.Cases[1] = r.Cases[1], r.Cases[0] }},
		{"cases[4].suite", func(r *Report) { r.Cases[4].Suite = Contract }},
		{"probes[0].suite", func(r *Report) { r.Probes[0].Suite = Nine }},
		{"probes[0].suite", func(r *Report) { r.Probes[0].Suite = Standing }},
		{"standing[0].suite", func(r *Report) { r.Standing[0].Suite = Contract }},
		{"probes[1].id", func(r *Report) { r.Probes[1].ID = r.Probes[0].ID }},
		{"probes[1].id", func(r *Report) { r.Probes[1].ID = "zdr-release" }},
		{"probes[1].id", func(r *Report) { r.Probes[1].ID = "" }},
		{"probes[1].id", func(r *Report) { r.Probes[1].ID = "a b" }},
		{"probes[1].id", func(r *Report) { r.Probes[1].ID = strings.Repeat("a", 129) }},
		{"cases[3].status", func(r *Report) { r.Cases[3].Status = "passed" }},
		{"cases[3].status", func(r *Report) { r.Cases[3].Status = "" }},
		{"cases[3].level", func(r *Report) { r.Cases[3].Level = "MAY" }},
		{"cases[3].requires[1]", func(r *Report) { r.Cases[3].Requires = []Token{Process, "network"} }},
		{"cases[3].requires[1]", func(r *Report) { r.Cases[3].Requires = []Token{Process, Process} }},
		{"cases[3].ms", func(r *Report) { r.Cases[3].Milliseconds = -1 }},
		{"cases[3].transcript", func(r *Report) { r.Cases[3].Transcript = []int64{1} }},
		{"cases[3].transcript", func(r *Report) { r.Cases[3].Transcript = []int64{2, 1} }},
		{"cases[3].transcript", func(r *Report) { r.Cases[3].Transcript = []int64{0, 1} }},
		{"cases[3].expected_failure", func(r *Report) { r.Cases[3].Expected = true }},
		{"cases[3].controls[0].fired", func(r *Report) { r.Cases[3].Controls = []Control{{ID: "live"}} }},
		{"cases[3].checks[0].status", func(r *Report) { r.Cases[3].Checks[0].Status = Fail }},
		{"cases[3].checks[0].status", func(r *Report) { r.Cases[3].Checks[0].Status = Skip }},
		{"cases[3].checks[0].times", func(r *Report) { r.Cases[3].Checks[0].Times = -1 }},
		{"cases[3].findings[0]", func(r *Report) { r.Cases[3].Findings = []Finding{{Status: Fail}} }},
		{"cases[3].findings[0].status", func(r *Report) {
			r.Cases[3] = unrun(r.Cases[3], Skip, "x")
			r.Cases[3].Findings = []Finding{{Status: Pass}}
		}},
		{"run.suites[0]", func(r *Report) { r.Run.Suites[0] = "all" }},
		{"run.suites[0]", func(r *Report) { r.Run.Suites[0] = Standing }},
		{"run.suites[1]", func(r *Report) { r.Run.Suites[1] = Nine }},
		{"run.started_at", func(r *Report) { r.Run.StartedAt = "2026-12-01T10:00:00Z" }},
		{"run.finished_at", func(r *Report) { r.Run.FinishedAt = "" }},
		{"run.finished_at", func(r *Report) { r.Run.FinishedAt = "2026-12-01T09:59:59.999Z" }},
		{"run.ms", func(r *Report) { r.Run.Milliseconds = -1 }},
		{"run.passes", func(r *Report) { r.Run.Passes = -1 }},
		{"tokens.derived[0]", func(r *Report) { r.Tokens.Derived = []Token{""} }},
		{"tokens.declared[0]", func(r *Report) { r.Tokens.Declared = []Token{"all"} }},
		{"tokens.withheld[0]", func(r *Report) { r.Tokens.Withheld = []Token{"none"} }},
		{"subject.envelope_sha256", func(r *Report) { r.Subject.EnvelopeDigest = "sha256:00" }},
		{"suite.cases_sha256", func(r *Report) { r.Suite.CasesDigest = "x" }},
		{"suite.binary_sha256", func(r *Report) { r.Suite.BinaryDigest = "x" }},
		{"suite.mutation.matrix_sha256", func(r *Report) { r.Suite.Mutation.MatrixDigest = "x" }},
		{"suite.mutation.killed", func(r *Report) { r.Suite.Mutation.Killed = -1 }},
		{"suite.mutation.total", func(r *Report) { r.Suite.Mutation.Total = 149 }},
		{"transcript_sha256", func(r *Report) { r.TranscriptDigest = "x" }},
		{"leaks.allocated", func(r *Report) { r.Leaks.Allocated = -1 }},
		{"leaks.destroyed", func(r *Report) { r.Leaks.Destroyed = -1 }},
		{"run.ms", func(r *Report) { r.Run.Milliseconds = 1 << 53 }},
		{"stale[0].line", func(r *Report) { r.Stale = []Stale{{}} }},
	} {
		r := sample()
		c.change(&r)
		_, err := Encode(r)
		e, ok := errors.AsType[*InvalidError](err)
		if !ok || e.Field != c.field || e.File != EvidenceFile || e.Expected == "" {
			t.Errorf("want a refusal of %s, got %v", c.field, err)
		}
	}
}

func TestDecodeTakesOneSpelling(t *testing.T) {
	data := string(must(Encode(mixed()))(t))
	for name, c := range map[string]struct{ field, bytes string }{
		"blank":         {"", data + "\n"},
		"key order":     {"", `{"verdict":"nonconformant",` + strings.Replace(data[1:], `,"verdict":"nonconformant"`, "", 1)},
		"unprintable":   {"content_sha256", strings.Replace(data, `"acme"`, "\"ac\u202eme\"", 1)},
		"escape":        {"", strings.Replace(data, `"acme"`, `"\u0061cme"`, 1)},
		"unknown key":   {"signer", strings.Replace(data, `"class"`, `"signer":"me","class"`, 1)},
		"missing key":   {"class", strings.Replace(data, `"class":"diagnostic",`, "", 1)},
		"duplicate key": {"class", strings.Replace(data, `"class"`, `"class":"diagnostic","class"`, 1)},
		"null":          {"ceiling", strings.Replace(data, `"ceiling":[]`, `"ceiling":null`, 1)},
		"float":         {"exit_code", strings.Replace(data, `"exit_code":1`, `"exit_code":1.0`, 1)},
		"trailing":      {"", data + "{}"},
		"truncated":     {"", data[:len(data)-1]},
		"empty":         {"", ""},
	} {
		if c.bytes == data {
			t.Fatalf("%s: nothing was changed", name)
		}
		r, err := Decode([]byte(c.bytes))
		e, ok := errors.AsType[*InvalidError](err)
		if !ok || e.Field != c.field || e.File != EvidenceFile || !reflect.DeepEqual(r, Report{}) {
			t.Errorf("%s: want a refusal at %q, got %v", name, c.field, err)
		}
	}
}

// TestEveryByteCounts: text that contradicts nothing is covered too.
func TestEveryByteCounts(t *testing.T) {
	data := must(Encode(mixed()))(t)
	for i := range data {
		data[i] ^= 1
		if _, err := Decode(data); err == nil {
			t.Fatalf("byte %d can be changed: %q", i, data[max(0, i-20):min(len(data), i+20)])
		}
		data[i] ^= 1
	}
}

func TestInvalidErrorText(t *testing.T) {
	for _, c := range []struct {
		err  InvalidError
		want string
	}{
		{InvalidError{"evidence.json", 0, "verdict", "partial", `"fine"`}, `evidence.json: verdict: expected partial, got "fine"`},
		{InvalidError{"transcript.ndjson", 7, "", "a digest", "another"}, "transcript.ndjson:7: expected a digest, got another"},
		{InvalidError{"", 3, "link", "x", "y"}, "line 3: link: expected x, got y"},
		{InvalidError{"", 0, "", "x", "y"}, "expected x, got y"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range []Report{sample(), mixed(), poisoned()} {
		f.Add(must(Encode(r))(f))
	}
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			if _, ok := errors.AsType[*InvalidError](err); !ok {
				t.Fatalf("an error of type %T", err)
			}
			return
		}
		if again, err := Encode(r); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("decoded, then encoded as other bytes: %v", err)
		}
		if _, err := JUnit(r); err != nil {
			t.Fatal(err)
		}
		Markdown(r)
	})
}
