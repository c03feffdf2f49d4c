package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
)

func TestWatchTellsWhatHappens(t *testing.T) {
	var out bytes.Buffer
	a := &app{stderr: &out}
	w := a.watch(false)
	step := func(id string, pass, done int) {
		w.started(conformance.Step{ID: id, Pass: pass, Passes: 2, Done: done, Total: 6})
	}
	step("none-egress", 1, 0)
	w.tick(time.Now().Add(time.Second)) // not yet worth a word
	w.tick(time.Now().Add(watchLives))
	w.row(report.Row{ID: "none-egress", Suite: report.Nine, Status: report.Pass, Milliseconds: 1234})
	step("quiet", 1, 1)
	w.row(report.Row{ID: "quiet", Suite: report.Contract, Status: report.Pass})
	step("loud", 1, 2)
	w.row(report.Row{ID: "loud", Suite: report.Contract, Status: report.Fail, Reason: "why"})
	for i, id := range []string{"none-egress", "zdr-release", "pause-pinning"} {
		step(id, 2, 3+i)
		w.row(report.Row{ID: id, Suite: report.Nine, Status: report.Blocked, Reason: "no time"})
	}
	w.end()
	w.end()
	text := out.String()
	for _, want := range []string{"pass 1 of 2\n", "  1 of 6  none-egress  ", "none-egress              pass         1.2s\n", "loud                     FAIL ", "pass 2 of 2\nnone-egress              blocked "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n != 6 || strings.Contains(text, "\x1b") || strings.Contains(text, "quiet") {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// TestCensusCommandIsBounded in time and in size, with all that it starts.
func TestCensusCommandIsBounded(t *testing.T) {
	list, err := censusCommand("printf 'a\\n\\n b \\n'; echo noise >&2", time.Minute)(t.Context())
	if err != nil || strings.Join(list, "|") != "a|b" {
		t.Errorf("%q, %v", list, err)
	}
	asked := filepath.Join(t.TempDir(), "asked")
	hangs := censusCommand("echo x >>"+asked+"; sleep 600 & wait", 100*time.Millisecond)
	for range 2 {
		began := time.Now()
		if _, err := hangs(t.Context()); err == nil || err.Error() != "no end within 100ms" || time.Since(began) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	}
	if text, _ := os.ReadFile(asked); string(text) != "x\n" {
		t.Errorf("a command that hung was asked again: %q", text)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrClosed)
	if _, err := censusCommand("echo a", time.Minute)(ended); err != os.ErrClosed {
		t.Errorf("ended: %v", err)
	}
}
