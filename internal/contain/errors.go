package contain

import "strconv"

// Refusal is the reason of an Error, one of a closed set. It is itself an
// error so that errors.Is(err, ErrNotFound) matches.
type Refusal string

// The reasons why an operation is refused.
const (
	ErrInvalidPath  Refusal = "invalid_path"  // not admitted by Rel for its form or length
	ErrOutsideRoot  Refusal = "outside_root"  // absolute, "..", a symbolic link on the way, or another mount
	ErrNotFound     Refusal = "not_found"     // no such name
	ErrNotRegular   Refusal = "not_regular"   // a directory, FIFO, socket or device where a file is wanted
	ErrNotDirectory Refusal = "not_directory" // something else where a directory is wanted
	ErrExists       Refusal = "exists"        // the name is taken
	ErrNotEmpty     Refusal = "not_empty"     // Remove of a directory that holds something
	ErrTooLarge     Refusal = "too_large"     // more bytes than Error.Maximum
	ErrTooMany      Refusal = "too_many"      // more entries than Error.Maximum
	ErrChanged      Refusal = "changed"       // it kept changing under the operation, or someone holds a lease on it
	ErrBusy         Refusal = "busy"          // a mount point, or in use by the kernel
	ErrDenied       Refusal = "denied"        // the kernel denies this process
	ErrUnsupported  Refusal = "unsupported"   // this kernel or its filter has no openat2, or there is no /proc
	ErrClosed       Refusal = "closed"        // the Root is closed
	ErrFailed       Refusal = "failed"        // any other error of the system; Error.Err says which
)

// Refusals lists the closed set.
func Refusals() []Refusal {
	return []Refusal{
		ErrInvalidPath, ErrOutsideRoot, ErrNotFound, ErrNotRegular, ErrNotDirectory,
		ErrExists, ErrNotEmpty, ErrTooLarge, ErrTooMany, ErrChanged, ErrBusy,
		ErrDenied, ErrUnsupported, ErrClosed, ErrFailed,
	}
}

// Error returns the reason as text.
func (r Refusal) Error() string { return string(r) }

// Error is what every operation of this package returns when it fails.
type Error struct {
	Op       string  // the operation: "read", "write", "list", ...
	Path     string  // the path as given or found, raw bytes
	Refusal  Refusal // why
	Expected string  // what was wanted there, or ""
	Actual   string  // what was found, or ""
	Maximum  int64   // the bound, for ErrTooLarge and ErrTooMany
	Err      error   // the system's error or ctx's, or nil
}

// Error prints operation, quoted path, reason and what is known about it.
func (e *Error) Error() string {
	text := "contain: " + e.Op + " " + strconv.Quote(e.Path) + ": " + string(e.Refusal)
	if e.Expected != "" {
		text += ": expected " + e.Expected
	}
	if e.Actual != "" {
		text += ", got " + e.Actual
	}
	if e.Refusal == ErrTooLarge || e.Refusal == ErrTooMany {
		text += ": maximum " + strconv.FormatInt(e.Maximum, 10)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives both the reason and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Refusal}
	}
	return []error{e.Refusal, e.Err}
}
