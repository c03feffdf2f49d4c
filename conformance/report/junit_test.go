package report

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// element is any XML element, read without the types that wrote it.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (e element) attr(t *testing.T, name string) string {
	t.Helper()
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	t.Fatalf("<%s> has no %s", e.XMLName.Local, name)
	return ""
}

func (e element) named(name string) []element {
	return slices.DeleteFunc(slices.Clone(e.Children), func(c element) bool { return c.XMLName.Local != name })
}

// under counts the elements of a name at any depth.
func (e element) under(name string) int {
	n := len(e.named(name))
	for _, c := range e.Children {
		n += c.under(name)
	}
	return n
}

func (e element) milliseconds(t *testing.T) int {
	t.Helper()
	return must(strconv.Atoi(strings.Replace(e.attr(t, "time"), ".", "", 1)))(t)
}

func parseJUnit(t *testing.T, r Report) element {
	t.Helper()
	var root element
	if err := xml.Unmarshal(must(JUnit(r))(t), &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// reports are what the tests of every format go through.
func reports(t *testing.T) map[string]Report {
	t.Helper()
	empty := Report{}
	empty.Settle()
	return map[string]Report{"sample": sample(), "mixed": mixed(), "applied": applied(t), "poisoned": poisoned(), "empty": empty}
}

// Every number in the file is counted again from the elements of the file.
func TestJUnitAddsUp(t *testing.T) {
	for name, r := range reports(t) {
		root := parseJUnit(t, r)
		milliseconds := 0
		for _, suite := range root.named("testsuite") {
			sum := 0
			for _, c := range suite.named("testcase") {
				sum += c.milliseconds(t)
			}
			milliseconds += sum
			if got := suite.milliseconds(t); got != sum {
				t.Errorf("%s: suite %s says %d ms, its cases %d", name, suite.attr(t, "name"), got, sum)
			}
			check(t, name, suite, "skipped", "skipped")
		}
		if got := root.milliseconds(t); got != milliseconds {
			t.Errorf("%s: %d ms, the suites %d", name, got, milliseconds)
		}
		for _, e := range append(root.named("testsuite"), root) {
			check(t, name, e, "tests", "testcase")
			check(t, name, e, "failures", "failure")
			check(t, name, e, "errors", "error")
		}
		if rows := len(r.Rows()) + len(r.Leaks.Undestroyed) + len(r.Leaks.SecondSweep) + len(r.Leaks.Census) + len(r.Stale); root.under("testcase") != rows {
			t.Errorf("%s: %d testcases for %d rows, leaks and stale entries", name, root.under("testcase"), rows)
		}
	}
}

func check(t *testing.T, name string, e element, attribute, counted string) {
	t.Helper()
	if got, want := e.attr(t, attribute), e.under(counted); got != strconv.Itoa(want) {
		t.Errorf("%s: %s=%q over %d <%s>", name, attribute, got, want, counted)
	}
}

func TestJUnitOutcomes(t *testing.T) {
	r := applied(t)
	r.Leaks.SecondSweep = []string{"i-88"}
	r.Probes = append(r.Probes, unrun(row("identity.resume", Contract), Error, "the control did not fire"))
	r.Settle()
	got := map[string]string{}
	var suites []string
	for _, suite := range parseJUnit(t, r).named("testsuite") {
		suites = append(suites, suite.attr(t, "name"))
		for _, c := range suite.named("testcase") {
			if class := c.attr(t, "classname"); class != "checkfu.sandbox."+suite.attr(t, "name") {
				t.Errorf("classname %s", class)
			}
			id, outcome := c.attr(t, "name"), ""
			if suite.attr(t, "name") == "ratchet" {
				id = "stale " + id
			}
			for _, child := range c.Children {
				outcome += child.XMLName.Local + " "
				if child.XMLName.Local != "skipped" {
					outcome += child.attr(t, "type") + " "
				}
				outcome += child.attr(t, "message")
			}
			got[id] = outcome
		}
	}
	if want := []string{"nine", "contract", "standing", "leaks", "ratchet"}; !slices.Equal(suites, want) {
		t.Errorf("suites %v", suites)
	}
	for id, want := range map[string]string{
		"stage-seal-execute": "",
		"checkpoint-clone":   "skipped snapshot is not in the envelope (snapshots=false)",
		"allowlist-egress":   "error withheld the envelope gives network-allowlist, the target hides it",
		"durable-round-trip": "error blocked needs checkpoint-clone",
		"none-egress":        "failure overclaim listener: expected no connection, got 1 connection",
		"identity.provision": `failure fail expires_at: expected "2026-12-01T00:00:00.000Z", got "2026-12-01T00:00:00Z"`,
		"identity.resume":    "error error the control did not fire",
		"bounds.arguments":   "skipped expected failure: limit: expected 256 taken, got refused",
		"bounds.stdin":       "",
		"stale bounds.stdin": "failure stale passes now: take it off the list",
		"i-88":               "error leak i-88 was still there after its teardown",
	} {
		if got[id] != want {
			t.Errorf("%s\n got %s\nwant %s", id, got[id], want)
		}
	}
	golden(t, "applied.xml", must(JUnit(applied(t)))(t))
}

func TestJUnitProperties(t *testing.T) {
	r := mixed()
	r.Suite.CasesDigest = "sha256:" + strings.Repeat("0", 64)
	for _, suite := range parseJUnit(t, r).named("testsuite") {
		got := map[string]string{}
		for _, p := range suite.named("properties")[0].named("property") {
			got[p.attr(t, "name")] = p.attr(t, "value")
		}
		if got["seed"] != "7f3a" || got["exit_code"] != "1" || got["verdict"] != "nonconformant" || got["cases_sha256"] != r.Suite.CasesDigest {
			t.Errorf("%v", got)
		}
		if got := suite.attr(t, "timestamp"); got != "2026-12-01T10:00:00" {
			t.Errorf("timestamp %s", got)
		}
	}
}

// The file holds only characters that XML allows, whatever the provider wrote,
// and the texts come back as they were printed.
func TestJUnitOfAHostileProvider(t *testing.T) {
	root := parseJUnit(t, poisoned())
	found := false
	for _, c := range root.named("testsuite")[0].named("testcase") {
		for _, f := range c.named("failure") {
			found = found || strings.Contains(f.Text, Printable(hostile))
		}
	}
	if !found {
		t.Error("the hostile text did not come back")
	}
	var every strings.Builder
	for c := range rune(0x3000) {
		fmt.Fprintf(&every, "%c", c)
		if c%100 == 0 {
			r := sample()
			r.Cases[0] = failed(r.Cases[0], Fail, Finding{Got: every.String() + "\ufffe\uffff\U0001ffff\xff"})
			parseJUnit(t, r)
			every.Reset()
		}
	}
}

func TestXmllintTakesTheJUnit(t *testing.T) {
	lint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed (apt-get install libxml2-utils)")
	}
	for name, r := range reports(t) {
		path := filepath.Join(t.TempDir(), JUnitFile)
		if err := os.WriteFile(path, must(JUnit(r))(t), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(lint, "--noout", "--schema", "testdata/junit.xsd", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
