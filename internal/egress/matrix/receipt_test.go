package matrix

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/sandbox"
)

const shipped = "native:runsc"

// whole is the report of a run in which all went well, of one topology, as the
// command makes it.
func whole() *Report {
	digest := canonical.Digest(nil)
	r := &Report{
		StartedAt: now(), GuardDigest: digest, Rules: map[string]string{string(SealedTopology): digest}, Topologies: map[string]string{string(SealedTopology): digest},
		Taken: []Taken{{
			Provider: shipped, GuardConfigDigest: digest, ECH: "deny", Run: RunRecord{RunID: "run_1", LeaseID: "lea_1", LeaseEpoch: 1},
			Target: sandbox.Target{Provider: "native", ProviderRevision: "native-runsc/1", MaterializationRevision: "native-overlay/1"},
		}},
	}
	for _, c := range Cases() {
		for _, k := range Configurations() {
			row := report.Row{ID: c.ID + "/" + string(SealedTopology) + "/" + string(k), Suite: report.Egress, Status: report.Pass}
			if c.skip != "" {
				row.Status, row.Reason = report.Skip, c.skip
			}
			r.Rows = append(r.Rows, row)
		}
	}
	for _, c := range inRun {
		r.Rows = append(r.Rows, report.Row{ID: inRunRow(c.id, shipped), Suite: report.Egress, Status: report.Pass})
	}
	for _, k := range killers {
		for _, in := range k.in {
			r.Mutants = append(r.Mutants, Mutant{Name: k.mutant, Topology: string(SealedTopology), Configuration: in, Case: k.by, Killed: true})
		}
	}
	r.settle()
	return r
}

func (r *Report) at(id string) *report.Row {
	return &r.Rows[slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.ID == id })]
}

func (r *Report) mutant(name string) *Mutant {
	return &r.Mutants[slices.IndexFunc(r.Mutants, func(m Mutant) bool { return m.Name == name })]
}

// TestReceipt: a run in which all five facts held makes a receipt that stands by
// itself, and one that lacks anything says which facts it did not show.
func TestReceipt(t *testing.T) {
	r := whole()
	if r.Verdict != report.Conformant {
		t.Fatal(r.Reason)
	}
	receipt, err := r.Receipt(shipped, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.Encode(receipt); err != nil {
		t.Error(err)
	}
	if receipt.Topology != evidence.TopologySocketFile || receipt.RunID != "run_1" || len(receipt.Cases) != 211 || len(receipt.Mutants) != len(r.Mutants) {
		t.Errorf("%+v", receipt)
	}
	const e, p, rd, a, d = evidence.ExactDestinationMatch, evidence.ConnectTimePublicAddress, evidence.RedirectRecheck, evidence.AuthoritySeparation, evidence.DefaultDeny
	fails := func(id string, s report.Status) func(*Report) { return func(r *Report) { r.at(id).Status = s } }
	for name, c := range map[string]struct {
		change func(*Report)
		lacks  []evidence.Fact
	}{
		"a case fails":               {fails("E04/socket-file/guard", report.Fail), []evidence.Fact{e}},
		"a case could not be judged": {fails("P68/socket-file/both", report.Error), []evidence.Fact{p}},
		"a case is skipped":          {fails("D37/socket-file/kernel", report.Skip), []evidence.Fact{d}},
		"a case was cut off":         {fails("R08/socket-file/both", report.Blocked), []evidence.Fact{rd}},
		"a case of two facts":        {fails("R12/socket-file/both", report.Fail), []evidence.Fact{p, rd}},
		"no real machine":            {fails("A15/socket-file/guard", report.Skip), []evidence.Fact{a}},
		"the token in a real Run":    {fails("A01/run/native:runsc", report.Fail), []evidence.Fact{a}},
		"the scan finds nothing":     {fails("A17/run/native:runsc", report.Fail), []evidence.Fact{a}},
		"the Run did not end":        {func(r *Report) { r.Taken = nil }, []evidence.Fact{a}},
		"a Run of another provider":  {func(r *Report) { r.Taken[0].Provider = "native:runc" }, []evidence.Fact{a}},
		"a configuration was not run": {func(r *Report) {
			r.Rows = slices.DeleteFunc(r.Rows, func(row report.Row) bool { return strings.HasSuffix(row.ID, "/kernel") })
		}, evidence.Facts()},
		"another topology fails": {func(r *Report) { r.Rows = append(r.Rows, report.Row{ID: "E04/veth/guard", Status: report.Fail}) }, []evidence.Fact{e}},
		"the lab is not what it was": {func(r *Report) {
			r.Rows = append(r.Rows, report.Row{ID: "live-10.0.0.1:443/socket-file/guard", Status: report.Error})
		}, evidence.Facts()},
		"a mutant lives":         {func(r *Report) { r.mutant("no-classifier").Killed = false }, []evidence.Fact{p}},
		"a mutant was not tried": {func(r *Report) { r.mutant(elsewhere).Name = "" }, []evidence.Fact{a}},
		"a mutant of one configuration": {func(r *Report) {
			r.Mutants = slices.DeleteFunc(r.Mutants, func(m Mutant) bool { return m.Name == "suffix-match" && m.Configuration == Both })
		}, []evidence.Fact{e}},
		"no mutants":                     {func(r *Report) { r.Mutants = nil }, evidence.Facts()},
		"a mutant of another topology":   {func(r *Report) { r.mutant("peer-unchecked").Topology = "veth" }, []evidence.Fact{p}},
		"the one case that may, may not": {fails("E52/socket-file/both", report.Fail), []evidence.Fact{e}},
	} {
		r := whole()
		c.change(r)
		_, err := r.Receipt(shipped, time.Now())
		unproven, ok := errors.AsType[*UnprovenError](err)
		if !ok {
			t.Errorf("%s: expected no receipt, got %v", name, err)
			continue
		}
		var got []evidence.Fact
		for _, m := range unproven.Missing {
			got = append(got, m.Fact)
			if m.Reason == "" || !strings.Contains(err.Error(), string(m.Fact)) || !strings.Contains(err.Error(), "not shown: ") {
				t.Errorf("%s: no reason for %s in %q", name, m.Fact, err)
			}
		}
		if !slices.Equal(got, c.lacks) {
			t.Errorf("%s: expected to lack %v, got %v", name, c.lacks, err)
		}
	}
}

func TestCasesOfAReceipt(t *testing.T) {
	r := Report{Rows: []report.Row{
		{ID: "E01/veth/guard", Status: report.Pass}, {ID: "E01/veth/kernel", Status: report.Fail}, {ID: "E01/veth/both", Status: report.Error},
		{ID: "E52/veth/both", Status: report.Skip, Reason: "unseen"}, {ID: "E02/socket-file/both", Status: report.Pass},
	}}
	cases := r.Cases(lab.Veth)
	want := map[string]evidence.Case{
		"E01": {ID: "E01", GuardOnly: evidence.Pass, KernelOnly: evidence.Fail, Both: "error"},
		"E02": {ID: "E02"}, // of another topology
		"E52": {ID: "E52", Both: evidence.Skip, Reason: "unseen"},
	}
	seen := 0
	for _, c := range cases {
		if w, asked := want[c.ID]; asked {
			seen++
			if c != w {
				t.Errorf("want %+v, got %+v", w, c)
			}
		}
	}
	if seen != len(want) || len(cases) != len(Cases()) {
		t.Errorf("want all %d cases, got %d", len(Cases()), len(cases))
	}
}
