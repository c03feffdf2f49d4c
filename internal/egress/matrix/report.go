package matrix

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Schema names the form of the JSON.
const Schema = "checkfu.egress-matrix/1"

// Report is what a run says. It is diagnostic: a run that somebody makes of
// their own guard raises no grade.
type Report struct {
	Schema      string            `json:"schema"`
	Verdict     report.Verdict    `json:"verdict"`
	Reason      string            `json:"reason"`
	ExitCode    int64             `json:"exit_code"`
	StartedAt   sandbox.Timestamp `json:"started_at"`
	FinishedAt  sandbox.Timestamp `json:"finished_at"`
	GuardDigest string            `json:"guard_sha256"`
	Rules       map[string]string `json:"ruleset_sha256"`  // of the kernel's gate, by topology
	Topologies  map[string]string `json:"topology_sha256"` // of what each was made of
	Filters     []string          `json:"filters"`         // the cases and configurations that were asked for; none is all
	Rows        []report.Row      `json:"rows"`            // ID is case/topology/configuration
	Mutants     []Mutant          `json:"mutants"`
	Taken       []Taken           `json:"taken"` // during real Runs; the rows are CASE/run/PROVIDER
}

// binds keeps the digest of what a topology was made of, or of the gate's rules. All
// that was run of one topology must have had the same.
func (r *Report) binds(mu *sync.Mutex, what, topology, digest string) error {
	mu.Lock()
	defer mu.Unlock()
	into := r.Topologies
	if what == "rules" {
		into = r.Rules
	}
	switch before := into[topology]; {
	case digest == "":
	case before == "":
		into[topology] = digest
	case before != digest:
		return fmt.Errorf("%s of %s: expected the same in each configuration, got %s and %s", what, topology, before, digest)
	}
	return nil
}

func now() sandbox.Timestamp { return sandbox.At(time.Now()) }

// settle puts the rows into order and says what they come to: of several exit
// codes the worst, as for a conformance run.
func (r *Report) settle() {
	r.FinishedAt = now()
	rank := func(row report.Row) string {
		at := strings.IndexByte("EPRDA", row.ID[0])
		return fmt.Sprintf("%d%s", at, row.ID)
	}
	slices.SortStableFunc(r.Rows, func(a, b report.Row) int { return cmp.Compare(rank(a), rank(b)) })
	slices.SortStableFunc(r.Mutants, func(a, b Mutant) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Topology, b.Topology), cmp.Compare(a.Configuration, b.Configuration))
	})
	set := func(v report.Verdict, code int64, format string, args ...any) {
		r.Verdict, r.ExitCode, r.Reason = v, code, fmt.Sprintf(format, args...)
	}
	alive := slices.DeleteFunc(slices.Clone(r.Mutants), func(m Mutant) bool { return m.Killed })
	first := func(s report.Status) string {
		i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.Status == s })
		return r.Rows[i].ID + ": " + report.Printable(r.Rows[i].Reason)
	}
	// Who makes a receipt of it may leave one case unseen and no other.
	unseen := func(row report.Row) bool {
		return row.Status == report.Skip && strings.HasPrefix(row.ID, evidence.Unseen+"/")
	}
	skipped := slices.DeleteFunc(slices.Clone(r.Rows), func(row report.Row) bool { return row.Status != report.Skip || unseen(row) })
	passed, failed, errored, blocked := report.Count(r.Rows, report.Pass), report.Count(r.Rows, report.Fail),
		report.Count(r.Rows, report.Error), report.Count(r.Rows, report.Blocked)
	switch {
	case errored > 0:
		set(report.Failed, report.ExitError, "%d could not be judged, the first is %s", errored, first(report.Error))
	case failed > 0:
		set(report.Nonconformant, report.ExitFail, "%d of %d failed, the first is %s", failed, failed+passed, first(report.Fail))
	case len(alive) > 0:
		set(report.Failed, report.ExitError, "%d faults were not caught, the first is %s", len(alive), alive[0])
	case blocked > 0:
		set(report.Partial, report.ExitIncomplete, "%d were not run, the first is %s", blocked, first(report.Blocked))
	case len(skipped) > 0:
		set(report.Partial, report.ExitIncomplete, "%d had to be skipped here, the first is %s: %s", len(skipped), skipped[0].ID, report.Printable(skipped[0].Reason))
	case passed == 0:
		set(report.Partial, report.ExitIncomplete, "nothing was run")
	case len(r.Filters) > 0:
		set(report.Partial, report.ExitIncomplete, "%d passed, the others were not asked for", passed)
	case len(r.Mutants) == 0:
		set(report.Partial, report.ExitIncomplete, "%d passed, and nothing shows that a fault would be caught", passed)
	default:
		set(report.Conformant, report.ExitConformant, "%d passed, %d skipped, %d faults caught (%s)",
			passed, report.Count(r.Rows, report.Skip), len(r.Mutants), strings.Join(slices.Sorted(maps.Keys(r.Topologies)), ", "))
	}
}

