package matrix

import (
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/egress/lab"
)

// Cases are the cases of a receipt, as a run judged them on one topology. What
// was not judged is neither a pass nor a skip, so nothing can be sealed over it.
// Source: grading "What a signature proves".
func (r *Report) Cases(topology lab.Topology) []evidence.Case {
	configurations := map[evidence.Configuration]Configuration{
		evidence.GuardOnly: GuardOnly, evidence.KernelOnly: KernelOnly, evidence.Both: Both,
	}
	rows := map[string]report.Row{}
	for _, row := range r.Rows {
		rows[row.ID] = row
	}
	return evidence.Tally(func(id string, k evidence.Configuration) (evidence.Outcome, string) {
		row := rows[id+"/"+string(topology)+"/"+string(configurations[k])]
		switch row.Status {
		case report.Pass:
			return evidence.Pass, ""
		case report.Skip:
			return evidence.Skip, row.Reason
		case report.Fail:
			return evidence.Fail, ""
		}
		return evidence.Outcome(row.Status), ""
	})
}
