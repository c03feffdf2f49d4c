package wire

import (
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// Tag is one of the seventeen errors that are the wire's own. A provider's
// eight errors keep their own tags, the kinds of package sandbox. The three
// that only a Runner may author are no tags at all here.
type Tag string

// The seventeen tags.
const (
	TagUnauthenticated     Tag = "WireUnauthenticated"
	TagForbidden           Tag = "WireForbidden"
	TagMalformed           Tag = "WireMalformed"
	TagUnsupported         Tag = "WireUnsupported"
	TagMemberUnknown       Tag = "WireMemberUnknown"
	TagOperationUnknown    Tag = "WireOperationUnknown"
	TagProcessNotFound     Tag = "WireProcessNotFound"
	TagPayloadTooLarge     Tag = "WirePayloadTooLarge"
	TagLeaseFenced         Tag = "WireLeaseFenced"
	TagOperationMismatch   Tag = "WireOperationMismatch"
	TagOperationRolledBack Tag = "WireOperationRolledBack"
	TagInputBufferFull     Tag = "WireInputBufferFull"
	TagInputGap            Tag = "WireInputGap"
	TagInputClosed         Tag = "WireInputClosed"
	TagOutputTruncated     Tag = "WireOutputTruncated"
	TagCursorAhead         Tag = "WireCursorAhead"
	TagOverloaded          Tag = "WireOverloaded"
)

// Tags returns the seventeen in the order of the table above.
func Tags() []Tag {
	return []Tag{
		TagUnauthenticated, TagForbidden, TagMalformed, TagUnsupported, TagMemberUnknown, TagOperationUnknown,
		TagProcessNotFound, TagPayloadTooLarge, TagLeaseFenced, TagOperationMismatch, TagOperationRolledBack,
		TagInputBufferFull, TagInputGap, TagInputClosed, TagOutputTruncated, TagCursorAhead, TagOverloaded,
	}
}

// Why input is closed: the Cause of TagInputClosed.
const (
	CauseEnded       = "ended"        // the reader's own half-close
	CauseGuestClosed = "guest_closed" // the process closed its standard input
	CauseExited      = "exited"
)

// Error is one of the wire's own errors. Which fields travel depends on Tag;
// Message is diagnostic text of the other side, bounded, to be escaped in a log
// and never shown to a workload.
type Error struct {
	Tag          Tag
	Operation    string   // the endpoint, "" where the request did not get that far
	Pointer      string   // Malformed: the field, as in mounts[3].access; "" is the whole
	Supported    []string // Unsupported: the revisions that are spoken
	MaximumBytes int64    // PayloadTooLarge
	LeaseEpoch   int64    // LeaseFenced: the current one
	InputOffset  int64    // InputBufferFull, InputGap, InputClosed
	InputCredit  int64    // likewise
	Cause        string   // InputClosed
	LowWater     int64    // OutputTruncated
	End          int64    // CursorAhead
	RetryAfterMS int64    // Overloaded
	Message      string
	Err          error // a local cause; it does not travel
}

// Error is one line. Remote text is quoted.
func (e *Error) Error() string {
	s := word(string(e.Tag))
	if e.Operation != "" {
		s = word(e.Operation) + ": " + s
	}
	add := func(name, value string) {
		if value != "" {
			s += " " + name + "=" + strconv.QuoteToASCII(value)
		}
	}
	number := func(name string, n int64, tags ...Tag) {
		for _, t := range tags {
			if t == e.Tag {
				s += " " + name + "=" + strconv.FormatInt(n, 10)
			}
		}
	}
	add("pointer", e.Pointer)
	for _, r := range e.Supported {
		add("supported", r)
	}
	add("cause", e.Cause)
	number("maximum_bytes", e.MaximumBytes, TagPayloadTooLarge)
	number("lease_epoch", e.LeaseEpoch, TagLeaseFenced)
	number("input_offset", e.InputOffset, TagInputBufferFull, TagInputGap, TagInputClosed)
	number("input_credit", e.InputCredit, TagInputBufferFull, TagInputGap, TagInputClosed)
	number("low_water", e.LowWater, TagOutputTruncated)
	number("end", e.End, TagCursorAhead)
	number("retry_after_ms", e.RetryAfterMS, TagOverloaded)
	add("message", e.Message)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// word quotes what is no name: the codec bounds what stands where an endpoint
// belongs, and closes it nowhere.
func word(s string) string {
	if q := strconv.QuoteToASCII(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// Unwrap returns the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same Tag.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Tag == e.Tag
}

// Retryable reports whether the same request may be sent again: only where the
// provider says that it did nothing yet.
func (e *Error) Retryable() bool { return e.Tag == TagOverloaded }

// Violation reports whether e says that one of the two sides broke the wire:
// what a Runner reports as SandboxProtocolInvalid.
func (e *Error) Violation() bool {
	switch e.Tag {
	case TagMalformed, TagUnsupported, TagOperationMismatch, TagMemberUnknown, TagOperationUnknown, TagPayloadTooLarge:
		return true
	}
	return false
}

// Reasons and states that the wire adds to the contract's literals.
const (
	ReasonOutputTruncated   = "output_truncated"
	ExpectedCurrentLease    = "current_lease"
	ActualStaleLease        = "stale_lease"
	ExpectedPending         = "pending_operation"
	ActualRolledBack        = "operation_rolled_back"
	OperationSuffixRollback = "_rollback"
)

// Adapter says e in the contract's vocabulary, as the error of op; nil where the
// contract has no word for it (a violation, access, a full input buffer, an
// overload), which the caller then has to act on itself.
// Source: contract "Errors".
func (e *Error) Adapter(op sandbox.Operation) *sandbox.Error {
	var a *sandbox.Error
	switch e.Tag {
	case TagLeaseFenced:
		a = sandbox.Conflict(op, ExpectedCurrentLease, ActualStaleLease)
	case TagOutputTruncated, TagCursorAhead:
		a = sandbox.Failed(sandbox.OpOpenProcess, ReasonOutputTruncated, nil)
	case TagProcessNotFound:
		a = sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil)
	case TagOperationRolledBack:
		a = sandbox.Conflict(op, ExpectedPending, ActualRolledBack)
	default:
		return nil
	}
	a.Err = e
	return a
}