// JSON is the report as canonical JSON.
func (r *Report) JSON() ([]byte, error) { return canonical.Encode(r) }

// JUnit is the report for a CI system, in the form of a conformance run: a
// testcase for each row and one for each mutant.
func (r *Report) JUnit() ([]byte, error) {
	rows := slices.Clone(r.Rows)
	for _, m := range r.Mutants {
		row := report.Row{ID: "mutant-" + m.Name + "/" + m.Topology + "/" + string(m.Configuration), Suite: report.Egress, Status: report.Pass}
		if !m.Killed {
			row.Status, row.Reason = report.Fail, m.String()
		}
		rows = append(rows, row)
	}
	return report.JUnit(report.Report{
		Verdict: r.Verdict, Reason: r.Reason, ExitCode: r.ExitCode, Class: report.ClassDiagnostic,
		Suite: report.SuiteInfo{BinaryDigest: r.GuardDigest}, Run: report.RunInfo{StartedAt: r.StartedAt, FinishedAt: r.FinishedAt},
		Probes: rows,
	})
}

// Table writes the report for a person: a line for each case, with what is not a
// pass below it.
func (r *Report) Table(w io.Writer) error {
	type line struct {
		id, title string
		statuses  map[report.Status]int
		notes     []string
	}
	var lines []*line
	for _, row := range r.Rows {
		id, place, _ := strings.Cut(row.ID, "/")
		if len(lines) == 0 || lines[len(lines)-1].id != id {
			lines = append(lines, &line{id: id, title: row.Title, statuses: map[report.Status]int{}})
		}
		l := lines[len(lines)-1]
		l.statuses[row.Status]++
		if row.Status != report.Pass {
			note := string(row.Status) + ": " + report.Printable(row.Reason)
			if row.Status == report.Fail || row.Status == report.Error {
				note = place + " " + note
			}
			if !slices.Contains(l.notes, note) {
				l.notes = append(l.notes, note)
			}
		}
	}
	var b strings.Builder
	for _, l := range lines {
		var counts []string
		for _, s := range report.Statuses() {
			if n := l.statuses[s]; n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", n, s))
			}
		}
		fmt.Fprintf(&b, "%-4s %-22s %s\n", l.id, strings.Join(counts, ", "), l.title)
		for _, note := range l.notes {
			fmt.Fprintf(&b, "       %s\n", note)
		}
	}
	r.mutantTable(&b)
	fmt.Fprintf(&b, "%s: %s\n", r.Verdict, report.Printable(r.Reason))
	_, err := io.WriteString(w, b.String())
	return err
}

// mutantTable has a line for each mutant that was caught wherever it was tried, and
// for each place where one was not.
func (r *Report) mutantTable(b *strings.Builder) {
	tried, alive := map[string]int{}, map[string]bool{}
	for _, m := range r.Mutants {
		tried[m.Name]++
		alive[m.Name] = alive[m.Name] || !m.Killed
	}
	for i, m := range r.Mutants {
		first := i == 0 || r.Mutants[i-1].Name != m.Name
		switch {
		case !m.Killed:
			fmt.Fprintf(b, "%s\n", m)
		case first && !alive[m.Name]:
			fmt.Fprintf(b, "%-4s %-22s mutant %s\n", m.Case, fmt.Sprintf("%d killed", tried[m.Name]), m.Name)
		}
	}
}
