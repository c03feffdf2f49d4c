// Package sandboxruntime is the Runner's side of the sandbox seam: it selects
// one provider, admits every call, drives it, cross-checks every result, and
// then owns the allocation or unwinds it.
//
// Trusts: its caller, the clock it is given, and its own memory of what it
// asked for. Does not trust: anything a provider returns, says in an error,
// takes its time over, or panics with.
// Shapes: the members of [sandbox.Provider] as plain values in place of
// handoffs.
// Units: bytes are int64 bytes; bounds on waiting are seconds of [Clock].
// Errors: [*sandbox.Error] for a refusal or a failure of the closed adapter
// vocabulary, [*Error] for the three kinds that only a Runner may author,
// [*Defect] for a provider that broke the contract, ctx's own error for an
// interruption before ownership. A failed compensation is joined to the
// rejection that caused it.
// Ownership: a nil error means that the caller owns the value and has to
// release or destroy it; any error means that the allocation was unwound, or
// that the error says why that is not known.
// Blocks: a call ends with the provider's answer. When ctx is done the provider
// has 30 s more to come back before it is left behind; whatever it brings
// after that is rolled back, destroyed or aborted without a caller.
// Concurrency: all methods may be called at once. Commands, reads and writes
// of one instance run beside each other. Changes of its lifecycle are
// compare-and-set: activate and release are refused as busy while another call
// on that instance is in flight, destroy is always accepted, and whatever is
// overtaken by a destroy is refused and unwound.
// Source: contract, the whole document; concept "Where a provider sits".
package sandboxruntime
