// Package launch holds the built guard and relay, so that one file is enough to
// run them, and starts them.
//
// A process is started from memory, in a session of its own, with an empty
// environment and nothing but its descriptors. It is in the namespaces of the
// thread that calls, so a caller that entered a network namespace for it calls
// from that thread. It ends when it is stopped, and when its starter dies in
// whatever way: it reads a pipe of which the starter alone has
// the other end. (The kernel's signal for a parent's death is a thread's death,
// and threads of this runtime come and go.)
//
// The two are build products and not in the tree; where they were not built
// before this package, Bytes says so.
//
// Trusts: what it holds. Does not trust: that a process begins or ends in time;
// both are bounded.
// Errors: *MissingError, *StartError, *StopError.
// Concurrency: every name here can be used from many goroutines.
// Source: design "Egress".
package launch
