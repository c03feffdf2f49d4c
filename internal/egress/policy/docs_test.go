package policy_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// The table that people read is the one that decides.
func TestTheDocumentedTableIsTheRows(t *testing.T) {
	text, err := os.ReadFile("../../../docs/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	marks := map[policy.Reachable]string{
		policy.ReachableTrue: "yes", policy.ReachableFalse: "no", policy.ReachableNotApplicable: "not applicable",
		policy.ReachableWithdrawn: "withdrawn", "": "–",
	}
	var want []string
	for _, r := range policy.Rows() {
		var blocks []string
		for _, p := range r.Prefixes() {
			blocks = append(blocks, "`"+p.String()+"`")
		}
		document := "–"
		if r.RFC != 0 {
			document = "RFC " + strconv.Itoa(r.RFC)
		}
		want = append(want, "| "+strings.Join([]string{r.Case, strings.Join(blocks, ", "), r.Name, document, marks[r.Reachable]}, " | ")+" |")
	}
	got := regexp.MustCompile(`(?m)^\| P[0-9]+ \|.*$`).FindAllString(string(text), -1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/egress.md (-expected +there):\n%s", diff)
	}
}
