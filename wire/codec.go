package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"

	"github.com/checkfu/checkfu/internal/canonical"
)

// Message is any value of this package that travels as JSON.
type Message interface {
	// form checks what is the wire's own in the message: its ids, offsets,
	// timestamps and digests. It returns a *Error with TagMalformed.
	form() error
}

// Encode gives the canonical JSON of m with its text escaped. It refuses what
// Decode would refuse, so that a caller learns of it before anything is sent.
// Errors: *Error with TagMalformed (m breaks a rule of the wire) or
// TagPayloadTooLarge (over the 8 MiB of any JSON body).
// Ownership: m must not change during the call; the result is the caller's.
func Encode(m Message) ([]byte, error) {
	if err := m.form(); err != nil {
		return nil, err
	}
	data, err := canonical.Encode(m)
	if errors.Is(err, &canonical.Error{Reason: canonical.ReasonInvalidUTF8}) || bytes.Contains(data, mark) {
		data, err = canonical.Encode(mapText(reflect.ValueOf(m), Escape).Interface())
	}
	if err != nil {
		return nil, malformed(err)
	}
	if len(data) > MaxResponseBytes {
		return nil, tooLarge(MaxResponseBytes)
	}
	return data, nil
}

// mark is how U+0000 stands in JSON. A raw NUL is refused there.
var mark = []byte(`\u0000`)

// Decode reads one message: strict JSON, then the wire's own rules, with every
// text unescaped.
// Errors: *Error with TagMalformed, whose Pointer names the field;
// TagPayloadTooLarge.
// Bounds: data is at most 8 MiB.
// Ownership: nothing in the result refers to data.
func Decode[M Message](data []byte) (M, error) {
	var m M
	if len(data) > MaxResponseBytes {
		return m, tooLarge(MaxResponseBytes)
	}
	if err := canonical.Decode(data, &m); err != nil {
		return *new(M), malformed(err)
	}
	if bytes.Contains(data, mark) {
		ok := true
		m = mapText(reflect.ValueOf(m), func(s string) string {
			raw, fine := Unescape(s)
			ok = ok && fine
			return raw
		}).Interface().(M)
		if !ok {
			return *new(M), &Error{Tag: TagMalformed, Message: "U+0000 that begins no escape"}
		}
	}
	if err := m.form(); err != nil {
		return *new(M), err
	}
	return m, nil
}

// malformed names the field that a decoder refused.
func malformed(err error) *Error {
	e := &Error{Tag: TagMalformed, Err: err}
	if c := (*canonical.Error)(nil); errors.As(err, &c) {
		e.Pointer = cut(c.Path, MaxErrorTextBytes)
	}
	return e
}

func tooLarge(limit int64) *Error { return &Error{Tag: TagPayloadTooLarge, MaximumBytes: limit} }

// at names an element of a list.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// cut keeps at most n bytes, at a character's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
