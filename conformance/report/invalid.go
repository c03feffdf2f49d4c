package report

import "strconv"

// InvalidError says what is wrong with a file of a run, or with a list of
// expected failures: which file, which line of it (0 where lines mean nothing),
// which field, what it should have been and what it was. Its text is printable.
type InvalidError struct {
	File     string
	Line     int64
	Field    string
	Expected string
	Got      string
}

// Error is "file:line: field: expected …, got …".
func (e *InvalidError) Error() string {
	text := e.File
	if e.Line > 0 {
		if text == "" {
			text = "line "
		} else {
			text += ":"
		}
		text += strconv.FormatInt(e.Line, 10)
	}
	for _, part := range []string{e.Field, "expected " + e.Expected + ", got " + e.Got} {
		if part != "" && text != "" {
			text += ": "
		}
		text += part
	}
	return text
}

func invalid(field, expected, got string) *InvalidError {
	return &InvalidError{Field: field, Expected: expected, Got: strconv.QuoteToASCII(printable(got, 200))}
}
