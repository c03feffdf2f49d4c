// Package argument reads what a person types after a flag, strictly: one form,
// bounds, and a refusal that says what was expected and what came.
//
// Trusts: nothing that was typed. It links no provider, so that its parsers
// can be fuzzed alone.
// Units: bytes, thousandths of a core, time.Duration. Errors: *Error, one line.
// Values of the environment are in no error.
// Concurrency: every function may be called at any time.
package argument

import (
	"fmt"
	"strings"
)

// Error is a mistake on the command line.
type Error struct{ text string }

// Error is one line that names the flag.
func (e *Error) Error() string { return e.text }

// Wrong is an Error in the words of its caller.
func Wrong(format string, args ...any) error { return &Error{OneLine(fmt.Sprintf(format, args...))} }

// Unexpected is an Error about one flag or argument; got may be anything that
// was typed.
func Unexpected(flag, expected, got string) error {
	if len(got) > 200 {
		got = got[:200] + "…"
	}
	return Wrong("%s: expected %s, got %q", flag, expected, got)
}

// OneLine joins the lines of s and makes visible what a terminal would act on.
func OneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return Printable(s)
}
