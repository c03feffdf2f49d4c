// Package report is what a conformance run says: statuses, rows, findings, the
// verdict, the exit code, and the files that hold them.
//
// Trusts: the engine that fills it in. Not trusted: text that came from a
// provider or a workload, which is bounded and escaped wherever it is printed.
// Class: evidence of a run that somebody made of their own provider is
// diagnostic and raises no grade.
// Concurrency: values are plain data; nothing here is shared.
// Source: contract "Conformance"; grading "The grading rule".
package report

import "github.com/checkfu/checkfu/sandbox"

// Schema names the form of evidence.json.
const Schema = "checkfu.sandbox-conformance/1"

// ClassDiagnostic is the only class that a self-run has.
const ClassDiagnostic = "diagnostic"

// Status is how one case or probe ended.
type Status string

// The seven statuses. Overclaim is a failure: advertised and not served. A
// skip is for a token that the envelope does not give; a withheld one is given
// by the envelope and hidden by the target. Error means that the suite could
// not judge: a control did not fire, the target hung, the engine failed.
const (
	Pass      Status = "pass"
	Fail      Status = "fail"
	Overclaim Status = "overclaim"
	Skip      Status = "skip"
	Withheld  Status = "withheld"
	Blocked   Status = "blocked"
	Error     Status = "error"
)

// Statuses returns the seven, from best to worst.
func Statuses() []Status {
	return []Status{Pass, Skip, Withheld, Blocked, Fail, Overclaim, Error}
}

// Worse returns the worse of two, so that passes over one probe can be merged.
func (s Status) Worse(t Status) Status {
	for _, each := range Statuses() {
		if s == each {
			return t
		}
		if t == each {
			return s
		}
	}
	return Error
}

// Token is a capability that a case needs.
// Source: contract "Conformance".
type Token string

// The seven tokens of the nine cases, and after them what only the deeper
// suites ask for: the optional members and two envelope fields.
const (
	Filesystem       Token = "filesystem"
	Process          Token = "process"
	SnapshotToken    Token = "snapshot"
	NetworkAllowlist Token = "network-allowlist"
	NetworkNone      Token = "network-none"
	ZDR              Token = "zdr"
	Cleanup          Token = "cleanup"

	Mounts         Token = "mounts"
	Durable        Token = "durable"
	SnapshotClone  Token = "snapshot-clone"
	ReadFiles      Token = "read-files"
	ListDir        Token = "list-dir"
	ListProjectDir Token = "list-project-dir"
	OpenProcess    Token = "open-process"
	ActiveWrite    Token = "active-write"
)

// CaseTokens returns the seven tokens of the nine cases.
func CaseTokens() []Token {
	return []Token{Filesystem, Process, SnapshotToken, NetworkAllowlist, NetworkNone, ZDR, Cleanup}
}

// Suite is a group of probes that can be asked for by name.
type Suite string

// The suites. Standing holds what is checked of every answer in every run.
const (
	Standing Suite = "standing"
	Nine     Suite = "nine"
	Contract Suite = "contract"
	Faults   Suite = "faults"
	Live     Suite = "process"
	Files    Suite = "files"
	Wire     Suite = "wire"
	Egress   Suite = "egress"
)

// Suites returns the suites that can be asked for.
func Suites() []Suite { return []Suite{Nine, Contract, Faults, Live, Files, Wire, Egress} }

// Level says how binding a clause is.
type Level string

// The two levels. What may be broken is not checked.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
)

// Verdict is the whole run in one word.
type Verdict string

// The four verdicts.
const (
	Conformant    Verdict = "conformant"
	Partial       Verdict = "partial"
	Nonconformant Verdict = "nonconformant"
	Failed        Verdict = "error"
)

// Report is one run. Its canonical JSON is evidence.json.
type Report struct {
	Schema           string      `json:"schema"`
	Class            string      `json:"class"`
	Verdict          Verdict     `json:"verdict"`
	Reason           string      `json:"reason"`    // why this verdict, one sentence
	ExitCode         int64       `json:"exit_code"` // what the process ends with, the ratchet applied
	Subject          Subject     `json:"subject"`
	Suite            SuiteInfo   `json:"suite"`
	Run              RunInfo     `json:"run"`
	Tokens           Tokens      `json:"tokens"`
	Ceiling          []Narrowing `json:"ceiling"`  // claims that count for less than was claimed
	Cases            []Row       `json:"cases"`    // the nine, always, in the contract's order
	Probes           []Row       `json:"probes"`   // of the deeper suites that ran
	Standing         []Row       `json:"standing"` // what was checked of every answer
	Stale            []Stale     `json:"stale"`    // entries of the ratchet that must leave it
	Leaks            Leaks       `json:"leaks"`
	Limits           []string    `json:"limits"` // what this run cannot show, in words
	GradeEffect      string      `json:"grade_effect"`
	TranscriptDigest string      `json:"transcript_sha256"` // head of the chain, "" without a transcript
	ContentDigest    string      `json:"content_sha256"`    // of the same JSON with "" here; Encode sets it, Decode checks it
}

