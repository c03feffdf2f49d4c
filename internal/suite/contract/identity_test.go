package contract

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandboxtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`)
	drawn  = regexp.MustCompile(`([_-])(?:[0-9a-f]{20}|[0-9a-f]{16})`)
)

// identityFindings runs one saboteur against the full requests and returns
// what the row of its check found. Times are given from the start of the run,
// and what the engine drew is left out.
func identityFindings(t *testing.T, s sandboxtest.Saboteur) []report.Finding {
	t.Helper()
	target, inner := oracle.New("golden")
	target.Provider = s.Wrap(inner, &sandboxtest.Env{Fire: func() {}, Now: target.Clock.Now})
	start := target.Clock.Now()
	row, check, _ := strings.Cut(s.Kills, "/")
	asks := identity()[:1] // one probe alone: which of two came first is drawn
	if row == "identity.resume" {
		asks = identity()[1:]
	}
	rep := probe.Run(t.Context(), target, asks, probe.Options{Suites: []report.Suite{report.Contract}, Seed: "golden", Passes: 1})
	plain := func(text string) string {
		text = drawn.ReplaceAllString(text, "${1}[drawn]")
		return moment.ReplaceAllStringFunc(text, func(m string) string {
			at, err := time.Parse("2006-01-02T15:04:05", m)
			if err != nil {
				t.Fatal(err)
			}
			return "[start+" + at.Sub(start.UTC()).String() + "]"
		})
	}
	var found []report.Finding
	for _, r := range rep.Rows() {
		for _, f := range r.Findings {
			if r.ID == row && f.Check == check {
				f.Expected, f.Got = plain(f.Expected), plain(f.Got)
				found = append(found, f)
			}
		}
	}
	return found
}

// A failed identity check names the field, both values and what usually causes
// it: the contract admits that its own error is opaque.
func TestAnIdentityFailureNamesItsField(t *testing.T) {
	var b strings.Builder
	seen := map[string]bool{}
	for _, s := range sandboxtest.Saboteurs() {
		row, check, _ := strings.Cut(s.Kills, "/")
		if !strings.HasPrefix(row, "identity.") || !strings.HasPrefix(s.ID, "I") || !slices.Contains(crosscheck.InstanceChecks(), check) {
			continue
		}
		found := identityFindings(t, s)
		if len(found) == 0 {
			t.Errorf("%s: nothing found by %s", s.ID, s.Kills)
		}
		for _, f := range found {
			if f.Field == "" || f.Hint == "" || f.Expected == f.Got {
				t.Errorf("%s: a finding that does not help: %+v", s.ID, f)
			}
			if row == "identity.provision" {
				fmt.Fprintf(&b, "%s: %s\n  field     %s\n  expected  %s\n  got       %s\n  hint      %s\n", s.ID, s.Fault, f.Field, f.Expected, f.Got, f.Hint)
			}
		}
		seen[s.Kills] = true
	}
	for _, row := range []string{"identity.provision", "identity.activate", "identity.resume"} {
		for _, check := range crosscheck.InstanceChecks() {
			if !seen[row+"/"+check] {
				t.Errorf("no saboteur for %s/%s", row, check)
			}
		}
	}
	golden := filepath.Join("testdata", "identity.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the findings are not those of %s (-update writes it anew):\n%s", golden, b.String())
	}
}
