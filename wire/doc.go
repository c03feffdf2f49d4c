// Package wire is what a Runner and a sandbox provider say to each other over
// HTTP: the endpoints, their headers, the frames that carry bytes, the JSON
// messages, and the errors. It opens no socket: wire/client and wire/server do,
// and both stand on this one codec, so that they cannot disagree.
//
// One call is one POST to {base}/v1/{endpoint}. Values travel as JSON, file
// bytes and streams as binary frames, never as base64. The Runner mints the ids
// of operations and processes before it calls, so that a lost answer can always
// be undone by an id that the caller already has.
//
// Trusts: nothing that arrives. Both ends are strict in the same way: objects
// are closed, keys are exact, nothing is null, integers are integers.
// What is checked here is the wire's own form: frames, JSON, ids that the wire
// mints, offsets, timestamps and digests of requests, sizes of bodies. The
// contract's own rules (paths, closed sets, counts, identity) are not: a
// provider refuses those, and the Runner cross-checks what comes back, with the
// contract's own errors. So an outcome is the same with and without a wire.
//
// Text: a JSON string cannot hold every byte string, and file names, arguments
// and environment values can be any. See [Escape].
// Bounds: limit.go. An over-long frame is refused before it is allocated.
// Errors: [*Error], one of the seventeen wire tags; [*FrameError] for a broken
// frame; [*sandbox.Error] where a body carried one of the eight adapter errors.
// Ownership: every function says whose bytes it returns.
// Concurrency: functions are pure; a Reader or a Writer belongs to one
// goroutine at a time.
// Source: the wire's decisions are recorded in docs/divergences.md; contract
// "The operations", "Bounds", "Errors", "openProcess", "Allocation handoff".
package wire
