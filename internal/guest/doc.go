// Package guest is what runs inside a machine, and the host's side of talking
// to it.
//
// The guest init has eight modes: "init" (reap, nothing else), "serve" (PID 1
// that starts commands for the host over one inherited socket), "seal" (no
// further namespaces in this machine), "specials" (one pass over the special
// files that only the guest can see), "pty" (a command of the workload on a
// terminal of the machine's own), "dial" (one connection to a server in the
// machine), "nursery" (a child of "init" that starts what is to outlive the command
// that asked for it) and "detach" (which asks it). Client is the host's end of "serve", Keyboard that of "pty".
//
// Trusts: the host end of the socket. Does not trust: any process of the
// workload, which may hold the same uid; nor, in Client, any byte that comes
// out of the machine.
// Bounds: a message is at most MaxMessage bytes and carries at most four
// descriptors.
// Errors: decoders refuse with *WireError; a command that could not start is
// *StartFailure.
// The package keeps clear of fmt and net: the guest binary links it and is
// mapped once per machine.
// Source: contract "The operations"; concept "The enforcement statement".
package guest