// Subject is what was tested.
type Subject struct {
	Target                  string            `json:"target"` // as it was named
	Provider                string            `json:"provider"`
	ProviderRevision        string            `json:"provider_revision"`
	MaterializationRevision string            `json:"materialization_revision"`
	Placement               sandbox.Placement `json:"placement"`
	EnvelopeDigest          string            `json:"envelope_sha256"` // of the envelope's canonical JSON, "" if there is none
	Remote                  bool              `json:"remote"`
}

// SuiteInfo is what tested it.
type SuiteInfo struct {
	Revision     string   `json:"revision"`
	CasesDigest  string   `json:"cases_sha256"`
	BinaryDigest string   `json:"binary_sha256,omitzero"`
	Mutation     Mutation `json:"mutation"`
}

// Mutation says how many wrong providers this suite is known to catch.
type Mutation struct {
	Killed       int64  `json:"killed"`
	Total        int64  `json:"total"`
	MatrixDigest string `json:"matrix_sha256"`
}

// RunInfo is how it was tested.
type RunInfo struct {
	Nonce        string            `json:"nonce"`
	Seed         string            `json:"seed"`
	StartedAt    sandbox.Timestamp `json:"started_at"`
	FinishedAt   sandbox.Timestamp `json:"finished_at"`
	Milliseconds int64             `json:"ms"`
	Suites       []Suite           `json:"suites"`
	Filters      []string          `json:"filters"` // what --run left, empty for all
	Passes       int64             `json:"passes"`
}

// Tokens are what the envelope gives, what the target declares, and the
// difference.
type Tokens struct {
	Derived  []Token `json:"derived"`
	Declared []Token `json:"declared"`
	Withheld []Token `json:"withheld"`
}

// Narrowing is a claim that was not admitted as made.
type Narrowing struct {
	Path     string `json:"path"`
	Claimed  string `json:"claimed"`
	Admitted string `json:"admitted"`
}

// Row is one case, one probe, or one standing check.
type Row struct {
	ID           string    `json:"id"`
	Suite        Suite     `json:"suite"`
	Title        string    `json:"title"`
	Requires     []Token   `json:"requires"`
	Status       Status    `json:"status"`
	Reason       string    `json:"reason,omitzero"` // why it was skipped, withheld, blocked or not judged
	Source       string    `json:"source"`          // document and heading
	Clause       string    `json:"clause"`
	Level        Level     `json:"level"`
	Controls     []Control `json:"controls"`
	Checks       []Check   `json:"checks"` // the halves of the case, in the order in which they were reached
	Findings     []Finding `json:"findings"`
	Observations []string  `json:"observations"`
	Expected     bool      `json:"expected_failure,omitzero"` // listed in the ratchet
	Milliseconds int64     `json:"ms"`
	Transcript   []int64   `json:"transcript"` // first and last line, or empty
}

// Control is a live positive control of a negative check.
type Control struct {
	ID    string `json:"id"`
	Fired bool   `json:"fired"`
}

// Check is one assertion of a row and how often it held.
type Check struct {
	ID     string `json:"id"`
	Status Status `json:"status"` // pass, fail, overclaim or error
	Times  int64  `json:"times"`
}

// Finding is one thing that was not as it should be.
type Finding struct {
	Check    string `json:"check"`
	Status   Status `json:"status"` // fail, overclaim or error
	Field    string `json:"field,omitzero"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	Hint     string `json:"hint,omitzero"`
}

// Stale is an entry of the list of expected failures that no longer tells the
// truth.
type Stale struct {
	ID      string `json:"id"`
	Link    string `json:"link"`
	Expires string `json:"expires"` // YYYY-MM-DD, the last day on which it counts
	Line    int64  `json:"line"`    // of the list, from 1
	Reason  string `json:"reason"`
}

// Leaks are what the run left behind or could not give back.
type Leaks struct {
	Allocated   int64    `json:"allocated"`
	Destroyed   int64    `json:"destroyed"`
	Undestroyed []string `json:"undestroyed"`  // ids of this run whose teardown failed
	Unknown     []string `json:"unknown"`      // ids that cleanup returned and this run never saw
	SecondSweep []string `json:"second_sweep"` // ids of this run that cleanup found after their teardown
	Census      []string `json:"census"`       // what the native census has more of than before
}

// None reports whether nothing leaked. Unknown ids can belong to somebody else
// on a shared provider and count only together with a census.
func (l Leaks) None() bool {
	return len(l.Undestroyed) == 0 && len(l.SecondSweep) == 0 && len(l.Census) == 0
}
