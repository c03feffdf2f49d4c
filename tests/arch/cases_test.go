package arch

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cases are those that docs/cases.md has to have.
var cases = []string{"B15", "B23", "B25", "B27", "B29", "B43", "B45", "B47", "B49"}

var (
	caseRow   = regexp.MustCompile("^\\| (B[0-9]+) \\| ([^|]+) \\| `(Test\\w+)` \\| `([^`|]+)` \\|$")
	command   = regexp.MustCompile(`^(?:make build && )?(?:CGO_ENABLED=0 )?go test -run '\^(Test\w+)\$' \./(\S+)$`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)
	testNamed = regexp.MustCompile("`(Test[A-Z]\\w*)[`/]")
)

// testsOf are the tests of each directory.
func testsOf(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for path, text := range sources(t) {
		if strings.HasSuffix(path, "_test.go") {
			dir := filepath.ToSlash(filepath.Dir(path))
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				all[dir] = append(all[dir], m[1])
			}
		}
	}
	return all
}

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each hostile case has a test, which is where its command looks for it.
func TestEachCaseHasItsTest(t *testing.T) {
	tests := testsOf(t)
	found := map[string]bool{}
	for line := range strings.Lines(page(t, filepath.Join(root(t), "docs", "cases.md"))) {
		if !strings.HasPrefix(line, "| B") {
			continue
		}
		row := caseRow.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil {
			t.Errorf("not a row of case, words, test and command: %s", line)
			continue
		}
		found[row[1]] = true
		c := command.FindStringSubmatch(row[4])
		if c == nil || c[1] != row[3] || !slices.Contains(tests[c[2]], row[3]) {
			t.Errorf("%s: no test %s there: %s", row[1], row[3], row[4])
		}
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, cases) {
		t.Errorf("cases %q, want %q", got, cases)
	}
}

// A page that names a test names one that exists, or how several begin.
func TestEachTestThatAPageNamesExists(t *testing.T) {
	known := slices.Concat(slices.Collect(maps.Values(testsOf(t)))...)
	pages, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, path := range append(pages, filepath.Join(root(t), "README.md"), filepath.Join(root(t), "SECURITY.md"), filepath.Join(root(t), "ARCHITECTURE.md")) {
		for _, m := range testNamed.FindAllStringSubmatch(page(t, path), -1) {
			if !slices.ContainsFunc(known, func(name string) bool { return strings.HasPrefix(name, m[1]) }) {
				t.Errorf("%s: no test %s", filepath.Base(path), m[1])
			}
		}
	}
}
