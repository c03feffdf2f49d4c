// Package lab is a small internet on one Linux host, made of network
// namespaces, in which a guard can be attacked and watched from all sides.
//
//	wl  the workload, whose root is hostile     gd  the guard
//	rl  the relay                               pl  the plane
//	pub everybody else, at every address there is
//	nb  another sandbox                         out one host of pub
//
//	wl ─(by topology)─ gd ── pub        wl ─(by topology)─ rl ── pl
//	                   gd ── nb          out ── pub
//
// There is no link between gd and pl and none between rl and pub: that absence
// is what separates the authorities. In pub every address of both families is
// local (a route, not a list), so a special address is as live there as a
// public one, and a guard that lets one pass is seen to have done so.
//
// Four things are seen from outside, none of which the workload or the guard can
// write: which address accepted a connection and what it got (Ledger), each
// packet that arrived (Tap), each question to the resolver (Resolver), and the
// counters of the kernel's gate (Gate).
//
// Nothing has a name on the host: a namespace lives by the descriptor that this
// process holds, a link by its namespaces. So a lab ends with its process,
// whatever ended it; only the directory of the socket files can outlive a kill,
// and Sweep removes it.
//
// Trusts: the kernel and root, who must run it. Does not trust: what is sent to
// its sinks, bounded in Ledger and Tap.
// Errors: *Error, which names the step.
// Ownership: Close ends everything, at once and in any state.
// Concurrency: all methods may be called by many goroutines at once.
// Source: design "Egress"; grading "Conformance".
package lab
