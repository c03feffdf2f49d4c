package evidence

import (
	"fmt"
	"slices"
	"strconv"
)

// Configuration is what stands between the workload and the internet in one
// run of the matrix. Each layer is tried without the other, because one masks
// that the other is missing.
type Configuration string

// The three configurations.
const (
	GuardOnly  Configuration = "guard_only"
	KernelOnly Configuration = "kernel_only"
	Both       Configuration = "both"
)

// Configurations returns the three.
func Configurations() []Configuration { return []Configuration{GuardOnly, KernelOnly, Both} }

// Outcome is how a case ended in one configuration.
type Outcome string

// The three outcomes. A receipt with a failed case cannot be made.
const (
	Pass Outcome = "pass"
	Skip Outcome = "skip"
	Fail Outcome = "fail"
)

// Case is one case of the matrix in its three configurations.
type Case struct {
	ID         string  `json:"id"`
	GuardOnly  Outcome `json:"guard_only"`
	KernelOnly Outcome `json:"kernel_only"`
	Both       Outcome `json:"both"`
	// Reason says why it was skipped wherever it was; it is there exactly then.
	Reason string `json:"reason,omitzero"`
}

// In returns the outcome in one configuration.
func (c Case) In(k Configuration) Outcome {
	switch k {
	case GuardOnly:
		return c.GuardOnly
	case KernelOnly:
		return c.KernelOnly
	case Both:
		return c.Both
	}
	return ""
}

// Passed reports whether c passed in one configuration at least.
func (c Case) Passed() bool {
	return c.GuardOnly == Pass || c.KernelOnly == Pass || c.Both == Pass
}

// series are the cases of each fact: its letter, and the number of the last.
var series = []struct {
	letter byte
	last   int
}{{'E', 53}, {'P', 90}, {'R', 13}, {'D', 38}, {'A', 17}}

// Unseen is the one case that may be skipped in every configuration: a name
// inside TLS on a shared CDN, which nobody sees without ending the TLS.
const Unseen = "E52"

// CaseIDs returns the ids of the 211 cases, in the order of a receipt: E01 to
// E53, P01 to P90, R01 to R13, D01 to D38, A01 to A17.
func CaseIDs() []string {
	var all []string
	for _, s := range series {
		for n := range s.last {
			all = append(all, fmt.Sprintf("%c%02d", s.letter, n+1))
		}
	}
	return all
}

// Tally makes the cases of a receipt out of what a run says of each in each
// configuration: an outcome, and for a skip its reason, of which the first of a
// case is kept. Whatever is neither Pass nor Skip stays as it is said, and no
// receipt can be sealed over it.
func Tally(said func(id string, k Configuration) (Outcome, string)) []Case {
	ids := CaseIDs()
	cases := make([]Case, len(ids))
	for i, id := range ids {
		c := &cases[i]
		c.ID = id
		for k, into := range []*Outcome{&c.GuardOnly, &c.KernelOnly, &c.Both} {
			outcome, reason := said(id, Configurations()[k])
			if *into = outcome; outcome == Skip && c.Reason == "" {
				c.Reason = reason
			}
		}
	}
	return cases
}

// checkCases wants each case once, passed in one configuration at least and
// failed in none.
func checkCases(cases []Case) error {
	ids := CaseIDs()
	for i, id := range ids {
		at := "cases[" + strconv.Itoa(i) + "]"
		if i >= len(cases) {
			return refuse(ReasonCase, at, id, "the end of the list")
		}
		c := cases[i]
		if c.ID != id {
			return refuse(ReasonCase, at+".id", id, c.ID)
		}
		skipped := false
		for _, k := range Configurations() {
			switch got := c.In(k); got {
			case Pass, Skip:
				skipped = skipped || got == Skip
			default:
				return refuse(ReasonCase, at+"."+string(k), id+" to pass, or to be skipped with a reason", string(got))
			}
		}
		switch {
		case !c.Passed() && id != Unseen:
			return refuse(ReasonCase, at, id+" to pass in one configuration", "skipped in all")
		case skipped != (c.Reason != ""):
			return refuse(ReasonCase, at+".reason", "one exactly where a configuration was skipped", c.Reason)
		case len(c.Reason) > 200 || !printable(c.Reason):
			return refuse(ReasonCase, at+".reason", "at most 200 printable ASCII characters", c.Reason)
		}
	}
	if len(cases) > len(ids) {
		return refuse(ReasonCase, "cases["+strconv.Itoa(len(ids))+"]", "the end of the list", cases[len(ids)].ID)
	}
	return nil
}

// Mutant is one guard that was made wrong on purpose. A matrix that lets one
// live proves nothing about the guard that is right.
type Mutant struct {
	Name          string        `json:"name"` // ^[a-z0-9][a-z0-9._-]{0,63}$
	Configuration Configuration `json:"configuration"`
	KilledBy      string        `json:"killed_by"` // the id of a case, which passes with the guard that is right
}

// The bounds on mutants: eight kinds of fault at the least (classifier deleted,
// checked and then resolved again, suffix match, first answer only, port
// ignored, SNI ignored, open when killed, empty list allows).
const (
	MinMutants = 8
	MaxMutants = 256
)

func checkMutants(mutants []Mutant, cases []Case) error {
	names := map[string]bool{}
	for i, m := range mutants {
		at := "mutants[" + strconv.Itoa(i) + "]"
		switch {
		case !slug(m.Name):
			return refuse(ReasonMutant, at+".name", "^[a-z0-9][a-z0-9._-]{0,63}$", m.Name)
		case !slices.Contains(Configurations(), m.Configuration):
			return refuse(ReasonMutant, at+".configuration", "a configuration", string(m.Configuration))
		case i > 0 && !mutants[i-1].before(m):
			return refuse(ReasonMutant, at, "ascending by name and configuration, none twice", m.Name)
		case m.KilledBy == "":
			return refuse(ReasonMutant, at+".killed_by", m.Name+" to be killed", "a survivor")
		}
		k := slices.IndexFunc(cases, func(c Case) bool { return c.ID == m.KilledBy })
		if k < 0 || cases[k].In(m.Configuration) != Pass {
			return refuse(ReasonMutant, at+".killed_by", "a case that passes in "+string(m.Configuration), m.KilledBy)
		}
		names[m.Name] = true
	}
	switch {
	case len(mutants) > MaxMutants:
		return refuse(ReasonMutant, "mutants", "at most "+strconv.Itoa(MaxMutants), strconv.Itoa(len(mutants)))
	case len(names) < MinMutants:
		return refuse(ReasonMutant, "mutants", "at least "+strconv.Itoa(MinMutants)+" of different names", strconv.Itoa(len(names)))
	}
	return nil
}

func (m Mutant) before(n Mutant) bool {
	if m.Name != n.Name {
		return m.Name < n.Name
	}
	return m.Configuration < n.Configuration
}
