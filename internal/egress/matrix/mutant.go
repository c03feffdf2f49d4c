package matrix

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
)

// Mutant is a guard, or an environment, that is wrong in one way, and whether the
// case that must say so did.
type Mutant struct {
	Name          string        `json:"name"`
	Topology      string        `json:"topology"`
	Configuration Configuration `json:"configuration"`
	Case          string        `json:"case"`   // that must fail
	Killed        bool          `json:"killed"` // it did
	Said          string        `json:"said"`   // what it said
}

// String is a line for a person.
func (m Mutant) String() string {
	at := " (" + m.Topology + ", " + string(m.Configuration) + ")"
	if m.Killed {
		return "mutant " + m.Name + " is killed by " + m.Case + at
	}
	return "mutant " + m.Name + " LIVES: " + m.Case + " said " + m.Said + at
}

// elsewhere is the mutant whose fault is in no guard: the environment of a real
// machine names somebody else.
const elsewhere = "environment-names-another"

// elsewhereEnvironment is what it says.
var elsewhereEnvironment = map[string]string{"https_proxy": "http://10.77.0.10:3128"}

// killer is a mutant, the case that it must not survive, and where it applies.
type killer struct {
	mutant, by string
	in         []Configuration
}

// killers are all of them. A fault of the classifier is none where the guard has no
// classifier anyway; a machine's environment is the same in front of any kernel.
var killers = func() []killer {
	anywhere, classified, once := Configurations(), []Configuration{GuardOnly, Both}, []Configuration{GuardOnly}
	return []killer{
		{"no-classifier", "P03", classified},
		{"check-then-resolve-again", "P74", anywhere},
		{"answers-cached", "R12", anywhere},
		{"checked-once", "R12", classified},
		{"first-answer-only", "P68", classified},
		{"first-public-answer", "P68", classified},
		{"private-blocks-only", "P22", classified},
		{"no-infrastructure", "P77", classified},
		{"suffix-match", "E04", anywhere},
		{"prefix-match", "E05", anywhere},
		{"port-ignored", "E02", anywhere},
		{"port-modulo", "E23", anywhere},
		{"unicode-mapped", "E09", anywhere},
		{"dot-stripped", "E07", anywhere},
		{"case-kept", "E06", anywhere},
		{"resolve-before-match", "D16", anywhere},
		{"resolver-fails-open", "D20", anywhere},
		{"empty-list-allows", "D17", anywhere},
		{"sni-ignored", "E42", anywhere},
		{"missing-sni-passes", "E43", anywhere},
		{"ech-ignored", "E44", anywhere},
		{"socket-unchecked", "P88", classified},
		{"peer-unchecked", "P90", classified},
		{failsOpen, "D19", anywhere},
		{elsewhere, "A15", once},
	}
}()

// kill runs each mutant that applies here against the case that must catch it; and
// first the same guard without a fault, because a case that fails for another
// reason catches nothing.
func (a *arena) kill(ctx context.Context) {
	unharmed := map[string]string{} // what was wrong, by case
	for _, k := range killers {
		i := slices.IndexFunc(a.cases, func(c Case) bool { return c.ID == k.by })
		if i < 0 || a.absent(a.cases[i]) != "" || !slices.Contains(k.in, a.configuration) {
			continue // not asked for, or it cannot be: then nothing is said
		}
		c := a.cases[i]
		if _, known := unharmed[k.by]; !known {
			unharmed[k.by] = ""
			if status, reason := a.judgeMutant(ctx, "", c); status != report.Pass {
				unharmed[k.by] = "of what has no fault: " + string(status) + " " + reason
			}
		}
		m := Mutant{Name: k.mutant, Topology: string(a.topology), Configuration: a.configuration, Case: k.by, Said: unharmed[k.by]}
		if m.Said == "" {
			status, reason := a.judgeMutant(ctx, k.mutant, c)
			m.Killed, m.Said = status == report.Fail, string(status)+" "+reason
		}
		if ctx.Err() != nil {
			return // what was cut off says nothing of a fault
		}
		a.mutants = append(a.mutants, m)
	}
}

// judgeMutant judges one case with one fault; with "" it has none. A guard that
// crashes, or a machine under load, fails any case: neither was caught by its fault.
func (a *arena) judgeMutant(ctx context.Context, fault string, c Case) (report.Status, string) {
	base := "plain"
	if a.configuration == KernelOnly {
		base = "no-classifier"
	}
	b := a.bench(nil)
	switch b.base = base; fault {
	case "":
	case failsOpen, elsewhere:
	default:
		b.base += "+" + fault
	}
	b.start = altered(b.base)
	if fault == failsOpen {
		b.start = a.failingOpen(b.start)
	}
	if fault == elsewhere {
		b.environment = elsewhereEnvironment
	}
	var began []*process
	b.began = &began
	t := &trial{bench: b, ctx: ctx}
	if !c.alone {
		own, err := t.own(nothing)
		if err != nil {
			return report.Error, err.Error()
		}
		t = own
	}
	run := c.run
	c.run = func(t *trial) error {
		err := run(t)
		if late(err) {
			err = blind(err)
		}
		return err
	}
	status, reason, _ := t.judge(c)
	var gone error
	if t.guard != nil {
		if status == report.Fail {
			gone = t.answersStill()
		}
		t.guard.end() // how it ended is asked below
	}
	if status != report.Fail || fault == failsOpen { // whose guard is killed by its case
		return status, reason
	}
	for _, p := range began {
		gone = errors.Join(gone, p.err())
	}
	if gone != nil {
		return report.Error, "the mutant ended by itself: " + strings.ReplaceAll(gone.Error(), "\n", "; ") + "; before: " + reason
	}
	return status, reason
}

// answersStill holds that the guard is there: to what is no request it says so, with
// any fault.
func (t *trial) answersStill() error {
	c, err := dial(t.ctx, t.lab, t.guard.door.Entry)
	if err != nil {
		return err
	}
	defer c.Close()
	status, err := c.ask("nothing\r\n\r\n")
	if err == nil && status == closed {
		err = errors.New("no answer any more")
	}
	return err
}
