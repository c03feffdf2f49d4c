// Package crosscheck is what is compared of a provider's results: the
// twenty-one identity checks of an instance, the nine of a snapshot and three
// more of a clone, the sixteen clauses of a process's evidence, and whether an
// error can be an answer at all. The Runner refuses at the first difference;
// the conformance suite reports every one.
//
// It is pure: it holds what was asked for against what came, and neither
// calls nor keeps anything. Nothing can switch a check off for the Runner.
// Concurrency: all functions may be called by many goroutines at once.
// Source: contract "Identity is cross-checked, not trusted"; "openProcess";
// "Errors".
package crosscheck

import "iter"

// Difference is one check that did not hold. Number counts from 1 within its
// kind of check; Check is the name that the tables below give it; Field is the
// first leaf that differs, in JSON names. Whatever cannot be compared (an id
// that is the provider's to choose) has number 0.
type Difference struct {
	Number   int
	Check    string
	Field    string
	Expected string
	Got      string
}

// First returns the first of differences, if there is one.
func First(differences iter.Seq[Difference]) (Difference, bool) {
	for d := range differences {
		return d, true
	}
	return Difference{}, false
}
