// Package conformancetest is the face of the conformance suite in go test: a
// provider's own test runs it and compares every outcome with a golden file,
// so that a case that begins to pass fails the test just like one that begins
// to fail.
//
//	func TestConformance(t *testing.T) {
//		conformancetest.Golden(t, target, conformance.Options{}, "testdata/conformance.golden")
//	}
//
// Concurrency: as conformance.Run.
// Source: contract "Conformance".
package conformancetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
)

// Update is the environment variable that makes Golden write the file instead
// of comparing with it.
const Update = "CONFORMANCE_UPDATE"

// Golden runs the suite and compares its outcomes with file, line by line. A
// row that failed is printed with its findings, a difference with both lines,
// and a leak fails the test whatever the file says.
func Golden(t testing.TB, target conformance.Target, o conformance.Options, file string) report.Report {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	rep := conformance.Run(t.Context(), target, o)
	t.Logf("%s: %s (%s), seed %s, %d ms", rep.Subject.Target, rep.Verdict, rep.Reason, rep.Run.Seed, rep.Run.Milliseconds)
	if !rep.Leaks.None() {
		t.Errorf("left behind: %+v", rep.Leaks)
	}
	got := Outcomes(rep)
	if os.Getenv(Update) != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (set %s=1 to write it)", err, Update)
	}
	compare(t, string(want), got, rep)
	return rep
}

// Outcomes gives every row that a run decides, a line each: suite, id, status,
// and why it was not run. It is the same for every run of a right provider.
func Outcomes(rep report.Report) string {
	var b strings.Builder
	for _, row := range rep.Rows() {
		fmt.Fprintf(&b, "%s\t%s\t%s", row.Suite, row.ID, row.Status)
		if row.Status == report.Skip || row.Status == report.Withheld {
			fmt.Fprintf(&b, "\t%s", row.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func compare(t testing.TB, want, got string, rep report.Report) {
	t.Helper()
	if want == got {
		return
	}
	expected := map[string]bool{}
	for line := range strings.Lines(want) {
		expected[line] = true
	}
	for line := range strings.Lines(got) {
		if expected[line] {
			delete(expected, line)
			continue
		}
		t.Errorf("not in the golden file: %s", line)
		for _, row := range rep.Rows() {
			if strings.HasPrefix(line, fmt.Sprintf("%s\t%s\t", row.Suite, row.ID)) {
				for _, f := range row.Findings {
					t.Errorf("    %s %s: expected %s, got %s", f.Check, f.Field, f.Expected, f.Got)
				}
			}
		}
	}
	for line := range expected {
		t.Errorf("only in the golden file: %s", line)
	}
}
