// Package authorkit makes the author kit of the wire from the Go types and
// tables of package wire: JSON Schemas, an OpenAPI document and golden vectors.
// Package wire/vectors holds what it made, and is what others read.
//
// Trusts: the types and tables of this module, which are its only input. It
// reads no file and no clock, so that the kit is a function of the source.
// Shapes: a schema is a map that encoding/json prints with sorted keys.
// Errors: none; a type or a field that the tables here do not know is a defect
// of this package and panics, at generation and in its tests, never in a
// product: nothing but the generator links it.
// Concurrency: all functions are pure.
// Source: contract "Machine-readable author kit"; the wire's choices stand in
// docs/divergences.md, rows 26 and 35 to 42.
package authorkit
