// Package canary counts how often a secret lies in another process: in its
// environment, its arguments, its memory, and behind its descriptors. A process
// that must not hold a key or a token is shown not to, with a secret made for the
// occasion; that the scan can find one is shown on a process that holds it.
//
// It sees the bytes of the secret as they are, while it looks: not an encoding of
// them, and not what was there before and was overwritten.
//
// Trusts: the kernel. Does not trust: what the process says of itself. Needs root,
// or the power to trace the process; one that is not dumpable opens to root only.
// Errors: *Error, whenever something that is there could not be looked at: a
// number is never the count of a part.
// Concurrency: scans can run side by side, also of one process.
// Bounds: MaxMemory and MaxFile; ctx ends a scan.
// Source: grading "The five facts, and the three that cannot be self-attested", authority_separation.
package canary
