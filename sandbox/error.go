package sandbox

import "strconv"

// Kind is one of the eight errors a provider may author. Anything else that
// comes from a provider is a defect, not a failure.
// Source: contract "Errors".
type Kind string

// The eight kinds.
const (
	CapabilityUnavailable Kind = "SandboxCapabilityUnavailable"
	FileTooLarge          Kind = "SandboxFileTooLarge"
	InstanceNotFound      Kind = "SandboxInstanceNotFound"
	LifecycleConflict     Kind = "SandboxLifecycleConflict"
	OperationFailed       Kind = "SandboxOperationFailed"
	OutputLimitExceeded   Kind = "SandboxOutputLimitExceeded"
	SnapshotForbidden     Kind = "SandboxSnapshotForbidden"
	SnapshotNotFound      Kind = "SandboxSnapshotNotFound"
)

// Kinds returns the eight kinds.
func Kinds() []Kind {
	return []Kind{
		CapabilityUnavailable, FileTooLarge, InstanceNotFound, LifecycleConflict,
		OperationFailed, OutputLimitExceeded, SnapshotForbidden, SnapshotNotFound,
	}
}

// Literals that appear as Actual or Reason in errors, one place for all rooms.
const (
	ActualListDirUnsupported        = "list_dir_unsupported"
	ActualListProjectDirUnsupported = "list_project_dir_unsupported"
	ActualOpenProcessUnsupported    = "open_process_unsupported"
	ActualActiveWriteUnsupported    = "begin_active_write_unsupported"
	ActualProcessAlreadyOpen        = "process_already_open"
	ReasonTimedOut                  = "timed_out"
	ReasonOutsideRoot               = "outside_root"
	ReasonNotFound                  = "not_found"
	ReasonNotRegular                = "not_regular"
	ReasonStartFailed               = "start_failed"
	ReasonProcessLost               = "process_lost"
	ReasonInstanceLost              = "instance_lost"
	ReasonIndeterminate             = "indeterminate"
	ReasonNotRemoved                = "not_removed" // a release has taken its snapshot, and could not remove the instance
	ReasonChanged                   = "changed"
	ReasonProviderError             = "provider_error"
	ReasonInvalidRequest            = "invalid_request"   // the request itself is malformed; Err is the *Invalid
	ReasonAncestorConflict          = "ancestor_conflict" // one target of an active write is a parent of another
	ReasonNotDirectory              = "not_directory"
	ReasonTooManyEntries            = "too_many_entries"
	ActualBusy                      = "busy"    // another call on the instance is in flight
	ActualExpired                   = "expired" // the deadline has passed
)

// Error is one of the eight adapter errors. Which fields are set depends on
// Kind; the constructors below set exactly those. Err is a local cause for the
// log; it does not travel and it is not part of the error's identity.
//
// Match it with errors.As, or errors.Is against an Error that sets only the
// fields that must agree.
// Source: contract "Errors".
type Error struct {
	Kind        Kind
	Operation   Operation
	Requirement Requirement // CapabilityUnavailable
	Expected    string      // LifecycleConflict; CapabilityUnavailable: what was asked for
	Actual      string      // LifecycleConflict; CapabilityUnavailable: what is offered
	Reason      string      // OperationFailed
	Path        string      // FileTooLarge; OperationFailed on a file
	ID          string      // InstanceNotFound, SnapshotNotFound, SnapshotForbidden
	Stream      Stream      // OutputLimitExceeded
	Limit       int64       // FileTooLarge, OutputLimitExceeded: bytes
	Err         error
}

// Unavailable says that requirement cannot be met.
func Unavailable(op Operation, r Requirement, wanted, offered string) *Error {
	return &Error{Kind: CapabilityUnavailable, Operation: op, Requirement: r, Expected: wanted, Actual: offered}
}

// Conflict says that a member met the wrong state, or is not there at all.
func Conflict(op Operation, expected, actual string) *Error {
	return &Error{Kind: LifecycleConflict, Operation: op, Expected: expected, Actual: actual}
}

// Failed says that an admitted operation did not succeed.
func Failed(op Operation, reason string, cause error) *Error {
	return &Error{Kind: OperationFailed, Operation: op, Reason: reason, Err: cause}
}

// FailedAt is Failed about one path.
func FailedAt(op Operation, path, reason string, cause error) *Error {
	return &Error{Kind: OperationFailed, Operation: op, Path: path, Reason: reason, Err: cause}
}

// TooLarge says that the file at path is over limit bytes.
func TooLarge(op Operation, path string, limit int64) *Error {
	return &Error{Kind: FileTooLarge, Operation: op, Path: path, Limit: limit}
}

// OverLimit says that a command wrote more than limit bytes to stream.
func OverLimit(stream Stream, limit int64) *Error {
	return &Error{Kind: OutputLimitExceeded, Operation: OpExecute, Stream: stream, Limit: limit}
}

// NoInstance says that id names no instance.
func NoInstance(op Operation, id InstanceID) *Error {
	return &Error{Kind: InstanceNotFound, Operation: op, ID: string(id)}
}

// NoSnapshot says that id names no snapshot.
func NoSnapshot(op Operation, id SnapshotID) *Error {
	return &Error{Kind: SnapshotNotFound, Operation: op, ID: string(id)}
}

// Forbidden says that the instance's retention forbids a snapshot.
func Forbidden(op Operation, id InstanceID) *Error {
	return &Error{Kind: SnapshotForbidden, Operation: op, ID: string(id)}
}

// Error is one line: operation, kind, the fields that are set, the cause.
func (e *Error) Error() string {
	s := word(string(e.Operation)) + ": " + word(string(e.Kind))
	add := func(name, value string) {
		if value != "" {
			s += " " + name + "=" + strconv.Quote(value)
		}
	}
	add("requirement", string(e.Requirement))
	add("expected", e.Expected)
	add("actual", e.Actual)
	add("reason", e.Reason)
	add("path", e.Path)
	add("id", e.ID)
	add("stream", string(e.Stream))
	if e.Limit != 0 {
		s += " limit=" + strconv.FormatInt(e.Limit, 10)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// word quotes what is no name: an error that was read off a wire, or made by a
// hostile provider, may hold anything where a member stands.
func word(s string) string {
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// Unwrap returns the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is compares only the fields that target sets.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	if !ok {
		return false
	}
	agree := func(have, want string) bool { return want == "" || have == want }
	return agree(string(e.Kind), string(t.Kind)) && agree(string(e.Operation), string(t.Operation)) &&
		agree(string(e.Requirement), string(t.Requirement)) && agree(e.Expected, t.Expected) &&
		agree(e.Actual, t.Actual) && agree(e.Reason, t.Reason) && agree(e.Path, t.Path) &&
		agree(e.ID, t.ID) && agree(string(e.Stream), string(t.Stream)) && (t.Limit == 0 || e.Limit == t.Limit)
}

// Invalid says that one field broke a rule. Field is its path in JSON names
// ("mounts[2].access"). It carries no secret: Got is cut to 200 bytes and
// environment values never appear in it.
type Invalid struct {
	Field    string
	Expected string
	Got      string
}

// Error is "field: expected …, got …".
func (e *Invalid) Error() string {
	return e.Field + ": expected " + e.Expected + ", got " + strconv.Quote(e.Got)
}

func invalid(field, expected, got string) *Invalid {
	if len(got) > 200 {
		got = got[:200] + "…"
	}
	return &Invalid{Field: field, Expected: expected, Got: got}
}
