package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/conformancetest"
	"github.com/checkfu/checkfu/internal/suitecheck"
)

// TestMatrix: every saboteur is killed by the check that it names, every check
// is needed by a saboteur, what is odd and right stays green, what does not try
// never reaches exit 0; and the list is the one that every report names.
func TestMatrix(t *testing.T) {
	t.Parallel()
	m := suitecheck.Check(t.Context(), suitecheck.Options{})
	for _, fault := range m.Faults() {
		t.Error(fault)
	}
	t.Logf("%d saboteurs, %d checks, %v", len(m.Saboteurs), len(m.Reverse), m.Took)
	if len(m.Saboteurs) < 150 {
		t.Errorf("%d saboteurs", len(m.Saboteurs))
	}
	got := m.Golden()
	update := os.Getenv(conformancetest.Update) != ""
	if !m.Agrees(conformance.MatrixText()) || update && got != conformance.MatrixText() {
		if !update {
			diff := cmp.Diff(strings.Split(conformance.MatrixText(), "\n"), strings.Split(got, "\n"))
			t.Errorf("conformance/matrix.golden differs; set %s=1 to write it: %s", conformancetest.Update, diff)
		} else if err := os.WriteFile("../../conformance/matrix.golden", []byte(got), 0o644); err != nil {
			t.Error(err)
		}
		return // this binary still holds the file as it was
	}
	if p := conformance.Matrix(); int(p.Total) != len(m.Saboteurs) || p.Killed != p.Total {
		t.Errorf("published: %+v", p)
	}
}
