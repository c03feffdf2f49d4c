// Package matrix attacks an egress guard from the workload's side and judges it
// from all others.
//
// Each Case is one attack or one thing that must work. Its verdict is not what
// the guard answered, or not that alone: a guard that checks an address and
// then resolves anew answers exactly as a right one does. It is five things
// together: the answer; which address accepted a connection, and what it got;
// every packet that arrived in the lab's internet, each of which must be
// explained; the questions to the resolver; and the guard's decision line.
//
// A refusal proves nothing where nothing was to be reached. So every address
// that a case must not reach was reached directly in the same run, first and
// last, and so was what must be reached through the guard; where one of these
// controls does not fire, the cases that lean on it are errors and never passes.
//
// Layers hide each other, so everything runs in three configurations: the guard
// alone, the kernel's gate alone (behind a guard whose classifier is gone), and
// both. And a matrix that catches nothing certifies nothing: Mutants are guards
// that are wrong in one way, each with the case that must say so.
//
// What a case does not judge yet is NotRun, by name, and the run incomplete.
//
// Trusts: internal/egress/lab, the kernel. Does not trust: the guard, whatever
// it says.
// Errors: in a Result, never a panic; Run's own are *lab.Error and of the start
// of a guard.
// Ownership: Run leaves no process, file, socket or namespace behind.
// Concurrency: one Run at a time has 2,000 connections at most.
// Source: grading "The five facts, and the three that cannot be self-attested";
// design "Egress".
package matrix
