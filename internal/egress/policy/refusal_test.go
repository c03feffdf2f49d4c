package policy_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

func TestTheReasonsAreAClosedSet(t *testing.T) {
	source, err := os.ReadFile("refusal.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1)
	if all := policy.Reasons(); len(all) != 20 || len(declared) != len(all) {
		t.Fatalf("%d reasons, %d declared; expected 20", len(all), len(declared))
	}
	for i, r := range policy.Reasons() {
		if declared[i][1] != string(r) || r.Error() != string(r) {
			t.Errorf("reason %d is %s, declared as %s", i, r, declared[i][1])
		}
	}
}

func TestARefusalIsOneShortLine(t *testing.T) {
	_, err := policy.ParseTarget("a\r\nX: y\x1b[31m" + strings.Repeat("\xff", 10_000))
	var refusal *policy.Refusal
	if !errors.As(err, &refusal) || len(refusal.Got) != 200 {
		t.Fatalf("got %v", err)
	}
	if line := err.Error(); len(line) > 1000 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%d bytes: %q", len(line), line)
	}
	if bare := (&policy.Refusal{Reason: policy.ReasonMethod}).Error(); bare != "method" || errors.Is(err, policy.ReasonMethod) {
		t.Errorf("a refusal of nothing but a reason says %q", bare)
	}
}
