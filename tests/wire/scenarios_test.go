package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/suite"
)

// scenarioCount is how many there are: W01 to W96.
const scenarioCount = 96

var scenarioLine = regexp.MustCompile(`^W([0-9]{2}) [^:]+: \S`)

// TestEveryScenarioIsShown holds the table of scenarios: all of them, in order,
// each with a test, and every test that is named is there.
func TestEveryScenarioIsShown(t *testing.T) {
	data, err := os.ReadFile("testdata/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range checkScenarios(string(data)) {
		t.Error(wrong)
	}
}

// TestTheTableCanFail: what is missing from a table, or from the tree, is named.
func TestTheTableCanFail(t *testing.T) {
	data, err := os.ReadFile("testdata/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"no such test":     {"wire/client:TestDribble", "wire/client:TestDribbled", "TestDribbled"},
		"no such subtest":  {"TestDeliveries/W04 typed 500", "TestDeliveries/W04 typed 501", "W04 typed 501"},
		"no such package":  {"wire/client:TestBlackhole", "wire/nobody:TestBlackhole", "wire/nobody"},
		"no such probe":    {"wire/client:TestBlackhole", "probe:wire.nothing", "wire.nothing"},
		"a scenario lost":  {"W50 a provider repeats all of it: filtered\n", "", "W50"},
		"no test of it":    {"\twire/client:TestBlackhole\n", "", "W24"},
		"no reason":        {"wire/client:TestBlackhole", "none:", "W24"},
		"no outcome":       {"W24 HTTP/2 into a black hole: found out within 30 s", "W24 HTTP/2 into a black hole", "W24"},
		"one of no number": {"# Bytes", "W96 twice: wrong\n\twire/client:TestBlackhole", "W96"},
	} {
		table := strings.Replace(string(data), c.old, c.new, 1)
		if table == string(data) {
			t.Errorf("%s: changes nothing", name)
		}
		if wrong := checkScenarios(table); !strings.Contains(fmt.Sprint(wrong), c.want) {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

// checkScenarios says what is wrong with a table.
func checkScenarios(table string) (wrong []error) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	probes := map[string]bool{}
	for _, p := range suite.All() {
		probes[p.ID] = true
	}
	packages := map[string]map[string]map[string]bool{}
	number, shown, scenario := 0, 1, ""
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		show, below := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !below:
			if shown == 0 {
				fail("%s: nothing shows it", scenario)
			}
			number, shown = number+1, 0
			scenario, _, _ = strings.Cut(line, " ")
			if !scenarioLine.MatchString(line) || scenario != fmt.Sprintf("W%02d", number) {
				fail("%q: expected W%02d, the fault, a colon and the outcome", line, number)
			}
		default:
			shown++
			dir, test, ok := strings.Cut(show, ":")
			switch {
			case !ok || test == "":
				fail("%s: %q: expected package:test, probe:id or none:reason", scenario, show)
			case dir == "none":
			case dir == "probe":
				if !probes[test] {
					fail("%s: no probe %q", scenario, test)
				}
			default:
				if packages[dir] == nil {
					packages[dir] = testsOf(dir)
				}
				test, sub, subtest := strings.Cut(test, "/")
				names, there := packages[dir][test]
				if !there {
					fail("%s: no test %s in %s", scenario, test, dir)
				} else if subtest && !names[sub] {
					fail("%s: %s in %s has no subtest %q", scenario, test, dir, sub)
				}
			}
		}
	}
	if shown == 0 || number != scenarioCount {
		fail("%d scenarios, expected %d, each shown", number, scenarioCount)
	}
	return wrong
}

// testsOf reads the tests of a package, each with the texts that stand in it: a
// subtest is named by one of them.
func testsOf(dir string) map[string]map[string]bool {
	tests := map[string]map[string]bool{}
	files, _ := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			continue // whoever builds it hears of that
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			texts := map[string]bool{}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil {
						texts[s] = true
					}
				}
				return true
			})
			tests[f.Name.Name] = texts
		}
	}
	return tests
}
