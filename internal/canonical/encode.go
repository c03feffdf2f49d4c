package canonical

import (
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Encode gives the canonical JSON of v: RFC 8785 without floats and null. Keys
// stand in the order of their UTF-16 code units, strings are escaped only where
// they must be, a nil slice is [] and a nil map is {}.
//
// Whatever Encode returns, Decode accepts into the same type.
// Bounds: depth at most MaxDepth, which also ends a value that contains itself.
// Ownership: v must not change during the call; the result is the caller's.
// Errors: *Error with ReasonInvalidUTF8, ReasonOutOfRange, ReasonNull (a nil
// pointer that is not an optional field), ReasonTooDeep, ReasonUnsupportedType.
// Source: RFC 8785 sections 3.2.2 and 3.2.3.
func Encode(v any) ([]byte, error) {
	if v == nil {
		return nil, refuse(ReasonNull, "a value", "nil")
	}
	s, err := shapeOf(reflect.TypeOf(v))
	if err != nil {
		return nil, err
	}
	data, err := appendValue(nil, reflect.ValueOf(v), s, 0)
	if err != nil {
		return nil, err
	}
	return data, nil
}

// refuse is an error that has no place in an input.
func refuse(reason Reason, expected, got string) *Error {
	return &Error{Reason: reason, Expected: expected, Got: got, Offset: -1}
}

// appendValue writes v at the given number of enclosing objects and arrays.
func appendValue(dst []byte, v reflect.Value, s *shape, depth int) ([]byte, *Error) {
	switch s.class {
	case classString:
		return appendString(dst, v.String())
	case classBool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case classInteger:
		n := v.Int()
		if n < -MaxInteger || n > MaxInteger {
			return nil, refuse(ReasonOutOfRange, integerRange(-MaxInteger, MaxInteger), strconv.FormatInt(n, 10))
		}
		return strconv.AppendInt(dst, n, 10), nil
	case classUnsigned:
		n := v.Uint()
		if n > MaxInteger {
			return nil, refuse(ReasonOutOfRange, integerRange(0, MaxInteger), strconv.FormatUint(n, 10))
		}
		return strconv.AppendUint(dst, n, 10), nil
	case classPointer:
		if v.IsNil() {
			return nil, refuse(ReasonNull, s.name(), "nil")
		}
		return appendValue(dst, v.Elem(), s.elem, depth)
	}
	if depth++; depth > MaxDepth {
		return nil, refuse(ReasonTooDeep, depthLimit, "")
	}
	switch s.class {
	case classObject:
		return appendObject(dst, v, s, depth)
	case classMap:
		return appendMap(dst, v, s, depth)
	default:
		return appendList(dst, v, s, depth)
	}
}

func appendObject(dst []byte, v reflect.Value, s *shape, depth int) ([]byte, *Error) {
	dst = append(dst, '{')
	first := true
	for i := range s.fields {
		f := &s.fields[i]
		value := v.Field(f.index)
		if f.omitZero && value.IsZero() || f.omitEmpty && empty(value, f.shape) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, f.key...)
		dst = append(dst, '"', ':')
		var err *Error
		if dst, err = appendValue(dst, value, f.shape, depth); err != nil {
			return nil, err.inKey(f.key)
		}
	}
	return append(dst, '}'), nil
}

func empty(v reflect.Value, s *shape) bool {
	if s.class == classMap || s.class == classList {
		return v.Len() == 0
	}
	return v.IsZero()
}

func appendMap(dst []byte, v reflect.Value, s *shape, depth int) ([]byte, *Error) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return compareUTF16(a.String(), b.String()) })
	dst = append(dst, '{')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err *Error
		if dst, err = appendString(dst, key.String()); err != nil {
			return nil, err.inKey(key.String())
		}
		dst = append(dst, ':')
		if dst, err = appendValue(dst, v.MapIndex(key), s.elem, depth); err != nil {
			return nil, err.inKey(key.String())
		}
	}
	return append(dst, '}'), nil
}

func appendList(dst []byte, v reflect.Value, s *shape, depth int) ([]byte, *Error) {
	dst = append(dst, '[')
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err *Error
		if dst, err = appendValue(dst, v.Index(i), s.elem, depth); err != nil {
			return nil, err.inElement(i)
		}
	}
	return append(dst, ']'), nil
}

// appendString escapes what RFC 8785 section 3.2.2.2 names and nothing else:
// U+2028, U+2029, DEL, '<' and all above stay as they are.
func appendString(dst []byte, s string) ([]byte, *Error) {
	if !utf8.ValidString(s) {
		return nil, refuse(ReasonInvalidUTF8, "UTF-8", "")
	}
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"'), nil
}

// compareUTF16 orders two strings by their UTF-16 code units.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			return rank(ra) - rank(rb)
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

// rank is the place of a character in that order: the order of code points,
// except that characters beyond U+FFFF begin with a surrogate (D800 to DBFF) and
// so stand before U+E000 to U+FFFF.
func rank(r rune) int {
	if 0xe000 <= r && r <= 0xffff {
		return int(r) + utf8.MaxRune
	}
	return int(r)
}

const depthLimit = "at most 16 levels"

func integerRange(low, high int64) string {
	return strconv.FormatInt(low, 10) + ".." + strconv.FormatInt(high, 10)
}
