package snapshot

import "errors"

// Kinds of Error, for errors.Is. An Error without a kind is a failure of the
// host: a full disk (unix.ENOSPC), a missing permission, a cancelled context.
var (
	// ErrNotFound: there is no such snapshot.
	ErrNotFound = errors.New("no such snapshot")
	// ErrExpired: its own deadline is past, or would be from the start.
	ErrExpired = errors.New("expired")
	// ErrMismatch: a reference disagrees with what was kept under its id.
	ErrMismatch = errors.New("mismatch")
	// ErrDamaged: the bytes on the disk are not those that were written.
	ErrDamaged = errors.New("damaged")
	// ErrUnsupported: the directory or the manifest is of another form.
	ErrUnsupported = errors.New("unsupported")
)

// Error says what failed, of which snapshot, in which field, and what would have
// been accepted. Fields that do not apply are empty.
type Error struct {
	Op       string // "open", "capture", "clone", "hold", "restore", "destroy", "sweep", "list"
	ID       string // of the snapshot
	Field    string
	Expected string
	Got      string
	Kind     error // one of the kinds above, or nil
	Err      error // cause, or nil
}

// Error is one line.
func (e *Error) Error() string {
	text := "snapshot"
	add := func(before, s string) {
		if s != "" {
			text += before + s
		}
	}
	add(": ", e.Op)
	add(" ", e.ID)
	if e.Kind != nil {
		add(": ", e.Kind.Error())
	}
	add(": ", e.Field)
	add(": expected ", e.Expected)
	add(", got ", e.Got)
	if e.Err != nil {
		add(": ", e.Err.Error())
	}
	return text
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// within names the operation and the snapshot of an error, and turns any other
// error into an *Error.
func within(op, id string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := err.(*Error) // not one inside: what it was joined with would be lost
	if !ok {
		e = &Error{Err: err}
	}
	named := *e
	if named.Op == "" {
		named.Op = op
	}
	if named.ID == "" {
		named.ID = id
	}
	return &named
}

func damaged(field, expected, got string) *Error {
	return &Error{Kind: ErrDamaged, Field: field, Expected: expected, Got: got}
}

// joined adds the failure of a clean-up to what led to it.
func joined(err, cleanup error) error {
	switch {
	case cleanup == nil:
		return err
	case err == nil:
		return cleanup
	}
	return errors.Join(err, cleanup)
}
