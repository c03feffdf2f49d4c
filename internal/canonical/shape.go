package canonical

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
)

type class uint8

const (
	classString class = iota
	classBool
	classInteger  // a signed Go type
	classUnsigned // an unsigned Go type
	classObject   // a struct
	classMap
	classList
	classPointer
)

// names are the words that Expected uses.
var names = [...]string{
	classString: "string", classBool: "boolean", classInteger: "integer", classUnsigned: "integer",
	classObject: "object", classMap: "object", classList: "array",
}

// shape is what a Go type looks like as JSON, worked out once per type.
type shape struct {
	class    class
	typ      reflect.Type
	min, max int64   // of an integer
	elem     *shape  // of a map, list or pointer
	fields   []field // of an object, in canonical key order
	required uint64  // bit i: fields[i] must be present
}

// maxFields is what the bit sets hold.
const maxFields = 64

type field struct {
	key       string // ^[a-z_][a-z0-9_]*$: needs no escape, and byte order is its UTF-16 order
	index     int
	shape     *shape
	omitEmpty bool
	omitZero  bool
}

func (s *shape) name() string {
	if s.class == classPointer {
		return s.elem.name()
	}
	return names[s.class]
}

var shapes sync.Map // reflect.Type -> *shape, complete and never changed

func shapeOf(t reflect.Type) (*shape, *Error) {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape), nil
	}
	s, err := compile(t, map[reflect.Type]*shape{})
	if err != nil {
		return nil, err
	}
	known, _ := shapes.LoadOrStore(t, s)
	return known.(*shape), nil
}

// compile builds the shape of t. begun holds the shapes of this call, so that a
// type which contains itself ends.
func compile(t reflect.Type, begun map[reflect.Type]*shape) (*shape, *Error) {
	if s := begun[t]; s != nil {
		return s, nil
	}
	s := &shape{typ: t}
	begun[t] = s
	var err *Error
	switch t.Kind() {
	case reflect.String:
		s.class = classString
	case reflect.Bool:
		s.class = classBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.class = classInteger
		limit := int64(math.MaxInt64 >> (64 - t.Bits()))
		s.min, s.max = max(-limit-1, -MaxInteger), min(limit, MaxInteger)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s.class = classUnsigned
		s.max = int64(min(uint64(math.MaxUint64)>>(64-t.Bits()), MaxInteger))
	case reflect.Struct:
		s.class = classObject
		err = s.compileFields(begun)
	case reflect.Map:
		s.class = classMap
		if t.Key().Kind() != reflect.String {
			return nil, unsupported(t, "string keys")
		}
		s.elem, err = compile(t.Elem(), begun)
	case reflect.Slice:
		s.class = classList
		if t.Elem().Kind() == reflect.Uint8 {
			// Everyone else writes these as base64; whoever wants bytes says so with a string.
			return nil, unsupported(t, "a string, not a byte slice")
		}
		s.elem, err = compile(t.Elem(), begun)
	case reflect.Pointer:
		s.class = classPointer
		if t.Elem().Kind() == reflect.Pointer {
			return nil, unsupported(t, "a pointer to a value")
		}
		s.elem, err = compile(t.Elem(), begun)
	default:
		return nil, unsupported(t, "object, array, string, boolean or integer")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *shape) compileFields(begun map[reflect.Type]*shape) *Error {
	for i := range s.typ.NumField() {
		f, skip, err := compileField(s.typ.Field(i), begun)
		if err != nil {
			return err.inKey(s.typ.Field(i).Name)
		}
		if !skip {
			f.index = i
			s.fields = append(s.fields, f)
		}
	}
	if len(s.fields) > maxFields {
		return unsupported(s.typ, "at most 64 fields")
	}
	slices.SortFunc(s.fields, func(a, b field) int { return strings.Compare(a.key, b.key) })
	for i, f := range s.fields {
		if i > 0 && s.fields[i-1].key == f.key {
			return unsupported(s.typ, "the key "+f.key+" once")
		}
		if !f.omitEmpty && !f.omitZero {
			s.required |= 1 << i
		}
	}
	return nil
}

func compileField(sf reflect.StructField, begun map[reflect.Type]*shape) (f field, skip bool, err *Error) {
	tag := sf.Tag.Get("json")
	switch {
	case sf.Anonymous:
		return f, false, unsupported(sf.Type, "a field that is not embedded")
	case tag == "-":
		return f, true, nil
	case !sf.IsExported():
		// Skipping it would give two different values the same bytes; this is
		// what time.Time would otherwise meet.
		return f, false, unsupported(sf.Type, `an exported field, or the tag "-"`)
	}
	key, options, _ := strings.Cut(tag, ",")
	if !plainKey(key) || strings.ToLower(key) != key {
		return f, false, unsupported(sf.Type, "a json tag in snake_case")
	}
	f.key = key
	for options != "" {
		var option string
		option, options, _ = strings.Cut(options, ",")
		switch option {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		default:
			return f, false, unsupported(sf.Type, "no tag option but omitempty and omitzero")
		}
	}
	if f.shape, err = compile(sf.Type, begun); err != nil {
		return f, false, err
	}
	if f.omitEmpty && f.shape.class == classObject {
		// encoding/json ignores it there, so the field would be optional to one
		// reader and always present to the other.
		return f, false, unsupported(sf.Type, "omitzero, for an optional struct")
	}
	return f, false, nil
}

// find gives the position of key among the fields, or -1. Canonical input comes
// in field order, so the guess is nearly always right.
func (s *shape) find(key []byte, guess int) int {
	if guess < len(s.fields) && s.fields[guess].key == string(key) {
		return guess
	}
	for i := range s.fields {
		if s.fields[i].key == string(key) {
			return i
		}
	}
	return -1
}

func unsupported(t reflect.Type, expected string) *Error {
	return &Error{Reason: ReasonUnsupportedType, Expected: expected, Got: t.String(), Offset: -1}
}
