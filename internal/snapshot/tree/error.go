package tree

import (
	"errors"
	"strconv"
)

// Kinds of Error, for errors.Is. An Error without a kind is a failure of the
// host: a full disk, a missing permission, a cancelled context.
var (
	// ErrRefused: the tree holds what cannot be kept.
	ErrRefused = errors.New("cannot be kept")
	// ErrChanged: somebody wrote to the tree.
	ErrChanged = errors.New("changed meanwhile")
	// ErrMalformed: the stream is none that Write can have made.
	ErrMalformed = errors.New("malformed stream")
)

// Error says what failed, where, and what would have been accepted. Fields that
// do not apply are empty.
type Error struct {
	Op       string // "write" or "extract"
	Path     string // in the tree, raw bytes; "." is its root
	Field    string // of the stream's form
	Expected string
	Got      string
	Kind     error // one of the kinds above, or nil
	Err      error // cause, or nil
}

// Error is one line. Path is quoted, for it may hold any byte.
func (e *Error) Error() string {
	text := "tree: " + e.Op + " " + strconv.Quote(e.Path)
	for _, part := range []struct{ before, what string }{
		{": ", kindText(e.Kind)}, {": ", e.Field}, {": expected ", e.Expected}, {", got ", e.Got},
	} {
		if part.what != "" {
			text += part.before + part.what
		}
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func kindText(kind error) string {
	if kind == nil {
		return ""
	}
	return kind.Error()
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
