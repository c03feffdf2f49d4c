package canonical

import (
	"strconv"
	"unicode/utf8"
)

// Reason says which rule a value breaks. The set is closed.
type Reason string

// The reasons.
const (
	ReasonSyntax           Reason = "syntax"            // not JSON
	ReasonTruncated        Reason = "truncated"         // the input ends inside the value
	ReasonTrailingData     Reason = "trailing_data"     // bytes after the value
	ReasonByteOrderMark    Reason = "byte_order_mark"   // the input begins with U+FEFF
	ReasonInvalidUTF8      Reason = "invalid_utf8"      // also a surrogate in raw bytes
	ReasonLoneSurrogate    Reason = "lone_surrogate"    // half of an escaped surrogate pair
	ReasonControlCharacter Reason = "control_character" // an unescaped byte below 0x20 in a string
	ReasonDuplicateKey     Reason = "duplicate_key"     // the second of two equal keys, escapes undone
	ReasonUnknownKey       Reason = "unknown_key"       // also a known key in the wrong case
	ReasonMissingKey       Reason = "missing_key"       // a required key is absent
	ReasonNull             Reason = "null"              // null, or a nil pointer that is not optional
	ReasonWrongType        Reason = "wrong_type"        // another JSON type than the field's
	ReasonNotInteger       Reason = "not_integer"       // a fraction or an exponent
	ReasonNegativeZero     Reason = "negative_zero"     // -0
	ReasonOutOfRange       Reason = "out_of_range"      // beyond ±MaxInteger, the Go type
	ReasonTooDeep          Reason = "too_deep"          // nested beyond MaxDepth
	ReasonUnsupportedType  Reason = "unsupported_type"  // a Go type that has no canonical form: a defect of the caller
)

// Error is the refusal of a value. It never holds a string value of the input
// (which may be a secret): of the input it repeats only keys and
// numbers, quoted in ASCII and cut to a few dozen bytes.
type Error struct {
	// Path leads from the outermost value to the field: mounts[3].access. A key
	// that is no plain identifier is quoted: environment["A B"]. Empty means
	// the outermost value or the input as a whole.
	Path     string
	Reason   Reason
	Expected string
	Got      string
	// Offset is the byte of the input at which the refusal was decided, or -1
	// where there is no input (Encode).
	Offset int
}

// Error describes the refusal in one line.
func (e *Error) Error() string {
	text := "canonical: "
	if e.Path != "" {
		text += e.Path + ": "
	}
	text += string(e.Reason)
	if e.Expected != "" {
		text += ": expected " + e.Expected
	}
	if e.Got != "" {
		text += ": got " + e.Got
	}
	if e.Offset >= 0 {
		text += " at byte " + strconv.Itoa(e.Offset)
	}
	return text
}

// Is reports whether target is an *Error with the same Reason, so that
// errors.Is(err, &Error{Reason: ReasonNull}) matches wherever it happened.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// in puts one step in front of the path, as the error travels outwards. Paths
// are built only when something is refused.
func (e *Error) in(step string) *Error {
	if e.Path != "" && e.Path[0] != '[' {
		step += "."
	}
	e.Path = step + e.Path
	return e
}

func (e *Error) inElement(i int) *Error { return e.in("[" + strconv.Itoa(i) + "]") }

func (e *Error) inKey(key string) *Error {
	if plainKey(key) {
		return e.in(key)
	}
	return e.in("[" + excerpt(key) + "]")
}

const excerptBytes = 64

// excerpt makes hostile text fit for a log: bounded, quoted, ASCII.
func excerpt(s string) string {
	if len(s) <= excerptBytes {
		return strconv.QuoteToASCII(s)
	}
	end := excerptBytes
	for end > excerptBytes-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return strconv.QuoteToASCII(s[:end]) + "..."
}

func plainKey(key string) bool {
	if key == "" || len(key) > excerptBytes {
		return false
	}
	for i := range len(key) {
		c := key[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}
