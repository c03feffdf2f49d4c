package matrix

import (
	"cmp"
	"slices"
	"strings"
)

// Cases returns all of them, in the order of the facts and of their numbers.
func Cases() []Case {
	cases := slices.Concat(exactCases(), headCases(), helloCases(), addressCases(), boxCases(), redirectCases(), directCases(), guardCases(), authorityCases())
	order := func(c Case) int { return strings.IndexByte("EPRDA", c.ID[0]) }
	slices.SortFunc(cases, func(a, b Case) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.ID, b.ID)) })
	return cases
}
