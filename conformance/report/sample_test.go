package report

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// hostile is what a provider would write to break a file, a terminal or a
// reader's trust.
const hostile = "\x1b[2J\x00\xff\u202e</script><b>x</b>]]>&amp;\r\n# conformant\n| a | b |\n```\n[ok](javascript:1) ![](http://x) `x` ``\\| @all me@evil.test www.evil.test https://evil.test"

// row is one that passed.
func row(id string, suite Suite) Row {
	return Row{
		ID: id, Suite: suite, Title: "Title of " + id, Status: Pass, Source: `contract "Conformance"`, Clause: "CF-01", Level: Must,
		Checks: []Check{{ID: id + ".one", Status: Pass, Times: 3}}, Milliseconds: 1234, Transcript: []int64{1, 2},
	}
}

func failed(r Row, s Status, findings ...Finding) Row {
	r.Status, r.Findings = s, findings
	for i := range r.Findings {
		r.Findings[i].Status = s
	}
	r.Checks = append(r.Checks, Check{ID: r.ID + ".two", Status: s, Times: 1})
	return r
}

func unrun(r Row, s Status, reason string) Row {
	r.Status, r.Reason, r.Checks, r.Milliseconds, r.Transcript = s, reason, nil, 0, nil
	return r
}

// sample is a run in which all nine passed.
func sample() Report {
	r := Report{
		Schema: Schema, Class: ClassDiagnostic, GradeEffect: GradeEffectNone,
		Subject: Subject{Target: "exec:./provider --fast", Provider: "acme", ProviderRevision: "r7", MaterializationRevision: "m2", Placement: sandbox.PlacementLocal},
		Suite:   SuiteInfo{Revision: "2026.12", Mutation: Mutation{Killed: 150, Total: 150}},
		Run: RunInfo{
			Nonce: "n", Seed: "7f3a", StartedAt: "2026-12-01T10:00:00.000Z", FinishedAt: "2026-12-01T10:00:09.500Z",
			Milliseconds: 9500, Suites: []Suite{Nine, Contract}, Passes: 2,
		},
		Tokens: Tokens{Derived: []Token{Process, Cleanup}, Declared: []Token{Process, Cleanup}},
		Probes: []Row{row("identity.provision", Contract), row("bounds.stdin", Contract)},
		Standing: []Row{
			row("standing.envelope", Standing),
		},
		Leaks:  Leaks{Allocated: 12, Destroyed: 12},
		Limits: []string{"evidence.enforcement is self-consistency on the wire"},
	}
	for _, id := range CaseIDs() {
		r.Cases = append(r.Cases, row(id, Nine))
	}
	r.Settle()
	return r
}

// mixed is a run with one row of every kind.
func mixed() Report {
	r := sample()
	r.Cases[2] = unrun(r.Cases[2], Skip, "snapshot is not in the envelope (snapshots=false)")
	r.Cases[3] = unrun(r.Cases[3], Withheld, "the envelope gives network-allowlist, the target hides it")
	r.Cases[4] = unrun(r.Cases[4], Blocked, "needs checkpoint-clone")
	r.Cases[5] = failed(r.Cases[5], Overclaim, Finding{
		Check: "listener", Expected: "no connection", Got: "1 connection", Hint: "network_modes has none",
	})
	r.Cases[5].Controls = []Control{{ID: "listener-live", Fired: true}}
	r.Cases[5].Observations = []string{"the listener on 443 saw 10.0.0.2"}
	r.Probes[0] = failed(r.Probes[0], Fail,
		Finding{Check: "CF-ID-16", Field: "expires_at", Expected: `"2026-12-01T00:00:00.000Z"`, Got: `"2026-12-01T00:00:00Z"`, Hint: "same instant, not same bytes"},
		Finding{Check: "CF-ID-19", Field: "image_digest", Expected: "suffix of root_image", Got: `"sha256:9c"`, Hint: "do not ask your image store"})
	r.Probes = append(r.Probes, failed(row("bounds.arguments", Contract), Fail, Finding{Check: "limit", Expected: "256 taken", Got: "refused"}))
	r.Probes[2].Expected = true
	r.Settle()
	return r
}

// poisoned has hostile text wherever a provider can put some.
func poisoned() Report {
	r := mixed()
	long := strings.Repeat("\xffé", 400)
	r.Subject.Target, r.Subject.Provider, r.Subject.ProviderRevision = hostile, hostile, long
	r.Subject.Placement = hostile
	r.Cases[5].Findings = []Finding{{Check: hostile, Status: Overclaim, Field: hostile, Expected: hostile, Got: hostile, Hint: hostile}}
	r.Cases[5].Observations = []string{hostile, long}
	r.Cases[4].Reason = hostile
	r.Probes[0].Title, r.Probes[0].Source, r.Probes[0].Clause = hostile, hostile, hostile
	r.Leaks.Undestroyed, r.Leaks.Unknown, r.Leaks.Census = []string{hostile}, []string{long}, []string{hostile}
	r.Ceiling = []Narrowing{{Path: hostile, Claimed: hostile, Admitted: hostile}}
	r.Limits = []string{hostile, "1. not a list", "- nor this"}
	r.Stale = []Stale{{ID: "gone", Link: "https://x/" + hostile, Expires: "2026-01-01", Line: 3, Reason: hostile}}
	r.Settle()
	return r
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
