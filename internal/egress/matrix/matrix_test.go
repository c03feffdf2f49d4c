package matrix

import (
	"bytes"
	"encoding/xml"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
)

func TestMain(m *testing.M) {
	if code, was := Main(); was {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// slow are the cases that wait for bounds of the guard that no configuration
// shortens.
var slow = []string{"E49", "P79", "D34"}

// TestMatrix is the matrix on the topologies that no provider of ours has, each in
// another configuration and without what waits longest. The third, in all of them,
// with the mutants and with real machines, is run by the command (tests/e2e).
func TestMatrix(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	var quick []string
	for _, c := range Cases() {
		if !slices.Contains(slow, c.ID) {
			quick = append(quick, c.ID)
		}
	}
	runs := map[string]Options{}
	for topology, configuration := range map[lab.Topology]Configuration{lab.InsideListener: KernelOnly, lab.Veth: Both} {
		runs[string(topology)+" "+string(configuration)] = Options{
			Topologies: []lab.Topology{topology}, Configurations: []Configuration{configuration}, Cases: quick, NoMutants: true,
		}
	}
	type result struct {
		report *Report
		err    error
	}
	results := map[string]result{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for name, o := range runs {
		wait.Go(func() {
			r, err := Run(t.Context(), o)
			mu.Lock()
			defer mu.Unlock()
			results[name] = result{r, err}
		})
	}
	wait.Wait()
	for name, o := range runs {
		t.Run(name, func(t *testing.T) {
			if missing := new(launch.MissingError); errors.As(results[name].err, &missing) {
				t.Skip(missing)
			}
			if results[name].err != nil {
				t.Fatal(results[name].err)
			}
			passed(t, o, results[name].report)
		})
	}
}

// passed says what of a report is no pass.
func passed(t *testing.T, o Options, r *Report) {
	for _, row := range r.Rows {
		switch row.Status {
		case report.Fail, report.Error:
			t.Errorf("%s: %s: %s", row.ID, row.Status, row.Reason)
		case report.Skip:
			if !strings.HasPrefix(row.ID, "E52/") {
				t.Errorf("%s is skipped: %s", row.ID, row.Reason)
			}
		case report.Blocked:
			if !strings.HasPrefix(row.ID, "A15/") {
				t.Errorf("%s is not run: %s", row.ID, row.Reason)
			}
		}
	}
	if len(r.Rows) != len(o.Cases) {
		t.Errorf("want %d rows, got %d", len(o.Cases), len(r.Rows))
	}
	if r.Verdict != report.Partial || r.ExitCode != report.ExitIncomplete {
		t.Errorf("a run of a part is %s, exit code %d: %s", r.Verdict, r.ExitCode, r.Reason)
	}
}

// TestTheCasesAreThoseThatThereAre: 211 of them, each once, and of those that are
// not run only the ones that say why.
func TestTheCasesAreThoseThatThereAre(t *testing.T) {
	count := map[byte]int{}
	seen := map[string]bool{}
	hosts := map[string]bool{}
	for _, c := range Cases() {
		if !regexp.MustCompile(`^[EPRDA][0-9]{2}$`).MatchString(c.ID) || seen[c.ID] || c.Title == "" || len(c.Facts) == 0 {
			t.Errorf("case %q %q %v: expected an id of its own, a title and a fact", c.ID, c.Title, c.Facts)
		}
		if (c.run != nil) == (c.skip != "") {
			t.Errorf("case %s: expected a function, or a reason why it is never run", c.ID)
		}
		for _, h := range c.hosts {
			if hosts[h] {
				t.Errorf("case %s: %s is another's name too", c.ID, h)
			}
			hosts[h] = true
		}
		seen[c.ID] = true
		count[c.ID[0]]++
	}
	for fact, want := range map[byte]int{'E': 53, 'P': 90, 'R': 13, 'D': 38, 'A': 17} {
		if count[fact] != want {
			t.Errorf("%c: want %d cases, got %d", fact, want, count[fact])
		}
	}
	for _, k := range killers {
		if !seen[k.by] || k.mutant != failsOpen && k.mutant != elsewhere && variants[k.mutant] == nil {
			t.Errorf("mutant %s by %s: there is no such thing", k.mutant, k.by)
		}
	}
}

func TestUnknownCase(t *testing.T) {
	var unknown *UnknownError
	if _, err := Run(t.Context(), Options{Cases: []string{"E99"}}); !errors.As(err, &unknown) {
		t.Errorf("want an UnknownError, got %v", err)
	}
}

// TestVerdicts: what is not run, or could not be judged, is no pass.
func TestVerdicts(t *testing.T) {
	pass := report.Row{ID: "E01/veth/both", Status: report.Pass}
	killed := Mutant{Name: "m", Killed: true}
	for _, c := range []struct {
		name    string
		report  Report
		verdict report.Verdict
		code    int64
	}{
		{"all", Report{Rows: []report.Row{pass}, Mutants: []Mutant{killed}}, report.Conformant, 0},
		{"a failure", Report{Rows: []report.Row{pass, {ID: "E02/veth/both", Status: report.Fail}}, Mutants: []Mutant{killed}}, report.Nonconformant, report.ExitFail},
		{"no control", Report{Rows: []report.Row{pass, {ID: "E02/veth/both", Status: report.Error}, {ID: "E03", Status: report.Fail}}}, report.Failed, report.ExitError},
		{"a live mutant", Report{Rows: []report.Row{pass}, Mutants: []Mutant{killed, {Name: "n"}}}, report.Failed, report.ExitError},
		{"no mutants", Report{Rows: []report.Row{pass}}, report.Partial, report.ExitIncomplete},
		{"not run", Report{Rows: []report.Row{pass, {ID: "A01/veth/both", Status: report.Blocked}}, Mutants: []Mutant{killed}}, report.Partial, report.ExitIncomplete},
		{"filtered", Report{Filters: []string{"E"}, Rows: []report.Row{pass}, Mutants: []Mutant{killed}}, report.Partial, report.ExitIncomplete},
		{"the one skip there is", Report{Rows: []report.Row{pass, {ID: "E52/veth/both", Status: report.Skip}}, Mutants: []Mutant{killed}}, report.Conformant, 0},
		{"another skip", Report{Rows: []report.Row{pass, {ID: "D37/veth/both", Status: report.Skip}}, Mutants: []Mutant{killed}}, report.Partial, report.ExitIncomplete},
		{"nothing", Report{}, report.Partial, report.ExitIncomplete},
	} {
		r := c.report
		for i := range r.Rows {
			r.Rows[i].Suite = report.Egress
		}
		r.settle()
		if r.Verdict != c.verdict || r.ExitCode != c.code || r.Reason == "" {
			t.Errorf("%s: want %s %d, got %s %d %q", c.name, c.verdict, c.code, r.Verdict, r.ExitCode, r.Reason)
		}
		if _, err := r.JSON(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		junit, err := r.JUnit()
		if err != nil || xml.Unmarshal(junit, new(struct{})) != nil {
			t.Errorf("%s: no XML: %v", c.name, err)
		}
		if bytes.Count(junit, []byte("<testcase")) != len(r.Rows)+len(r.Mutants) {
			t.Errorf("%s: want a testcase for each row and mutant, got\n%s", c.name, junit)
		}
		var table bytes.Buffer
		if err := r.Table(&table); err != nil || !strings.Contains(table.String(), string(c.verdict)) {
			t.Errorf("%s: %v, table\n%s", c.name, err, table.String())
		}
	}
}

func FuzzParseHello(f *testing.F) {
	for _, host := range []string{"", "allowed.test"} {
		data, err := sni(host)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[9:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parseHello(data)
		if err != nil {
			return
		}
		// Two bytes of a length, and what is there, as it was.
		if again := h.bytes(1 << 20); !bytes.HasSuffix(again, data[len(h.head)+2:]) {
			t.Errorf("taken apart and put together as something else: %x, %x", data, again)
		}
	})
}
