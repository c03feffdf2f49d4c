package canonical

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder is a cursor over an input that is known to be valid UTF-8.
type decoder struct {
	data    []byte
	at      int
	scratch []byte // the last string that had escapes
}

// end is what next answers after the last byte.
const end = -1

// next skips white space and peeks at the byte that follows.
func (d *decoder) next() int {
	for d.at < len(d.data) {
		switch c := d.data[d.at]; c {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return int(c)
		}
	}
	return end
}

func (d *decoder) refuse(reason Reason, expected, got string) *Error {
	return &Error{Reason: reason, Expected: expected, Got: got, Offset: d.at}
}

// unexpected refuses whatever stands at the cursor.
func (d *decoder) unexpected(expected string) *Error {
	if d.at >= len(d.data) {
		return d.refuse(ReasonTruncated, expected, "the end of the input")
	}
	_, n := utf8.DecodeRune(d.data[d.at:])
	return d.refuse(ReasonSyntax, expected, excerpt(string(d.data[d.at:d.at+n])))
}

// mismatch refuses a value that is not of s's JSON type, by what its first byte
// announces. The value is never read, so it costs nothing however large it is.
func (d *decoder) mismatch(s *shape) *Error {
	got := ""
	switch c := d.next(); {
	case c == '"':
		got = "string"
	case c == '{':
		got = "object"
	case c == '[':
		got = "array"
	case c == '-' || '0' <= c && c <= '9':
		got = "number"
	case d.literal("null"):
		d.at -= len("null")
		return d.refuse(ReasonNull, s.name(), "null")
	case d.literal("true"):
		d.at -= len("true")
		got = "boolean"
	case d.literal("false"):
		d.at -= len("false")
		got = "boolean"
	default:
		return d.unexpected(s.name())
	}
	return d.refuse(ReasonWrongType, s.name(), got)
}

// literal consumes word if it stands at the cursor as a whole token.
func (d *decoder) literal(word string) bool {
	rest := d.data[d.at:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	d.at += len(word)
	return true
}

// more steps to the next member or element, of which count were read, and says
// whether the closing bracket came instead, which it consumes.
func (d *decoder) more(count int, closing byte) (done bool, err *Error) {
	c := d.next()
	if c == int(closing) {
		d.at++
		return true, nil
	}
	if count == 0 {
		return false, nil
	}
	if c != ',' {
		return false, d.unexpected("',' or '" + string(closing) + "'")
	}
	d.at++ // a closing bracket after it is refused as the member that it is not
	return false, nil
}

func (d *decoder) key() ([]byte, *Error) {
	if d.next() != '"' {
		return nil, d.unexpected("a key")
	}
	return d.text()
}

func (d *decoder) colon() *Error {
	if d.next() != ':' {
		return d.unexpected("':'")
	}
	d.at++
	return nil
}

// text reads the string whose opening quote stands at the cursor. The result is
// valid until the next call and must be copied.
func (d *decoder) text() ([]byte, *Error) {
	d.at++
	start := d.at
	var out []byte // nil while there was no escape
	for d.at < len(d.data) {
		switch c := d.data[d.at]; {
		case c == '"':
			raw := d.data[start:d.at]
			d.at++
			if out == nil {
				return raw, nil
			}
			d.scratch = append(out, raw...)
			return d.scratch, nil
		case c == '\\':
			if out == nil {
				out = d.scratch[:0]
			}
			out = append(out, d.data[start:d.at]...)
			r, err := d.escape()
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, r)
			start = d.at
		case c < 0x20:
			return nil, d.refuse(ReasonControlCharacter, "an escape", excerpt(string(rune(c))))
		default:
			d.at++
		}
	}
	return nil, d.unexpected("'\"'")
}

// escape reads the escape sequence at the cursor.
func (d *decoder) escape() (rune, *Error) {
	start := d.at
	d.at++
	if d.at >= len(d.data) {
		return 0, d.unexpected("an escape")
	}
	switch c := d.data[d.at]; c {
	case '"', '\\', '/':
		d.at++
		return rune(c), nil
	case 'b', 'f', 'n', 'r', 't':
		d.at++
		return rune("\b\f\n\r\t"[bytes.IndexByte([]byte("bfnrt"), c)]), nil
	case 'u':
		d.at++
	default:
		return 0, d.unexpected("an escape")
	}
	r, err := d.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	// A first half must be followed at once by an escaped second half.
	if d.literal(`\u`) {
		second, err := d.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
			return pair, nil
		}
	}
	d.at = start
	return 0, d.refuse(ReasonLoneSurrogate, "a surrogate pair", "")
}

func (d *decoder) hex() (r rune, err *Error) {
	for range 4 {
		if d.at >= len(d.data) {
			return 0, d.unexpected("a hex digit")
		}
		switch c := rune(d.data[d.at]); {
		case '0' <= c && c <= '9':
			r = r<<4 | (c - '0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | (c - 'a' + 10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | (c - 'A' + 10)
		default:
			return 0, d.unexpected("a hex digit")
		}
		d.at++
	}
	return r, nil
}

// integer reads the number at the cursor, which begins with '-' or a digit.
func (d *decoder) integer(low, high int64) (int64, *Error) {
	start := d.at
	negative := d.literal("-")
	digits := d.digits()
	length := len(digits)
	switch {
	case length == 0:
		return 0, d.unexpected("a digit")
	case length > 1 && digits[0] == '0':
		d.at = start
		return 0, d.refuse(ReasonSyntax, "no leading zero", "")
	}
	if d.at < len(d.data) {
		switch d.data[d.at] {
		case '.', 'e', 'E':
			d.at = start
			return 0, d.refuse(ReasonNotInteger, integerRange(low, high), "a fraction or an exponent")
		}
	}
	whole := d.data[start:d.at]
	var n int64
	for _, c := range digits[:min(length, 17)] { // 17 digits exceed any limit and fit an int64
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	switch {
	case negative && n == 0:
		d.at = start
		return 0, d.refuse(ReasonNegativeZero, "0", "-0")
	case n < low || n > high:
		d.at = start
		return 0, d.refuse(ReasonOutOfRange, integerRange(low, high), string(whole[:min(len(whole), excerptBytes)]))
	}
	return n, nil
}

func (d *decoder) digits() []byte {
	start := d.at
	for d.at < len(d.data) && '0' <= d.data[d.at] && d.data[d.at] <= '9' {
		d.at++
	}
	return d.data[start:d.at]
}
