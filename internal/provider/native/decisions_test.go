package native

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
)

func TestSum(t *testing.T) {
	deny := func(host string) string {
		return `{"kind":"decision","decision":"deny","reason":"not_allowlisted","host":"` + host + `","port":443,"raw":"x"}` + "\n"
	}
	var many strings.Builder
	for i := range maxRefusals + 3 {
		many.WriteString(deny(fmt.Sprintf("h%d.test", i)))
	}
	for _, c := range []struct {
		name, text string
		allowed    int64
		refused    string // the first entries
		entries    int
		others     int64
	}{
		{name: "empty"},
		{name: "start and close are none", text: `{"kind":"start","config":"x"}` + "\n" + `{"kind":"close"}` + "\n"},
		{name: "both", text: `{"kind":"decision","decision":"allow","host":"a.test","port":443}` + "\n" + deny("a.test"), allowed: 1, refused: "[{a.test 443 not_allowlisted 1}]", entries: 1},
		{name: "most frequent first", text: deny("a.test") + deny("b.test") + deny("b.test"), refused: "[{b.test 443 not_allowlisted 2} {a.test 443 not_allowlisted 1}]", entries: 2},
		{name: "no name", text: `{"kind":"decision","decision":"deny","reason":"literal","raw":"1.2.3.4:443"}` + "\n", refused: "[{1.2.3.4:443 0 literal 1}]", entries: 1},
		{name: "a line under way", text: deny("a.test") + `{"kind":"decision","dec`, refused: "[{a.test 443 not_allowlisted 1}]", entries: 1},
		{name: "noise", text: "noise\n\n" + strings.Repeat("x", 3*guard.MaxLineBytes) + "\n" + deny("a.test"), refused: "[{a.test 443 not_allowlisted 1}]", entries: 1},
		{name: "a host that is too long", text: deny(strings.Repeat("h", 1000)), refused: "[{" + strings.Repeat("h", maxHost) + " 443 not_allowlisted 1}]", entries: 1},
		{name: "more than is told", text: many.String(), entries: maxRefusals, others: 3},
	} {
		d, _, err := sum(t.Context(), strings.NewReader(c.text))
		if err != nil || d.Allowed != c.allowed || len(d.Refused) != c.entries || d.Others != c.others || c.refused != "" && fmt.Sprint(d.Refused) != c.refused {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := sum(done, strings.NewReader(many.String())); err == nil {
		t.Error("it went on although nobody waits")
	}
}

func FuzzSum(f *testing.F) {
	f.Add(`{"kind":"decision","decision":"deny","reason":"literal","raw":"1.2.3.4:443"}` + "\n")
	f.Add(`{"decision":"allow"}` + "\n{\n\x00\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, _, err := sum(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if n := int64(strings.Count(text, "\n")); d.Allowed+d.Others+int64(len(d.Refused)) > n || len(d.Refused) > maxRefusals || d.Through > int64(len(text)) {
			t.Errorf("%d lines gave %+v", n, d)
		}
	})
}

// chained are the lines of a log with their chain.
func chained(lines ...string) string {
	var text strings.Builder
	prev := ""
	for _, line := range lines {
		if prev != "" {
			line = strings.Replace(line, "{", `{"prev":"`+prev+`",`, 1)
		}
		prev = canonical.Digest([]byte(line))
		text.WriteString(line + "\n")
	}
	return text.String()
}

// A log is whole where each line names the one before and the last one ends.
func TestSum_Whole(t *testing.T) {
	good := chained(`{"kind":"start"}`, `{"kind":"decision","decision":"allow"}`, `{"kind":"close"}`)
	lines := strings.SplitAfter(good, "\n")
	for _, c := range []struct {
		name, text string
		whole      bool
	}{
		{"all of it", good, true},
		{"nothing", "", true},
		{"from the second line on", lines[1] + lines[2], true},
		{"cut in a line", good[:len(good)-1], false},
		{"a line taken out", lines[0] + lines[2], false},
		{"a line twice", lines[0] + lines[1] + lines[1] + lines[2], false},
		{"a line changed", strings.Replace(good, "allow", "deny\u200b", 1), false},
		{"a line put in", lines[0] + `{"kind":"decision","decision":"deny"}` + "\n" + lines[1], false},
		{"no line", lines[0] + "x\n" + lines[1], false},
	} {
		d, whole, err := sum(t.Context(), strings.NewReader(c.text))
		if err != nil || whole != c.whole {
			t.Errorf("%s: whole %v, %v", c.name, whole, err)
		}
		if want := int64(strings.LastIndex(c.text, "\n") + 1); d.Through != want {
			t.Errorf("%s: read through %d, want %d", c.name, d.Through, want)
		}
	}
}
