package report

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// applied is the mixed run with a ratchet of which one entry is stale.
func applied(t *testing.T) Report {
	t.Helper()
	r := mixed()
	list := must(ParseRatchet(strings.NewReader("bounds.arguments https://acme.test/8 2027-01-31\nbounds.stdin https://acme.test/9 2027-01-31\n")))(t)
	list.Apply(&r, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	return r
}

func table(t *testing.T, r Report, color bool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Table(&b, r, color); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTable(t *testing.T) {
	golden(t, "sample.txt", table(t, sample(), false))
	golden(t, "applied.txt", table(t, applied(t), false))
	golden(t, "poisoned.txt", table(t, poisoned(), false))
	colored := table(t, mixed(), true)
	if bare := regexp.MustCompile(`\x1b\[\d+m`).ReplaceAll(colored, nil); !bytes.Equal(bare, table(t, mixed(), false)) {
		t.Error("without its colors the table is another one")
	}
	if bytes.Equal(colored, table(t, mixed(), false)) {
		t.Error("no color")
	}
}

func TestTableOfAHostileProvider(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSuffix(string(table(t, poisoned(), false)), "\n"), "\n") {
		if printable(line, 1<<20) != line {
			t.Errorf("%q", line)
		}
	}
	many := sample()
	for range 1000 {
		many.Leaks.Undestroyed = append(many.Leaks.Undestroyed, "i-1")
	}
	if text := table(t, many, false); bytes.Count(text, []byte("\n")) > 60 || !bytes.Contains(text, []byte("and 990 more")) {
		t.Errorf("a thousand leaks make this table:\n%s", text)
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestTableReportsAWriteError(t *testing.T) {
	if err := Table(closed{}, sample(), false); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

func TestProgress(t *testing.T) {
	slow := row("orphan-reclaim", Nine)
	slow.Milliseconds = 125_000
	quick := row("pause-pinning", Nine)
	quick.Milliseconds = 7
	for _, c := range []struct {
		row  Row
		want string
	}{
		{quick, "pause-pinning            pass          7ms"},
		{slow, "orphan-reclaim           pass        2m05s"},
		{row("stage-seal-execute", Nine), "stage-seal-execute       pass         1.2s"},
		{unrun(row("checkpoint-clone", Nine), Skip, "no snapshot"), "checkpoint-clone         skip               no snapshot"},
		{failed(row("none-egress", Nine), Overclaim, Finding{Check: "listener", Expected: "0", Got: "1\x1b[2J"}), `none-egress              OVERCLAIM    1.2s  listener: expected 0, got 1\x1b[2J`},
		{unrun(row("zdr-release", Nine), Error, strings.Repeat("x", 300)), "zdr-release              ERROR              " + strings.Repeat("x", 157) + "…"},
	} {
		if got := Progress(c.row); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestReproduce(t *testing.T) {
	r := sample()
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() {}, "checkfu sandbox test 'exec:./provider --fast' --suite nine,contract --seed 7f3a"},
		{func() { r.Subject.Target = "builtin:memory" }, "checkfu sandbox test builtin:memory --suite nine,contract --seed 7f3a"},
		{func() { r.Run.Filters = []string{"bounds*"} }, "checkfu sandbox test builtin:memory --suite nine,contract --seed 7f3a --run 'bounds*'"},
		{func() { r.Probes[1] = failed(r.Probes[1], Fail, Finding{}) }, "checkfu sandbox test builtin:memory --suite nine,contract --seed 7f3a --run bounds.stdin"},
		{func() { r.Subject.Target = "exec:it's $(x)" }, `checkfu sandbox test 'exec:it'\''s $(x)' --suite nine,contract --seed 7f3a --run bounds.stdin`},
	} {
		c.change()
		if got := r.reproduce(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestTableOfWhatWasNotRun: rows that one reason kept from running are one
// line, and the command line is that of the whole run.
func TestTableOfWhatWasNotRun(t *testing.T) {
	r := Report{Subject: Subject{Target: "acme"}, Run: RunInfo{Seed: "7f3a", Passes: 1, Suites: []Suite{Nine, Contract}}}
	r.Tokens.Withheld = []Token{SnapshotToken, SnapshotClone}
	for range 3 {
		r.Probes = append(r.Probes, Row{ID: "late", Suite: Contract, Status: Blocked, Reason: "no time"})
	}
	r.Probes = append(r.Probes, Row{ID: "hidden", Suite: Contract, Status: Withheld, Reason: "withheld"},
		Row{ID: "quick", Suite: Contract, Status: Fail, Expected: true, Checks: []Check{{ID: "c", Status: Fail, Times: 1}}})
	var out strings.Builder
	if err := Table(&out, r, false); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, "late"); n != 1 {
		t.Errorf("one reason is told %d times", n)
	}
	for _, want := range []string{
		"  and 2 more for the same reason\n", "  hidden  ", "<1ms",
		"checkfu sandbox test acme --suite nine,contract --seed 7f3a --repeat 1 --withhold snapshot\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
