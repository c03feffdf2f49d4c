// Package policy is the rule of the egress guard, and nothing else of it: which
// words of a request name a destination, which destinations are listed, and
// which addresses a listed name may lead to.
//
// The guard asks in this order, and each question is one call here:
//
//	ParseTarget       is this one exact host and port, in the only spelling?
//	List.Match        is it listed? (before any name is resolved)
//	Infrastructure    Answers: is every address of the answer public, and none
//	                  of our own machinery? Connect: is the one dialled still so?
//	Pins              the same two, where the operator has said where a host lives
//
// An address is public when it lies in no row of the special-purpose tables,
// also not in one that its registry calls globally reachable, and, for IPv6,
// when it lies in 2000::/3. Everything that is not said here is refused.
//
// Trusts: the destinations, reserved hosts and infrastructure addresses that
// its caller compiled. Does not trust: the target, and any address.
// Shapes: hosts are lower-case ASCII names without a trailing dot; addresses are
// netip.Addr; ports are 1 to 65535.
// Errors: what a request breaks is a *Refusal with one Reason of a closed set;
// what a configuration breaks is a *sandbox.Invalid, and no guard starts on it.
// Concurrency: everything is immutable once made; any number of goroutines may
// call anything. What is admitted costs no allocation.
//
// It does no I/O, reads no clock and links neither net nor os, so that the same
// rule can judge in the guard, in its tests and in whoever reviews a log.
//
// Source: grading "The five facts, and the three that cannot be self-attested".
package policy
