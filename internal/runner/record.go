package runner

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// RecordSchema names the form of Record.
const RecordSchema = "checkfu.run-record.v1"

// Cause says how the command of a Run ended.
type Cause string

// The causes. A Record without one belongs to a Run whose command never ran or
// whose exit is not known.
const (
	CauseExited       Cause = "exited"        // Exit says how
	CauseTimedOut     Cause = "timed_out"     // killed at the Spec's Timeout
	CauseInterrupted  Cause = "interrupted"   // ended because of Stop
	CauseOutputClosed Cause = "output_closed" // killed because nobody reads its output any more
	CauseNotFound     Cause = "not_found"     // never started: no such program
	CauseNotStarted   Cause = "not_started"   // never started: there, but not executable
)

// Record is everything that is known of one Run. It holds the names of the
// environment and no value of it.
type Record struct {
	Schema      string               `json:"schema"`
	Versions    map[string]string    `json:"versions"`
	RunID       string               `json:"run_id"`
	SessionID   string               `json:"session_id"`
	AttemptID   string               `json:"attempt_id"`
	LeaseID     string               `json:"lease_id"`
	InstanceID  string               `json:"instance_id,omitzero"`
	StartedAt   sandbox.Timestamp    `json:"started_at"`
	FinishedAt  sandbox.Timestamp    `json:"finished_at"`
	Envelope    sandbox.Capabilities `json:"envelope,omitzero"` // as admitted
	Narrowings  []grade.Narrowing    `json:"narrowings"`        // claims that were not admitted as they were made
	Enforcement []Enforced           `json:"enforcement"`
	Profile     sandbox.Profile      `json:"profile"`
	Platform    sandbox.Platform     `json:"platform"`
	RootImage   string               `json:"root_image"`
	ImageDigest sandbox.Digest       `json:"image_digest"`
	ExpiresAt   sandbox.Timestamp    `json:"expires_at,omitzero"`
	// MachineMemoryBytes is the memory that one machine can cost the host: zero
	// retention keeps its writable storage there.
	MachineMemoryBytes int64               `json:"machine_memory_bytes"`
	Mounts             []Mount             `json:"mounts"`
	Command            Command             `json:"command"`
	Evidence           *sandbox.Evidence   `json:"evidence,omitzero"`
	Cause              Cause               `json:"cause,omitzero"`
	Exit               sandbox.Exit        `json:"exit,omitzero"`
	StopSignal         string              `json:"stop_signal,omitzero"`
	Phases             []Timing            `json:"phases"`
	Outputs            []Output            `json:"outputs"`
	Egress             *Egress             `json:"egress,omitzero"`
	Model              *Model              `json:"model,omitzero"`
	Disposition        sandbox.Disposition `json:"disposition,omitzero"`
	// Snapshot is what was kept of the machine, where that was asked for.
	Snapshot *sandbox.Snapshot `json:"snapshot,omitzero"`
	Failures []Failure         `json:"failures"`
}

// Enforced is one axis and who realizes it.
type Enforced struct {
	Axis      sandbox.Axis      `json:"axis"`
	Authority sandbox.Authority `json:"authority"`
}

// Mount is one mount, what was staged into it, and what became of it.
type Mount struct {
	MountPath string            `json:"mount_path"`
	Access    sandbox.Access    `json:"access"`
	Kind      sandbox.MountKind `json:"kind"`
	Commit    string            `json:"commit,omitzero"`
	Dirty     bool              `json:"dirty,omitzero"`
	// TreeDigest is of the names, modes and digests of all that was staged.
	TreeDigest sandbox.Digest   `json:"tree_digest,omitzero"`
	Files      int64            `json:"files"`
	Links      int64            `json:"links"`
	Bytes      int64            `json:"bytes"`
	SkipCount  map[string]int64 `json:"skip_count"` // by reason; all of them
	Skips      []Named          `json:"skips"`      // by name, with the reason
	Summary    string           `json:"summary"`
	Collected  bool             `json:"collected"` // Changes is what became of it
	Changes    []Named          `json:"changes"`   // Why: added, modified, mode, deleted, link
	Uncarried  []Named          `json:"uncarried"` // changes that no patch holds, and why
	Lines      Lines            `json:"lines,omitzero"`
	PatchSize  int64            `json:"patch_bytes,omitzero"`
}

// Lines counts the lines of a patch.
type Lines struct {
	Added   int64 `json:"added"`
	Deleted int64 `json:"deleted"`
}

// Named is one path and what is to be said of it. Names are bytes on disk and
// text here: where a name is not UTF-8, Path is a readable form of it and
// PathHex the name itself.
type Named struct {
	Path    string `json:"path"`
	PathHex string `json:"path_hex,omitzero"`
	Why     string `json:"why"`
}

// Command is the command without any value of its environment.
type Command struct {
	Arguments        []string `json:"argv"`              // text, as Named.Path
	ArgumentsHex     []string `json:"argv_hex,omitzero"` // all of them, where one is not UTF-8
	WorkingDirectory string   `json:"cwd"`
	EnvironmentKeys  []string `json:"env_keys"`
	TimeoutMillis    int64    `json:"timeout_ms"`
}

// Timing is how long one phase took.
type Timing struct {
	Phase  Phase `json:"phase"`
	Millis int64 `json:"ms"`
}

// Output is one leaf of the output tree. Refused says why a leaf is not in the
// output directory; a regular file without it is there.
type Output struct {
	Path    string           `json:"path"`
	PathHex string           `json:"path_hex,omitzero"`
	Type    sandbox.LeafType `json:"type"`
	Size    int64            `json:"size"`
	Digest  sandbox.Digest   `json:"digest,omitzero"`
	Refused string           `json:"refused,omitzero"`
}

// Failure is one thing that went wrong, in one line.
type Failure struct {
	Phase   Phase  `json:"phase"`
	Message string `json:"message"`
}

// Encode gives the canonical JSON of the record.
func (r *Record) Encode() ([]byte, error) { return canonical.Encode(*r) }

// Fail adds a failure, cut to a length that a person reads.
func (r *Record) fail(phase Phase, err error) {
	message := text(err.Error())
	if len(message) > 4096 {
		message = text(message[:4096])
	}
	r.Failures = append(r.Failures, Failure{phase, message})
}

// Name is path, as bytes on disk, with what is to be said of it.
func Name(path, why string) Named { return Named{text(path), asHex(path), why} }

// text is s with what is not UTF-8 replaced, for people.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// asHex is "" for UTF-8, which needs no other form.
func asHex(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return hex.EncodeToString([]byte(s))
}
