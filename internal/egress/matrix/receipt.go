package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// SealedTopology is the one whose receipts can be about a provider: its machines
// are joined to their guards so, and the real Runs were made of them.
const SealedTopology = lab.SocketFile

// configurations are the words of a receipt, and ours.
var configurations = map[evidence.Configuration]Configuration{
	evidence.GuardOnly: GuardOnly, evidence.KernelOnly: KernelOnly, evidence.Both: Both,
}

// topologies likewise.
var topologies = map[lab.Topology]evidence.Topology{
	lab.SocketFile: evidence.TopologySocketFile, lab.InsideListener: evidence.TopologyInsideListener, lab.Veth: evidence.TopologyVeth,
}

// factOf are the facts of a receipt, by letter.
var factOf = map[Fact]evidence.Fact{
	Exact: evidence.ExactDestinationMatch, Address: evidence.ConnectTimePublicAddress, Redirect: evidence.RedirectRecheck,
	Authority: evidence.AuthoritySeparation, Default: evidence.DefaultDeny,
}

// Missing is a fact that a run did not show, and the first reason.
type Missing struct {
	Fact   evidence.Fact
	Reason string
}

// UnprovenError is a run over which no receipt can be sealed.
type UnprovenError struct{ Missing []Missing }

// Error is one line: what was not shown, and why.
func (e *UnprovenError) Error() string {
	var reasons, words []string
	facts := map[string][]string{} // by reason
	for _, m := range e.Missing {
		if facts[m.Reason] == nil {
			reasons = append(reasons, m.Reason)
		}
		facts[m.Reason] = append(facts[m.Reason], string(m.Fact))
	}
	for _, reason := range reasons {
		words = append(words, strings.Join(facts[reason], ", ")+" not shown: "+report.Printable(reason))
	}
	return "no receipt: " + strings.Join(words, "; ")
}

// Receipt is what a run proved about one provider, by its name. It is made where
// all five facts hold in this very run, of all that was run: every case passed in
// each configuration but the one that nobody can see, every fault was caught where
// it applies, and the authority cases passed during a real Run of this provider.
//
// Errors: *UnprovenError, with the facts that are missing; of package evidence.
// Source: grading "The five facts, and the three that cannot be self-attested".
func (r *Report) Receipt(provider string, now time.Time) (evidence.Receipt, error) {
	missing := r.missing(provider)
	if len(missing) > 0 {
		return evidence.Receipt{}, &UnprovenError{missing}
	}
	taken := r.Taken[slices.IndexFunc(r.Taken, func(t Taken) bool { return t.Provider == provider })]
	receipt := evidence.Receipt{
		Schema: evidence.EgressConformance, Facts: evidence.Facts(),
		Provider: taken.Target.Provider, ProviderRevision: taken.Target.ProviderRevision, MaterializationRevision: taken.Target.MaterializationRevision,
		Topology: topologies[SealedTopology], TopologyDigest: sandbox.Digest(r.Topologies[string(SealedTopology)]),
		GuardDigest: sandbox.Digest(r.GuardDigest), GuardConfigDigest: sandbox.Digest(taken.GuardConfigDigest),
		RulesetDigest: sandbox.Digest(r.Rules[string(SealedTopology)]), ECH: evidence.ECHDeny,
		Cases: r.Cases(SealedTopology), Mutants: r.killedOn(SealedTopology),
		RunID: taken.Run.RunID, LeaseID: taken.Run.LeaseID, LeaseEpoch: taken.Run.LeaseEpoch,
		StartedAt: r.StartedAt, IssuedAt: sandbox.At(now), ExpiresAt: sandbox.At(now.AddDate(0, 0, evidence.MaxValidDays)),
	}
	if taken.ECH == guard.ECHAllow {
		receipt.ECH = evidence.ECHLax
	}
	return receipt, receipt.Validate()
}

// missing are the facts that the run did not show, in the order of a receipt.
func (r *Report) missing(provider string) []Missing {
	first := map[evidence.Fact]string{}
	lacks := func(facts []Fact, format string, args ...any) {
		for _, f := range facts {
			if first[factOf[f]] == "" {
				first[factOf[f]] = fmt.Sprintf(format, args...)
			}
		}
	}
	cases := map[string]Case{}
	for _, c := range Cases() {
		cases[c.ID] = c
	}
	everything := []Fact{Exact, Address, Redirect, Authority, Default}
	rows := map[string]report.Row{}
	for _, row := range r.Rows {
		rows[row.ID] = row
		id, _, _ := strings.Cut(row.ID, "/")
		c, known := cases[id]
		switch {
		case row.Status == report.Pass, row.Status == report.Skip && id == evidence.Unseen:
		case known:
			lacks(c.Facts, "%s: %s: %s", row.ID, row.Status, row.Reason)
		default: // of the lab itself: then nothing that it saw counts
			lacks(everything, "%s: %s: %s", row.ID, row.Status, row.Reason)
		}
	}
	for _, c := range Cases() {
		for _, k := range Configurations() {
			if id := c.ID + "/" + string(SealedTopology) + "/" + string(k); rows[id].ID == "" {
				lacks(c.Facts, "%s was not run", id)
			}
		}
	}
	for _, c := range inRun {
		if id := inRunRow(c.id, provider); rows[id].ID == "" {
			lacks([]Fact{Authority}, "%s was not run", id)
		}
	}
	if !slices.ContainsFunc(r.Taken, func(t Taken) bool { return t.Provider == provider }) {
		lacks([]Fact{Authority}, "no real Run of %s ended as it should", provider)
	}
	for _, m := range r.Mutants {
		if !m.Killed {
			lacks(cases[m.Case].Facts, "%s", m)
		}
	}
	for _, k := range killers {
		for _, in := range k.in {
			if !slices.ContainsFunc(r.Mutants, func(m Mutant) bool {
				return m.Name == k.mutant && m.Topology == string(SealedTopology) && m.Configuration == in
			}) {
				lacks(cases[k.by].Facts, "mutant %s was not tried (%s)", k.mutant, in)
			}
		}
	}
	var out []Missing
	for _, f := range evidence.Facts() {
		if first[f] != "" {
			out = append(out, Missing{f, first[f]})
		}
	}
	return out
}

// killedOn are the mutants of a receipt, in its order.
func (r *Report) killedOn(topology lab.Topology) []evidence.Mutant {
	var out []evidence.Mutant
	for _, m := range r.Mutants {
		for word, ours := range configurations {
			if m.Topology == string(topology) && m.Configuration == ours {
				out = append(out, evidence.Mutant{Name: m.Name, Configuration: word, KilledBy: m.Case})
			}
		}
	}
	slices.SortFunc(out, func(a, b evidence.Mutant) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Configuration, b.Configuration))
	})
	return out
}

// Cases are the cases of a receipt, as a run judged them on one topology. What
// was not judged is neither a pass nor a skip, so nothing can be sealed over it.
// Source: grading "What a signature proves".
func (r *Report) Cases(topology lab.Topology) []evidence.Case {
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
