package report

import (
	"regexp"
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	golden(t, "sample.md", Markdown(sample()))
	golden(t, "applied.md", Markdown(applied(t)))
	golden(t, "poisoned.md", Markdown(poisoned()))
}

// outside is a line without its code spans, as CommonMark finds them: a run of
// backticks up to the next run of the same length.
func outside(line string) string {
	var out strings.Builder
	for line != "" {
		if line[0] == '\\' && len(line) > 1 {
			out.WriteString(line[:2])
			line = line[2:]
			continue
		}
		run := len(line) - len(strings.TrimLeft(line, "`"))
		if run == 0 {
			out.WriteByte(line[0])
			line = line[1:]
			continue
		}
		rest, closed := line[run:], -1
		for i := 0; i < len(rest); {
			n := len(rest[i:]) - len(strings.TrimLeft(rest[i:], "`"))
			if n == run {
				closed = i + n
				break
			}
			i += max(n, 1)
		}
		if closed < 0 {
			out.WriteString(line)
			break
		}
		out.WriteString("CODE")
		line = rest[closed:]
	}
	return out.String()
}

// What a provider wrote makes no heading, element, link, list or cell: outside
// of code spans nothing of it is left unescaped, and every line begins as one of
// ours does.
func TestMarkdownOfAHostileProvider(t *testing.T) {
	ours := regexp.MustCompile(`^(# Sandbox conformance: [a-z]+|## [A-Za-z ]+|### CODE [A-Za-z]+|CODE.*|[A-Za-z0-9\\].*|- [A-Za-z\\0-9C].*|  hint: .*|\|( [^|]* \|){4}|\| --- .*|)$`)
	live := regexp.MustCompile("[`<>*\\[\\]|#~!&_@]")
	escaped := regexp.MustCompile(`\\.`)
	cells := 0
	for _, line := range strings.Split(string(Markdown(poisoned())), "\n") {
		bare := outside(line)
		if !ours.MatchString(bare) {
			t.Errorf("a line that is not ours: %q", bare)
		}
		if strings.HasPrefix(line, "|") {
			cells++
			if n := strings.Count(line, "|"); n != 5 {
				t.Errorf("%d bars in %q", n, line)
			}
			continue
		}
		rest := strings.TrimLeft(escaped.ReplaceAllString(bare, ""), "#")
		if live.MatchString(rest) {
			t.Errorf("live text %q in %q", live.FindString(rest), bare)
		}
	}
	if cells != 11 {
		t.Errorf("%d lines of a table, want 11", cells)
	}
}

func TestCode(t *testing.T) {
	for in, want := range map[string]string{
		"": "(nothing)", " ": "(1 blanks)", "a": "`a`", "a`b": "``a`b``", "``": "``` `` ```", "`": "`` ` ``",
		" a ": "`  a  `", " a": "` a`", "a\\": "`a\\`", "|": "`|`",
	} {
		if got := code(in); got != want {
			t.Errorf("code(%q) = %s, want %s", in, got, want)
		}
	}
	if got := cell("a|b"); got != "`a\\x7cb`" {
		t.Errorf("cell: %s", got)
	}
}

func TestProse(t *testing.T) {
	for in, want := range map[string]string{
		"plain, text. Really - yes": "plain, text. Really - yes", "- item": `\- item`, "12. item": `12\. item`, "1) item": `1\) item`,
		"    code": "code", "# head": `\# head`, "<b>&amp;": `\<b\>\&amp;`, "[a](b)": `\[a\]\(b\)`, "a|b": `a\|b`, "--": `\--`, "": "",
		"me@x.y www.x.y http://x.y": "me`@`x.y www\\.x.y http\\://x.y",
	} {
		if got := prose(in); got != want {
			t.Errorf("prose(%q) = %q, want %q", in, got, want)
		}
	}
}
