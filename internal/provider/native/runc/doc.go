// Package runc starts machines with the runc binary of the host: namespaces,
// seccomp and cgroups over the host's own kernel.
//
// runc is run once for each machine. It starts our guest init, and every later
// command goes through init's socket. Each command is born in a cgroup of its
// own, so that a kill is exact whatever the command's descendants do.
//
// Trusts: the Spec, runc, the kernel. Does not trust: the workload. Believes
// of the guest init only that an exit which it reports is the one it saw; what
// Observe says comes from the host's kernel alone.
// Ownership: the state below Options.Root and in cgroups below
// Options.CgroupParent that bears a machine's id, and StateDir/runc.
// Concurrency: every method may be called by many goroutines at once.
// Source: contract "The operations"; concept "The enforcement statement".
package runc
