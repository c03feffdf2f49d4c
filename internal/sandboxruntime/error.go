package sandboxruntime

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// Kind is one of the three errors that only the Runner authors.
// Source: contract "Errors".
type Kind string

// The three kinds.
const (
	AdapterUnavailable Kind = "SandboxAdapterUnavailable" // selection found no adapter
	AdapterAmbiguous   Kind = "SandboxAdapterAmbiguous"   // selection found several
	ProtocolInvalid    Kind = "SandboxProtocolInvalid"    // a result failed decoding or a cross-check
)

// Operations that name a step of the Runner and not a member.
// Source: contract "Identity is cross-checked, not trusted"; "Optional
// capabilities: absent versus wrong".
const (
	OpSelect              sandbox.Operation = "select"
	OpAdopt               sandbox.Operation = "adopt"
	OpInstanceIdentity    sandbox.Operation = "instance_identity"
	OpSnapshotIdentity    sandbox.Operation = "snapshot_identity"
	OpOpenProcessIdentity sandbox.Operation = "open_process_identity"
)

// rollbackOf names the compensation of op in an error.
// Source: contract "Allocation handoff".
func rollbackOf(op sandbox.Operation) sandbox.Operation { return op + "_rollback" }

// Error is a failure that the Runner found. Operation keeps the contract's
// public form; Field, Expected and Got say to the person who has to fix it
// which check failed and how. Check is the number of the failed check among
// the 21 of instance_identity or the 16 of open_process_identity, else 0.
// Source: contract "Errors"; "Identity is cross-checked, not trusted".
type Error struct {
	Kind      Kind
	Operation sandbox.Operation
	Check     int
	Field     string
	Expected  string
	Got       string
	Err       error // AdapterUnavailable: why adapters could not be asked; a broken wire: what the client found
}

// Error is one line.
func (e *Error) Error() string {
	s := string(e.Operation) + ": " + string(e.Kind)
	if e.Field != "" {
		s += ": " + printable(e.Field) + ": expected " + strconv.Quote(e.Expected) + ", got " + strconv.Quote(e.Got)
	}
	if e.Check != 0 {
		s += " (check " + strconv.Itoa(e.Check) + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is compares only the fields that target sets.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && (t.Kind == "" || t.Kind == e.Kind) && (t.Operation == "" || t.Operation == e.Operation) &&
		(t.Check == 0 || t.Check == e.Check) && (t.Field == "" || t.Field == e.Field) &&
		(t.Expected == "" || t.Expected == e.Expected) && (t.Got == "" || t.Got == e.Got)
}

// Defect says that a provider broke the contract in a way that is no failure
// of the closed vocabulary: another error type, an error that cannot belong to
// the operation, a panic. It is loud and never mapped to a kind; so it does
// not unwrap, and Cause can match nothing.
// Source: contract "Errors" ("anything else is a defect, not a failure").
type Defect struct {
	Operation sandbox.Operation
	Cause     error
}

// Error is one line.
func (d *Defect) Error() string {
	return string(d.Operation) + ": provider defect: " + text(d.Cause)
}

// opaque keeps a provider's local cause for the log and hides its chain, so
// that no provider can smuggle a Runner's error kind past errors.As.
type opaque struct{ cause error }

func (o opaque) Error() string { return text(o.cause) }

// text survives a provider's error whose own Error method panics.
func text(err error) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = "an error that panics when it is printed"
		}
	}()
	return err.Error()
}

// printable quotes a name that a provider put something else into: a key of its
// JSON can stand where a field is named.
func printable(s string) string {
	if q := strconv.QuoteToASCII(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

func protocolInvalid(op sandbox.Operation, field, expected, got string) *Error {
	return &Error{Kind: ProtocolInvalid, Operation: op, Field: field, Expected: expected, Got: excerpt(got)}
}

// rejected turns the first broken rule of a result into a protocol failure.
func rejected(op sandbox.Operation, err error) error {
	if inv, ok := errors.AsType[*sandbox.Invalid](err); ok {
		return protocolInvalid(op, inv.Field, inv.Expected, inv.Got)
	}
	return err
}

// refused turns a broken rule of the caller's own request into a failure.
func refused(op sandbox.Operation, err error) error {
	return sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
}

func excerpt(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// violated says in the Runner's own words that the other end of a wire broke it.
// The wire's client found that, which is the Runner's code; of a provider
// without a wire in between the same words are its own, and nothing but a
// defect.
func violated(l link, op sandbox.Operation, err error) (e *Error) {
	v, ok := err.(sandbox.Violation)
	if !ok || !l.remote {
		return nil
	}
	defer func() {
		if recover() != nil {
			e = nil // the defect that it is
		}
	}()
	field, expected, got := v.Violation()
	e = protocolInvalid(op, excerpt(field), excerpt(expected), got)
	e.Err = opaque{err}
	return e
}

// authored decides what a provider's error is: one of the closed set that fits
// the operation, a wire that was broken, the interruption that ctx asked for, or
// a defect.
func authored(ctx context.Context, l link, op sandbox.Operation, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*sandbox.Error); ok && e != nil {
		if why := crosscheck.Misfit(op, e); why != "" {
			return &Defect{op, fmt.Errorf("%s: %w", why, err)}
		}
		if e.Err != nil {
			own := *e
			own.Err = opaque{e.Err}
			return &own
		}
		return e
	}
	if own, ok := err.(*Defect); ok && own != nil && own.Operation == op {
		return own // made by the guard around the call
	}
	if e := violated(l, op, err); e != nil {
		return e
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return ctx.Err()
	}
	return &Defect{op, err}
}
