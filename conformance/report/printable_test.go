package report

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain text, é 漢 😀 `|<>&\"'\\", "plain text, é 漢 😀 `|<>&\"'\\"},
		{"\x1b[31m\a\x00\x7f", `\x1b[31m\a\x00\x7f`},
		{"a\r\nb\tc", `a\r\nb\tc`},
		{"\xff\xc3", `\xff\xc3`},
		{"\xed\xa0\x80", `\xed\xa0\x80`},
		{"\u0085\u2028\u202e\u2066\ufeff\u200b", `\u0085\u2028\u202e\u2066\ufeff\u200b`},
		{"\u00a0\u3000", `\u00a0\u3000`},
		{"\U000e0041", `\U000e0041`},
		{"\ufffd\uffff", "\ufffd" + `\uffff`},
		{strings.Repeat("a", 512), strings.Repeat("a", 512)},
		{strings.Repeat("a", 513), strings.Repeat("a", 509) + "…"},
		{strings.Repeat("a", 508) + "éé!", strings.Repeat("a", 508) + "…"},
		{strings.Repeat("a", 511) + "\n", strings.Repeat("a", 509) + "…"},
	} {
		if got := Printable(c.in); got != c.want {
			t.Errorf("Printable(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add(hostile)
	f.Add(strings.Repeat("\xff", 2000))
	f.Add(strings.Repeat("a", 510) + "é")
	f.Fuzz(func(t *testing.T, s string) {
		out := Printable(s)
		if len(out) > PrintableBytes || !utf8.ValidString(out) || Printable(out) != out {
			t.Fatalf("%q became %q, which became %q", s, out, Printable(out))
		}
		for _, c := range out {
			if !strconv.IsPrint(c) {
				t.Fatalf("%q became %q", s, out)
			}
		}
	})
}

func TestCleanSharesNothing(t *testing.T) {
	r := poisoned()
	before := r.Cases[5].Findings[0].Got
	c := clean(r)
	c.Cases[5].Findings[0].Got, c.Leaks.Census[0], c.Cases[0].Transcript[0] = "x", "x", 99
	if r.Cases[5].Findings[0].Got != before || r.Leaks.Census[0] == "x" || r.Cases[0].Transcript[0] == 99 {
		t.Error("the copy shares a list with the report")
	}
}
