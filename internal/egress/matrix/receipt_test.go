package matrix

import (
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/egress/lab"
)

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
