// Package runner does one Run: it selects a provider, provisions a machine,
// stages the mounts, runs the command as a live process, and collects the
// changes and the outputs before the machine goes.
//
// Trusts: its caller and the Spec. Does not trust: what comes back from the
// machine; every value passes package sandboxruntime, and every output file is
// written below the output directory by descriptor.
// Shapes: Spec in, Record out. Units: bytes are int64, times are milliseconds
// in the Record. Errors: *Error, which names the phase; a command that fails is
// no error, its exit is in the Record.
// Ownership: a Run owns its machine; when Run returns, the machine is gone or
// the error says that this is not known.
// Concurrency: a Runner may do any number of Runs at once.
// Source: contract "The operations"; concept "Where a provider sits".
package runner
