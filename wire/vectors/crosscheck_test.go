package vectors_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/vectors"
)

var vectorsFiles = vectors.Files()

// held reads what the Runner holds in a scenario. It is indented there.
func held[T any](t *testing.T, s authorkit.Scenario) (value T) {
	t.Helper()
	if err := canonical.Decode(s.Holds, &value); err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return value
}

func answer[M wire.Message](t *testing.T, s authorkit.Scenario) M {
	t.Helper()
	m, err := wire.Decode[M](raw(t, s.Hex))
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return m
}

// TestAnswers_AreRefusedForTheOneThingThatIsWrong: the Runner's own comparison
// finds exactly what the scenario says, and every check has a scenario.
func TestAnswers_AreRefusedForTheOneThingThatIsWrong(t *testing.T) {
	found := map[string]map[string]bool{}
	for _, s := range scenarios(t, "identity", "snapshot", "clone", "evidence") {
		var differences iter.Seq[crosscheck.Difference]
		switch s.Kind {
		case "identity":
			want, got := held[sandbox.Instance](t, s), answer[wire.InstanceHandoff](t, s).Value
			differences = crosscheck.Instance(&want, &got)
		case "snapshot":
			want, got := held[sandbox.Snapshot](t, s), answer[wire.SnapshotHandoff](t, s).Value
			differences = crosscheck.Snapshot(&want, &got)
		case "clone":
			request, got := held[sandbox.CloneRequest](t, s), answer[wire.SnapshotHandoff](t, s).Value
			differences = crosscheck.Clone(&request, &got)
		case "evidence":
			subject, got := held[authorkit.Subject](t, s), answer[wire.Opened](t, s).Evidence
			differences = crosscheck.Evidence(&crosscheck.Subject{Instance: subject.Instance, ProcessID: subject.ProcessID, Advertised: subject.Advertised}, &got)
		}
		all := slices.Collect(differences)
		if *s.Accept != (len(all) == 0) || (s.Refusal == nil) != *s.Accept {
			t.Errorf("%s/%s: %v", s.Kind, s.Name, all)
			continue
		}
		if *s.Accept {
			continue
		}
		r := s.Refusal
		if len(all) != 1 || all[0] != (crosscheck.Difference{Number: r.Number, Check: r.Check, Field: r.Field, Expected: r.Expected, Got: r.Got}) {
			t.Errorf("%s/%s: %v", s.Kind, s.Name, all)
		}
		if found[s.Kind] == nil {
			found[s.Kind] = map[string]bool{}
		}
		found[s.Kind][r.Check] = true
	}
	clauses := make([]string, crosscheck.EvidenceClauses)
	for i := range clauses {
		clauses[i] = fmt.Sprintf("clause-%d", i+1)
	}
	for kind, checks := range map[string][]string{
		"identity": crosscheck.InstanceChecks(), "snapshot": crosscheck.SnapshotChecks(), "evidence": clauses,
		"clone": append(crosscheck.SnapshotChecks(), crosscheck.CloneChecks()...),
	} {
		for _, check := range checks {
			if !found[kind][check] {
				t.Errorf("%s: no answer is wrong in %s", kind, check)
			}
		}
	}
}

// TestDispositions_AreWhatTheErrorsSay holds the action after a typed error
// against what the codec says of its tag, and wants every tag there.
func TestDispositions_AreWhatTheErrorsSay(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios(t, "disposition") {
		e := wire.Endpoint(s.Given.Endpoint)
		if _, ok := e.Traits(); !ok || (s.Given.Outcome == "answered") != (s.Given.Status != 0) && s.Given.Outcome != "truncated" {
			t.Errorf("%s: %+v", s.Name, s.Given)
		}
		if (s.Action == "fail") != (s.Adapter != nil) && s.Action != "stop" {
			t.Errorf("%s: %s with %s", s.Name, s.Action, s.Adapter)
		}
		failure, err := wire.DecodeError(raw(t, s.Given.Body))
		if err != nil || s.Given.Status < 400 {
			continue // untyped, or an answer
		}
		traits, _ := e.Traits()
		switch f := failure.(type) {
		case *sandbox.Error:
			seen[string(f.Kind)] = true
			if s.Action != "fail" || kindOf(t, s) != string(f.Kind) {
				t.Errorf("%s: %s", s.Name, s.Action)
			}
			if f.Operation == traits.Member && crosscheck.Misfit(traits.Member, f) != "" {
				t.Errorf("%s: %s", s.Name, crosscheck.Misfit(traits.Member, f))
			}
		case *wire.Error:
			seen[string(f.Tag)] = true
			lost := f.Tag == wire.TagOperationUnknown // the journal is gone
			if f.Retryable() != (s.Action == "retry") || !lost && f.Violation() != (s.Action == "violate") {
				t.Errorf("%s: %s", s.Name, s.Action)
			}
			if a := f.Adapter(traits.Member); a != nil && kindOf(t, s) != string(a.Kind) {
				t.Errorf("%s: %s, want %v", s.Name, s.Adapter, a)
			}
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d tags of 25", len(seen))
	}
}

func kindOf(t *testing.T, s authorkit.Scenario) string {
	t.Helper()
	var a struct{ Kind string }
	if err := json.Unmarshal(s.Adapter, &a); err != nil {
		t.Errorf("%s: %v", s.Name, err)
	}
	return a.Kind
}
