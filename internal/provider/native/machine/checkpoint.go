package machine

import (
	"context"
	"fmt"
)

// Checkpointer is a Machine that can be written down with its memory and processes.
// A driver without it keeps files only.
// Source: design 3, point 10 ("Memory").
type Checkpointer interface {
	// Checkpoint writes what is in a machine, which the caller has paused and keeps
	// paused, into dir: an empty directory of the host's, mode 0700. Together with the
	// files of its binds, unchanged from the pause on, it is one moment. The machine
	// stays as it is, paused, whatever the outcome.
	// Errors: *CheckpointError where something in the machine cannot be written down;
	// host errors, a full disk among them; ctx's. What is in dir then is worth nothing,
	// and the caller removes it.
	Checkpoint(ctx context.Context, dir string) error
}

// Restorer is a Driver whose machines are Checkpointers where Spec.Live is set.
type Restorer interface {
	// Identity says what a checkpoint made here is bound to.
	Identity() (Identity, error)
	// Restore makes a machine out of a checkpoint, as Start makes one: the Spec has the
	// same binds in the same order (their sources may be others with the same content),
	// forwards and Live. Its processes go on when it returns.
	//
	// dir is data for the runtime's parser. Who calls vouches that it comes from
	// Checkpoint of a driver of the same Identity and has not changed.
	// Errors: those of Start. On error nothing of it is left.
	Restore(ctx context.Context, s Spec, dir string) (Machine, error)
}

// Identity is what a checkpoint is bound to: it is only restored where every field is
// the same.
type Identity struct {
	Runtime  string `json:"runtime"`  // the runtime and its version
	Build    string `json:"build"`    // of the binary that the machine ran from
	Platform string `json:"platform"` // how the runtime runs programs, and the architecture
	CPU      string `json:"cpu"`      // a digest of the processor's features
}

// Differ says in which field of two the first difference is, "" for none.
func (i Identity) Differ(other Identity) (field, mine, theirs string) {
	for _, f := range []struct{ name, mine, theirs string }{
		{"runtime", i.Runtime, other.Runtime},
		{"build", i.Build, other.Build},
		{"platform", i.Platform, other.Platform},
		{"cpu", i.CPU, other.CPU},
	} {
		if f.mine != f.theirs {
			return f.name, f.mine, f.theirs
		}
	}
	return "", "", ""
}

// Cause is what keeps a machine from being written down.
type Cause string

// The causes.
const (
	CauseNotLive Cause = "not_live" // it was not started for it
	CauseCommand Cause = "command"  // a command of the host runs: its streams are the host's
	CauseNetwork Cause = "network"  // it has a network of the host's
	CauseState   Cause = "state"    // the runtime cannot write something in it down
	CauseDisk    Cause = "disk"     // the host's disk may have no room for its memory
)

// CheckpointError says why a machine was not written down. It runs on as before.
type CheckpointError struct {
	Cause Cause
	Err   error // what the runtime said, or nil
}

func (e *CheckpointError) Error() string {
	text := map[Cause]string{
		CauseNotLive: "it was not started as one that can be",
		CauseCommand: "a command runs in it whose streams are the host's",
		CauseNetwork: "it has a network of the host's",
		CauseState:   "the runtime refuses something that is in it",
		CauseDisk:    "the host's disk may have no room for its memory",
	}[e.Cause]
	if e.Err != nil {
		return fmt.Sprintf("checkpoint: %s: %v", text, e.Err)
	}
	return "checkpoint: " + text
}

// Unwrap returns what the runtime said.
func (e *CheckpointError) Unwrap() error { return e.Err }
