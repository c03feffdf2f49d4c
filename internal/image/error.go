package image

import (
	"errors"
	"strconv"
	"strings"
)

// Kinds of Error, for errors.Is. An Error without a kind is a failure of the
// host: a full disk, a missing permission, a cancelled context.
var (
	// ErrNotFound: the store holds no such image, or the archive no such part.
	ErrNotFound = errors.New("not found")
	// ErrDigestMismatch: bytes are not those that were named.
	ErrDigestMismatch = errors.New("digest mismatch")
	// ErrHostile: an archive or document breaks its format or tries to leave
	// the place it belongs to. An honest but damaged file looks the same.
	ErrHostile = errors.New("malformed or hostile")
	// ErrTooLarge: a bound of Options or of this package is passed.
	ErrTooLarge = errors.New("too large")
	// ErrPlatform: the image is not for linux on this architecture.
	ErrPlatform = errors.New("wrong platform")
	// ErrInUse: somebody holds the image's root.
	ErrInUse = errors.New("in use")
	// ErrUnsupported: the request or format is valid, and not for this store
	// or this host.
	ErrUnsupported = errors.New("unsupported")
)

// Error says what was refused, where, and what would have been accepted.
// Fields that do not apply are empty.
type Error struct {
	Op       string // "import", "pull", "build", "derive", "derived", "resolve", "remove", "rootfs", "verify", "open", "list"
	Ref      string // the image as the caller named it
	Path     string // host path
	Entry    string // entry of an archive or of a tree, as it was written
	Reason   string
	Expected string
	Got      string
	Kind     error // one of the kinds above, or nil
	Err      error // cause, or nil
}

// Error is one line. Entry is quoted, for it may hold any byte.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("image")
	part := func(s string) {
		if s != "" {
			b.WriteString(": ")
			b.WriteString(s)
		}
	}
	part(e.Op)
	part(e.Ref)
	part(e.Path)
	if e.Entry != "" {
		part("entry " + strconv.Quote(e.Entry))
	}
	if e.Kind != nil {
		part(e.Kind.Error())
	}
	part(e.Reason)
	switch {
	case e.Expected != "" && e.Got != "":
		part("expected " + e.Expected + ", got " + e.Got)
	case e.Expected != "":
		part("expected " + e.Expected)
	case e.Got != "":
		part("got " + e.Got)
	}
	if e.Err != nil {
		part(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Kind != nil {
		all = append(all, e.Kind)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// within names the operation and the image of an error that was made further
// down, and turns any other error into an *Error.
func within(op, ref string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return &Error{Op: op, Ref: ref, Err: err}
	}
	named := *e
	if named.Op == "" {
		named.Op = op
	}
	if named.Ref == "" {
		named.Ref = ref
	}
	return &named
}

func hostile(entry, reason string, err error) *Error {
	return &Error{Kind: ErrHostile, Entry: entry, Reason: reason, Err: err}
}

// joined adds the failure of a clean-up to the failure that led to it.
func joined(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return errors.Join(err, cleanup)
}
