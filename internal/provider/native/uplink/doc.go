// Package uplink gives one machine a way to the whole internet, and a fence
// that keeps it off everything else that its host could reach: the host itself,
// networks that are not public, and every other machine.
//
// What there is of one uplink, and where:
//
//	the machine's namespace   lo, and eth0 with one IPv4 address and a default route
//	the host's                the other end of that link, checkfuN; one table, checkfu-ID
//
// The machine's namespace lives by a descriptor of this process and by the
// machine's own processes, and the link ends with it: an owner that is killed
// leaves the table and nothing else, and the table is what a sweep removes, last.
// A fence outlives what it fences.
//
// The number in the link's name is its place in a block of addresses of ours.
// The kernel gives a name out once, so two programs that know nothing of each
// other never give two machines one address.
//
// What is fenced off is what package policy holds for not public, so that
// "the internet" means the same here as it does to a guard, and beside it all
// that the host would deliver to itself, under whatever address. The rules are
// looked at after the host has rewritten a destination.
//
// Trusts: root, the kernel, the ids it is given. Does not trust: what comes out
// of the machine, whoever sends it, with whatever source.
// Errors: *Error, which names the step; *Lack, what the host is short of.
// Concurrency: every function may be called by many goroutines at once.
// Ownership: Close ends an uplink; Host.Remove does what Close does from the id
// alone, after a crash.
// Source: concept "The capability envelope", network_modes; design "Egress" (veth).
package uplink
