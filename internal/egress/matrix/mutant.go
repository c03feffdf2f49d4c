package matrix

import (
	"context"
	"slices"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
)

// Mutant is a guard that is wrong in one way, and whether the case that must say
// so did.
type Mutant struct {
	Name     string `json:"name"`
	Topology string `json:"topology"`
	Case     string `json:"case"`   // that must fail
	Killed   bool   `json:"killed"` // it did
	Said     string `json:"said"`   // what it said
}

// String is a line for a person.
func (m Mutant) String() string {
	if m.Killed {
		return "mutant " + m.Name + " is killed by " + m.Case + " (" + m.Topology + ")"
	}
	return "mutant " + m.Name + " LIVES: " + m.Case + " said " + m.Said + " (" + m.Topology + ")"
}

// killers are the mutants and the case that each must not survive.
var killers = []struct{ mutant, by string }{
	{"no-classifier", "P03"},
	{"check-then-resolve-again", "P74"},
	{"first-answer-only", "P68"},
	{"first-public-answer", "P68"},
	{"private-blocks-only", "P22"},
	{"no-infrastructure", "P77"},
	{"suffix-match", "E04"},
	{"prefix-match", "E05"},
	{"port-ignored", "E02"},
	{"port-modulo", "E23"},
	{"unicode-mapped", "E09"},
	{"dot-stripped", "E07"},
	{"case-kept", "E06"},
	{"resolve-before-match", "D16"},
	{"resolver-fails-open", "D20"},
	{"empty-list-allows", "D17"},
	{"sni-ignored", "E42"},
	{"missing-sni-passes", "E43"},
	{"ech-ignored", "E44"},
	{"socket-unchecked", "P88"},
	{"peer-unchecked", "P90"},
	{failsOpen, "D19"},
}

// kill runs each mutant against the case that must catch it, without the
// kernel's gate, which would hide some of them; and first the same guard without
// a fault, because a case that fails for another reason catches nothing.
func (a *arena) kill(ctx context.Context) {
	judge := func(name string, c Case) (status report.Status, reason string) {
		b := a.bench(GuardOnly, altered(name))
		b.base = name
		if name == failsOpen {
			b.start = a.failingOpen(product)
		}
		t := &trial{bench: b, ctx: ctx}
		if c.alone {
			status, reason, _ = t.judge(c)
			return status, reason
		}
		own, err := t.own(nothing)
		if err != nil {
			return report.Error, err.Error()
		}
		defer own.guard.end()
		var took time.Duration
		status, reason, took = own.judge(c)
		_ = took
		return status, reason
	}
	for _, k := range killers {
		i := slices.IndexFunc(a.cases, func(c Case) bool { return c.ID == k.by })
		if i < 0 || a.cases[i].run == nil {
			continue // not asked for, or not there yet: then nothing is said
		}
		m := Mutant{Name: k.mutant, Topology: string(a.topology), Case: k.by}
		if status, reason := judge("plain", a.cases[i]); status != report.Pass {
			m.Said = "of a guard without a fault: " + string(status) + " " + reason
		} else {
			status, reason := judge(k.mutant, a.cases[i])
			m.Killed, m.Said = status == report.Fail, string(status)+" "+reason
		}
		a.mutants = append(a.mutants, m)
	}
}
