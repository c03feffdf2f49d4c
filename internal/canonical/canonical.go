// Package canonical gives every value one byte form: canonical JSON, the strict
// decoder of that JSON, and SHA-256 digests. The form of timestamps and digests is
// checked by package sandbox, which owns them.
//
// It exists because encoding/json lets through, even with unknown fields
// disallowed, a key given twice, a key in the wrong case, bytes after the
// value, a lone surrogate (silently replaced) and null. Each of them lets two
// readers of the same bytes see two different values.
//
// Trusts: the Go types it is given. Does not trust: one byte of the input.
// Shapes: structs whose exported fields carry `json:"snake_case"` tags, maps
// with string keys, slices, strings, booleans, integers, and pointers to these.
// A field whose tag has omitempty or omitzero is optional: absent when empty,
// or when it is the zero value. Every other field is required. Refused as
// types: floats, interfaces, arrays, byte slices, embedded and untagged
// fields, pointers to pointers. MarshalJSON, MarshalText and IsZero methods are
// not consulted.
// Units: offsets are bytes from the start of the input.
// Bounds: integers lie within ±MaxInteger; nesting is at most MaxDepth.
// Errors: always *Error. Concurrency: all functions may be called by many
// goroutines at once; nothing that they are given is kept.
// Source: contract "The operations"; RFC 8785; RFC 8259.
package canonical

// MaxInteger is the largest magnitude of an integer: 2^53-1, the largest that
// a reader which holds numbers as doubles can tell from its neighbours.
const MaxInteger = 1<<53 - 1

// MaxDepth is the deepest nesting of objects and arrays; the outermost one has
// depth 1.
const MaxDepth = 16
