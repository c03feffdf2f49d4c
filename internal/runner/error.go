package runner

import (
	"errors"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// Phase is one part of a Run.
type Phase string

// The phases, in their order.
const (
	PhaseSelect    Phase = "select"    // the provider's envelope against the Spec
	PhasePlan      Phase = "plan"      // what goes into the mounts
	PhaseProvision Phase = "provision" // allocate the machine
	PhaseStage     Phase = "stage"     // write the files
	PhaseActivate  Phase = "activate"  // seal and start
	PhaseOpen      Phase = "open"      // start the command
	PhaseCommand   Phase = "command"   // the command itself
	PhaseCollect   Phase = "collect"   // changes and outputs
	PhaseRelease   Phase = "release"   // end the machine
)

// Error says in which phase a Run failed. Its text is one line.
type Error struct {
	Phase Phase
	Err   error
}

// Error is the phase and the cause.
func (e *Error) Error() string { return string(e.Phase) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// SourceError says that a mount's source could not be read, and of which kind
// the mount was: a person gave it with another flag for each.
type SourceError struct {
	Kind sandbox.MountKind
	Err  error
}

// Error is the cause's own text.
func (e *SourceError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// BadInput reports whether err is a mistake in the Spec and not a failure: a
// field out of its rules, a requirement that the provider does not meet, a
// source that cannot be mounted. Nothing was provisioned then.
func BadInput(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Phase != PhaseSelect && e.Phase != PhasePlan {
		return false
	}
	var invalid *sandbox.Invalid
	var source *mount.Error
	return errors.As(err, &invalid) || errors.As(err, &source) || Unmet(err) != nil
}

// Unmet returns the requirement that no provider could meet, or nil.
func Unmet(err error) *sandbox.Error {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind == sandbox.CapabilityUnavailable {
		return e
	}
	return nil
}
