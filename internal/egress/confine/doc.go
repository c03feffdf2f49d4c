// Package confine is what an egress process does to itself before it reads its
// first request: the guard and the relay meet hostile bytes, so whatever those
// bytes make of them must find nothing to take and nowhere to go.
//
// The steps, in this order and all or nothing: an empty environment, no
// descriptor but the named ones, no core, a bound on descriptors, no new
// privileges, no capability and an unprivileged user, not dumpable, Landlock (no
// file at all, the named TCP ports, no abstract socket and no signal outside) and
// a seccomp filter that knows what a Go network server calls.
//
// Trusts: its launcher, which names user, descriptors and ports. Does not trust:
// anything that is read afterwards.
// Errors: *Error, which names the step, what it needs and what it found. After
// one the process is half confined and must end; a kernel that lacks a step is
// never a reason to go without it, except Landlock, where the launcher says so.
// Concurrency: Self is called once, from any goroutine; every step reaches all
// threads, those that run and those to come.
// The program must be linked without cgo: the runtime reaches all threads only
// then. Linux on amd64 and arm64.
// Source: design "Egress".
package confine
