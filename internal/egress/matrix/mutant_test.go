package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// Guards that end at their first request, in whatever way. None is wrong about what
// its case asks.
const (
	panics = "test-panics"
	exits  = "test-exits"
)

func init() {
	variants[panics] = func(_ guard.Config, s *guard.Steps) {
		s.Match = func(policy.Target) (string, error) { panic("at the first request") }
	}
	variants[exits] = func(_ guard.Config, s *guard.Steps) {
		s.Match = func(policy.Target) (string, error) { os.Exit(0); return "", nil }
	}
}

// TestWhatIsCaught: the case of a fault catches it, and nothing else that goes wrong
// with a mutant is caught: neither its end nor a Run that does not begin.
func TestWhatIsCaught(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := lab.Open(lab.SocketFile)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := &arena{cases: Cases(), all: Cases(), topology: lab.SocketFile, configuration: GuardOnly, lab: l}
	a.options.Providers = []Provider{{Name: "none", Begin: func(context.Context, RunRequest) (RealRun, error) { return nil, errors.New("no machine") }}}
	a.live = a.reach(t.Context())
	for _, c := range []struct {
		fault, by string
		want      report.Status
		says      string
	}{
		{"", "E04", report.Pass, ""},
		{"suffix-match", "E04", report.Fail, "status"},
		{panics, "E04", report.Error, "exit status 2"},
		{exits, "E04", report.Error, "no answer any more"},
		{"empty-list-allows", "D17", report.Fail, "status"},
		{panics, "D17", report.Error, "ended by itself"}, // it starts its own
		{panics, "P88", report.Error, "ended by itself"}, // with a further fault
		{panics, "D19", report.Error, ""},                // which kills it, had it lived
		{failsOpen, "D19", report.Fail, "answers for a dead guard"},
		{elsewhere, "A15", report.Error, "begin a Run: no machine"},
	} {
		i := slices.IndexFunc(a.cases, func(each Case) bool { return each.ID == c.by })
		status, reason := a.judgeMutant(t.Context(), c.fault, a.cases[i])
		if status != c.want || !strings.Contains(reason, c.says) {
			t.Errorf("%q by %s: expected %s %q, got %s %s", c.fault, c.by, c.want, c.says, status, reason)
		}
	}
}

// TestLate: what was too slow is told from what was wrong, however deep.
func TestLate(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("log: %w", context.DeadlineExceeded):                     true,
		errors.Join(io.EOF, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)): true,
		fmt.Errorf("read: %w", io.ErrUnexpectedEOF):                         false,
		context.Canceled: false,
	} {
		if late(err) != want {
			t.Errorf("%v: expected late %v", err, want)
		}
	}
}
