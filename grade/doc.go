// Package grade is the judgement over what a provider claims of itself: the
// order of the egress grades and of the authorities, what a policy requires,
// and what of an envelope is admitted. It compares; it never infers, upgrades
// or averages.
//
// Trusts: the Standing that its caller holds. Does not trust: the claim.
// Shapes: those of package sandbox. A ceiling is an envelope, read as the most
// that may be claimed.
// Errors: *Nothing, where no envelope is left. The Runner refuses the provider
// with it, before any provider work.
// Ownership: nothing that is given is kept or changed. Concurrency: all
// functions are pure and may be called by many goroutines at once.
// Source: grading "The grading rule"; "The enforcement ceiling gap"; concept
// "The enforcement statement".
package grade
