package canonical

import (
	"bytes"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode reads one JSON value into v, which is a non-nil pointer. It accepts
// any white space and key order, and otherwise only what Encode could have
// written into the same type, or the zero value of an optional field spelt out.
// It refuses: invalid UTF-8, a byte order mark, lone surrogates, duplicate,
// unknown and wrong-case keys, absent required keys, null anywhere, numbers
// that are not plain integers in range, nesting beyond MaxDepth, and bytes
// after the value. Named string types are read as strings; whether the word
// belongs to a closed set is the caller's question.
//
// An empty array becomes an empty slice that is not nil. To learn whether an
// optional scalar was spelt out, make it a pointer with omitzero.
// Bounds: time is linear in len(data), which the caller bounds. Memory is at
// most a few times len(data), plus about one Go value per array element or map
// entry: where all fields of a struct are optional, {} costs its whole size.
// Ownership: nothing in v refers to data afterwards. What v held is replaced
// as a whole on success and untouched on error.
// Errors: *Error; of several faults, the first in input order, but encoding
// faults come before all others.
// Source: RFC 8259, narrowed.
func Decode(data []byte, v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return refuse(ReasonUnsupportedType, "a pointer that is not nil", "")
	}
	s, err := shapeOf(target.Type().Elem())
	if err != nil {
		return err
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return &Error{Reason: ReasonByteOrderMark, Expected: "UTF-8 without a mark"}
	}
	if !utf8.Valid(data) {
		return &Error{Reason: ReasonInvalidUTF8, Expected: "UTF-8", Offset: firstInvalid(data)}
	}
	d := decoder{data: data}
	fresh := reflect.New(s.typ).Elem()
	if err := d.value(fresh, s, 0); err != nil {
		return err
	}
	if c := d.next(); c != end {
		return d.refuse(ReasonTrailingData, "the end of the input", "")
	}
	target.Elem().Set(fresh)
	return nil
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// value reads into v, which is the zero value of s.typ, at the given number of
// enclosing objects and arrays.
func (d *decoder) value(v reflect.Value, s *shape, depth int) *Error {
	c := d.next()
	switch s.class {
	case classPointer:
		pointed := reflect.New(s.elem.typ)
		if err := d.value(pointed.Elem(), s.elem, depth); err != nil {
			return err
		}
		v.Set(pointed)
		return nil
	case classString:
		if c != '"' {
			return d.mismatch(s)
		}
		text, err := d.text()
		if err != nil {
			return err
		}
		v.SetString(string(text))
		return nil
	case classBool:
		switch {
		case d.literal("true"):
			v.SetBool(true)
		case !d.literal("false"):
			return d.mismatch(s)
		}
		return nil
	case classInteger, classUnsigned:
		if c != '-' && (c < '0' || c > '9') {
			return d.mismatch(s)
		}
		n, err := d.integer(s.min, s.max)
		switch {
		case err != nil:
			return err
		case s.class == classInteger:
			v.SetInt(n)
		default:
			v.SetUint(uint64(n))
		}
		return nil
	}

	open := byte('{')
	if s.class == classList {
		open = '['
	}
	if c != int(open) {
		return d.mismatch(s)
	}
	if depth++; depth > MaxDepth {
		return d.refuse(ReasonTooDeep, depthLimit, "")
	}
	d.at++
	switch s.class {
	case classObject:
		return d.object(v, s, depth)
	case classMap:
		return d.mapping(v, s, depth)
	default:
		return d.list(v, s, depth)
	}
}

func (d *decoder) object(v reflect.Value, s *shape, depth int) *Error {
	var seen uint64
	guess := 0
	for count := 0; ; count++ {
		done, err := d.more(count, '}')
		if err != nil {
			return err
		}
		if done {
			break
		}
		start := d.at
		key, err := d.key()
		if err != nil {
			return err
		}
		i := s.find(key, guess)
		switch {
		case i < 0:
			d.at = start
			return d.refuse(ReasonUnknownKey, s.nearest(string(key)), excerpt(string(key))).inKey(string(key))
		case seen&(1<<i) != 0:
			d.at = start
			return d.refuse(ReasonDuplicateKey, "each key once", "").inKey(string(key))
		}
		seen |= 1 << i
		guess = i + 1
		f := &s.fields[i]
		if err := d.colon(); err != nil {
			return err.inKey(f.key)
		}
		if err := d.value(v.Field(f.index), f.shape, depth); err != nil {
			return err.inKey(f.key)
		}
	}
	if s.required&^seen != 0 {
		for i := range s.fields {
			if (s.required&^seen)>>i&1 != 0 {
				d.at-- // the closing brace
				return d.refuse(ReasonMissingKey, s.fields[i].shape.name(), "").inKey(s.fields[i].key)
			}
		}
	}
	return nil
}

// nearest is the key that an unknown one differs from only in case, if any.
func (s *shape) nearest(key string) string {
	for i := range s.fields {
		if strings.EqualFold(s.fields[i].key, key) {
			return excerpt(s.fields[i].key)
		}
	}
	return "a key of this object"
}

func (d *decoder) mapping(v reflect.Value, s *shape, depth int) *Error {
	m := reflect.MakeMap(s.typ)
	name := reflect.New(s.typ.Key()).Elem()
	value := reflect.New(s.elem.typ).Elem()
	for count := 0; ; count++ {
		done, err := d.more(count, '}')
		if err != nil {
			return err
		}
		if done {
			break
		}
		start := d.at
		text, err := d.key()
		if err != nil {
			return err
		}
		key := string(text)
		name.SetString(key)
		if m.MapIndex(name).IsValid() {
			d.at = start
			return d.refuse(ReasonDuplicateKey, "each key once", "").inKey(key)
		}
		if err := d.colon(); err != nil {
			return err.inKey(key)
		}
		value.SetZero()
		if err := d.value(value, s.elem, depth); err != nil {
			return err.inKey(key)
		}
		m.SetMapIndex(name, value)
	}
	v.Set(m)
	return nil
}

func (d *decoder) list(v reflect.Value, s *shape, depth int) *Error {
	v.Set(reflect.MakeSlice(s.typ, 0, 0))
	for i := 0; ; i++ {
		done, err := d.more(i, ']')
		if err != nil {
			return err.inElement(i)
		}
		if done {
			return nil
		}
		// Room is made element by element: the input cannot announce a length.
		v.Grow(1)
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		if err := d.value(v.Index(i), s.elem, depth); err != nil {
			return err.inElement(i)
		}
	}
}
