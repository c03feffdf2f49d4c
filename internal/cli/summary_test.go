package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func TestASummaryShowsNoControlOfTheTerminal(t *testing.T) {
	const hostile = "a\x1b[2Jb\ncheckfu: fake line\u202e\x9b\xff"
	record := &runner.Record{
		RunID: "run_1", Cause: runner.CauseExited, Exit: sandbox.Exited(0),
		Mounts: []runner.Mount{{
			MountPath: hostile, Kind: sandbox.MountGit, Summary: hostile, Collected: true,
			Changes: []runner.Named{{Path: hostile, Why: "added"}}, Uncarried: []runner.Named{{Path: hostile, Why: "fifo"}},
		}},
		Outputs:  []runner.Output{{Path: hostile, Refused: "not_regular"}, {Path: hostile, Size: 3}},
		Egress:   &runner.Egress{Refused: []runner.Refusal{{Host: hostile, Port: 443, Reason: hostile, Count: 2}}},
		Failures: []runner.Failure{{Phase: runner.PhaseCollect, Message: hostile}, {Phase: runner.PhaseCollect, Message: "already told"}},
	}
	var b bytes.Buffer
	summary{record: record, provider: "p", patch: "it's " + hostile, out: hostile, told: "collect: already told"}.print(&b)
	for _, r := range strings.ReplaceAll(b.String(), "\n", "") {
		if !unicode.IsPrint(r) {
			t.Errorf("%q in %q", r, b.String())
		}
	}
	for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")[1:] {
		if !strings.HasPrefix(line, "  ") {
			t.Errorf("a line of somebody else's: %q", line)
		}
	}
	if strings.Contains(b.String(), "already told") {
		t.Errorf("told twice: %s", b.String())
	}
}

func TestASummaryTellsWhatTheGuardRefused(t *testing.T) {
	e := &runner.Egress{Allowed: 2, Others: 5, GuardEnded: true}
	for i := range shown + 2 {
		e.Refused = append(e.Refused, runner.Refusal{Host: "h.test", Port: int64(i), Reason: "not_allowlisted", Count: 3})
	}
	var b bytes.Buffer
	summary{record: &runner.Record{Egress: e}}.print(&b)
	for _, want := range []string{
		"reached   2 requests let through, 35 refused\n", "refused   h.test (not allowlisted, 3×)\n", "refused   h.test:7 (not allowlisted, 3×)\n",
		"and 2 other destinations", "everything since the guard ended",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if (summary{record: &runner.Record{}}).print(&b); strings.Contains(b.String(), "refused") {
		t.Errorf("%s", b.String())
	}
}

func TestLongListsAreCut(t *testing.T) {
	var list []runner.Named
	for range 100 {
		list = append(list, runner.Named{Path: "f", Why: "added"})
	}
	if got := (summary{}).names(list); strings.Count(got, "added") != shown || !strings.HasSuffix(got, "and 92 more") {
		t.Errorf("%q", got)
	}
}

func TestShellWord(t *testing.T) {
	for s, want := range map[string]string{
		"a.patch": "a.patch", "a b": "'a b'", "it's": `'it'\''s'`, "-x": "'-x'", "": "''", "$(x)": "'$(x)'",
	} {
		if got := shellWord(s); got != want {
			t.Errorf("%q: %s", s, got)
		}
	}
}
