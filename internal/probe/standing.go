package probe

import (
	"errors"
	"iter"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// The standing checks: what every answer of every call is held to, in every
// suite. Each is a row of its own.
const (
	standEnvelope   = "envelope.valid"
	standUnchanging = "envelope.unchanging"
	standCeiling    = "envelope.ceiling"
	standMembers    = "envelope.members"
	standProvision  = "identity.provision"
	standActivate   = "identity.activate"
	standResume     = "identity.resume"
	standSnapshot   = "identity.snapshot"
	standClone      = "identity.clone"
	standRelease    = "identity.release"
	standEvidence   = "identity.evidence"
	standHandoff    = "handoff.rollback"
	standErrors     = "errors.closed"
	standPanics     = "errors.no-panic"
	standSettlement = "execute.settlement"
	standReadFile   = "read-file.bound"
	standReadFiles  = "read-files.union"
	standListDir    = "list-dir.form"
	standProject    = "list-project-dir.form"
	standSettled    = "release.disposition"
	standCleanup    = "cleanup.form"
	standExit       = "open-process.exit"
	standAnswers    = "calls.answered"
	standRunner     = "runner.accepts"
)

// Standing describes the standing checks as probes without a Run, in the order
// in which they are reported.
func Standing() []Probe {
	const identity = `contract "Identity is cross-checked, not trusted"`
	const operations = `contract "The operations"`
	const bounds = `contract "Bounds"`
	const openProcess = `contract "openProcess"`
	row := func(id, clause, source, title string) Probe {
		return Probe{ID: id, Suite: report.Standing, Clause: clause, Source: source, Title: title, Level: report.Must}
	}
	return []Probe{
		row(standEnvelope, "CF-EV-01", `concept "The capability envelope"`, "the envelope decodes and keeps its cross-field rules"),
		row(standUnchanging, "CF-EV-02", operations, "the envelope does not change while its revision does not"),
		row(standCeiling, "CF-EV-03", `concept "The enforcement statement"`, "nothing is claimed that only somebody else could grant"),
		row(standMembers, "CF-EV-04", `contract "Optional capabilities: absent versus wrong"`, "every optional member that the envelope claims is there"),
		row(standProvision, "CF-ID-01", identity, "a provisioned instance is what was asked for, in all 21 checks"),
		row(standActivate, "CF-ID-02", identity, "an activated instance is what was asked for, in all 21 checks"),
		row(standResume, "CF-ID-03", identity, "a resumed instance is what was asked for, in all 21 checks"),
		row(standSnapshot, "CF-ID-04", identity, "a snapshot is of what it was taken of and expires as asked"),
		row(standClone, "CF-ID-05", identity, "a clone is bound to its own Session and to nothing of its source"),
		row(standRelease, "CF-ID-06", identity, "a released snapshot is of what was released"),
		row(standEvidence, "CF-ID-07", openProcess, "a process's evidence holds in all 16 clauses"),
		row(standHandoff, "CF-HO-01", `contract "Allocation handoff"`, "every allocation comes with its compensation"),
		row(standErrors, "CF-ER-01", `contract "Errors"`, "every error is one of the closed set and fits its operation"),
		row(standPanics, "CF-ER-02", `contract "Errors"`, "no call takes its caller down"),
		row(standSettlement, "CF-EX-01", operations, "a command has one exit cause, an interval that runs forwards and bounded output"),
		row(standReadFile, "CF-FI-01", bounds, "a file that is read is no longer than was asked for"),
		row(standReadFiles, "CF-FI-02", bounds, "a batch answers every member, in order, within its budget"),
		row(standListDir, "CF-FI-03", bounds, "a listing is bounded, ordered and well formed"),
		row(standProject, "CF-FI-04", operations, "a project listing is complete, bounded, ordered and well formed"),
		row(standSettled, "CF-RE-01", operations, "durable releases a snapshot, zero retention destroys"),
		row(standCleanup, "CF-CL-01", operations, "a cleanup answers two lists of ids"),
		row(standExit, "CF-PR-01", openProcess, "a process ends by an exit code or by a signal"),
		row(standAnswers, "CF-LI-01", `contract "Allocation handoff"`, "every call comes back in its time"),
		row(standRunner, "CF-RU-01", `contract "The operations"`, "the Runner in between accepts what the target answers"),
	}
}

// stand is one standing row on its way.
type stand struct {
	row  report.Row
	seen map[string]bool // check and field, so that each is reported once
}

// held records that a standing check was evaluated, and with it one that
// failed, unless it is switched off.
func (r *run) held(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.standing[id]
	if s.row.Status == report.Skip {
		s.row.Status = report.Pass
	}
}

func (r *run) broke(id, check, field, expected, got string) {
	r.brokeAs(report.Fail, id, check, field, expected, got)
}

func (r *run) brokeAs(status report.Status, id, check, field, expected, got string) {
	if r.o.Disabled[id] || r.o.Disabled[id+"/"+check] {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.standing[id]
	if s.row.Status == report.Skip {
		s.row.Status = report.Pass
	}
	s.row.Status = s.row.Status.Worse(status)
	if key := check + "\x00" + field; !s.seen[key] && len(s.seen) < 64 {
		s.seen[key] = true
		s.row.Checks = append(s.row.Checks, report.Check{ID: check, Status: status, Times: 1})
		s.row.Findings = append(s.row.Findings, report.Finding{Check: check, Status: status, Field: report.Printable(field),
			Expected: report.Printable(expected), Got: report.Printable(got), Hint: hint(id, check)})
	}
}

// block records that a standing check could not be brought to its end.
func (r *run) block(id, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := &r.standing[id].row
	if worse := row.Status.Worse(report.Blocked); worse != row.Status {
		row.Status, row.Reason = worse, reason
	}
}

// differ records every difference of one answer.
func (r *run) differ(id, prefix string, differences iter.Seq[crosscheck.Difference]) {
	r.held(id)
	for d := range differences {
		r.broke(id, d.Check, prefix+d.Field, d.Expected, d.Got)
	}
}

// valid records whether an answer has its form.
func (r *run) valid(id string, err error) {
	r.held(id)
	if err == nil {
		return
	}
	if e, ok := errors.AsType[*sandbox.Invalid](err); ok {
		r.broke(id, "form", e.Field, e.Expected, e.Got)
		return
	}
	r.broke(id, "form", "", "a well-formed answer", text(err))
}

// judge holds an error of op to the closed set. interrupted says that the
// caller's own context was done.
func (r *run) judge(op sandbox.Operation, err error, interrupted bool) {
	r.held(standErrors)
	r.held(standPanics)
	r.held(standAnswers)
	if err == nil {
		return
	}
	if p, ok := errors.AsType[*panicked](err); ok {
		r.broke(standPanics, string(op), string(op), "an answer or an error", p.Error())
		return
	}
	if Hung(err) {
		r.brokeAs(report.Error, standAnswers, string(op), string(op), "an answer", err.Error())
		return
	}
	if e, ok := err.(*sandboxruntime.Error); ok && r.target.ThroughRunner {
		r.held(standRunner)
		r.broke(standRunner, string(e.Operation), e.Field, e.Expected, e.Got)
		return
	}
	if e, ok := err.(*sandbox.Error); ok && e != nil {
		if why := crosscheck.Misfit(op, e); why != "" {
			r.broke(standErrors, "fits", string(op), "an error that can be an answer of "+string(op), why+": "+text(e))
		}
		return
	}
	// Errors of a Runner in between can be joined with those of a compensation.
	if r.target.ThroughRunner && errors.As(err, new(*sandboxruntime.Error)) {
		r.broke(standRunner, string(op), string(op), "an answer that the Runner accepts", text(err))
		return
	}
	if interrupted {
		return
	}
	r.broke(standErrors, "kind", string(op), "one of the eight errors", text(err))
}
