// Package sandbox is the sandbox provider contract: the members a provider
// implements, the values they exchange, the rules those values obey, and the
// closed vocabularies of both.
//
// A provider is a party that is asked to create confinement. Nothing it says
// about that confinement is proof, and everything it allocates must still be
// reclaimable; so every value here can be validated by somebody who does not
// trust its author, and every allocation comes as a [Handoff] that can be
// undone without trusting the value.
//
// Trusts: nothing. Validate methods take hostile values.
// Shapes: one JSON name per field, snake_case, in the struct tags; a field
// without omitzero is required. Zero values of closed sets are invalid.
// Units: bytes are int64 bytes, CPU is thousandths of a core, durations are
// whole seconds, times are canonical UTC strings ([Timestamp]).
// Errors: [*Error] is the closed adapter vocabulary; [*Invalid] names one
// field that broke a rule and is turned into an error by whoever found it.
// Concurrency: values are immutable once handed over; functions are pure.
// Ownership: byte slices in requests belong to the caller again when the call
// returns; byte slices in results belong to the caller.
// Source: contract, the whole document; concept "The capability envelope".
package sandbox
