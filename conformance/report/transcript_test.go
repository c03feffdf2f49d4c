package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// chain is a transcript of n lines.
func chain(t testing.TB, n int) *Transcript {
	t.Helper()
	out := new(Transcript)
	for i := range n {
		number, err := out.Append(Line{
			At: "2026-12-01T10:00:00.000Z", Probe: "zdr-release", Operation: sandbox.OpProvision,
			Request: fmt.Sprintf(`{"n":%d}`, i), Result: "{}", Ms: int64(i),
		})
		if err != nil || number != int64(i+1) {
			t.Fatal(number, err)
		}
	}
	return out
}

// blamed is the line that a refusal names, 0 for none.
func blamed(t testing.TB, text []byte, head string) int64 {
	t.Helper()
	err := VerifyTranscript(bytes.NewReader(text), head)
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*InvalidError](err)
	if !ok || e.File != TranscriptFile || e.Expected == "" || e.Got == "" {
		t.Fatalf("want an *InvalidError, got %v", err)
	}
	return e.Line
}

func TestTranscriptIsWhole(t *testing.T) {
	for n := range 4 {
		tr := chain(t, n)
		if err := VerifyTranscript(iotest.OneByteReader(bytes.NewReader(tr.Encode())), tr.Head()); err != nil {
			t.Errorf("%d lines: %v", n, err)
		}
	}
}

// Every flip of every bit is found and the right line is named, be it in the
// text, in the link to the line before, or in a line feed.
func TestOneFlippedBitIsNamedByLine(t *testing.T) {
	tr := chain(t, 4)
	text := tr.Encode()
	line := int64(1)
	for i := range text {
		for bit := range 8 {
			changed := bytes.Clone(text)
			changed[i] ^= 1 << bit
			if got := blamed(t, changed, tr.Head()); got != line {
				t.Fatalf("byte %d of line %d, bit %d: line %d is blamed", i, line, bit, got)
			}
		}
		if text[i] == '\n' {
			line++
		}
	}
}

func TestLinesDroppedSwappedAdded(t *testing.T) {
	tr := chain(t, 5)
	lines := bytes.SplitAfter(tr.Encode(), []byte("\n"))[:5]
	join := func(order ...int) []byte {
		var out []byte
		for _, i := range order {
			out = append(out, lines[i-1]...)
		}
		return out
	}
	// renumbered is the text with the numbers put right again: the links tell.
	renumbered := func(text []byte) []byte {
		var out []byte
		for i, each := range bytes.SplitAfter(text, []byte("\n")) {
			if len(each) > 0 {
				var l Line
				if err := canonical.Decode(each, &l); err != nil {
					t.Fatal(err)
				}
				l.Number = int64(i + 1)
				out = append(append(out, must(canonical.Encode(l))(t)...), '\n')
			}
		}
		return out
	}
	head := tr.Head()
	for _, c := range []struct {
		name string
		text []byte
		head string
		want int64
	}{
		{"untouched", join(1, 2, 3, 4, 5), head, 0},
		{"first dropped", join(2, 3, 4, 5), head, 1},
		{"middle dropped", join(1, 2, 4, 5), head, 3},
		{"last dropped", join(1, 2, 3, 4), head, 4},
		{"all dropped", nil, head, 0},
		{"swapped", join(1, 3, 2, 4, 5), head, 2},
		{"repeated", join(1, 2, 2, 3, 4, 5), head, 3},
		{"added at the end", append(join(1, 2, 3, 4, 5), lines[4]...), head, 6},
		{"blank line", append(join(1, 2), append([]byte("\n"), join(3, 4, 5)...)...), head, 3},
		{"no line feed at the end", bytes.TrimSuffix(join(1, 2, 3, 4, 5), []byte("\n")), head, 5},
		{"carriage return", bytes.Replace(join(1, 2, 3, 4, 5), []byte("\n"), []byte("\r\n"), 1), head, 1},
		{"lines where there are none", join(1), "", 1},
		{"first dropped, renumbered", renumbered(join(2, 3, 4, 5)), head, 1},
		{"middle dropped, renumbered", renumbered(join(1, 2, 4, 5)), head, 3},
		{"swapped, renumbered", renumbered(join(1, 3, 2, 4, 5)), head, 2},
	} {
		got := blamed(t, c.text, c.head)
		whole := VerifyTranscript(bytes.NewReader(c.text), c.head) == nil
		if got != c.want || whole != (c.name == "untouched") {
			t.Errorf("%s: line %d is blamed, want %d", c.name, got, c.want)
		}
	}
}

func TestTranscriptBoundsAndReaderErrors(t *testing.T) {
	long := strings.Repeat("x", MaxTranscriptLine) + "\n"
	if got := blamed(t, []byte(long), ""); got != 1 {
		t.Errorf("a long line: line %d is blamed", got)
	}
	broken := errors.New("broken disk")
	if err := VerifyTranscript(iotest.ErrReader(broken), ""); !errors.Is(err, broken) {
		t.Errorf("want the reader's error, got %v", err)
	}
}

// What a provider answers cannot break the file, its bound, or a terminal.
func TestTranscriptOfAHostileProvider(t *testing.T) {
	worst := strings.Repeat(`"`, 100_000)
	tr := new(Transcript)
	for _, text := range []string{hostile, worst, strings.Repeat("\xff", 100_000)} {
		l := Line{At: "2026-12-01T10:00:00.000Z", Probe: text, ID: text, Operation: sandbox.Operation(text), Request: text, Result: text, Error: text}
		if _, err := tr.Append(l); err != nil {
			t.Fatal(err)
		}
	}
	text := tr.Encode()
	if err := VerifyTranscript(bytes.NewReader(text), tr.Head()); err != nil {
		t.Fatal(err)
	}
	if bytes.Count(text, []byte("\n")) != 3 || bytes.ContainsAny(text, "\x1b\r\x00") {
		t.Errorf("a line was broken: %q", text[:200])
	}
	if _, err := tr.Append(Line{Ms: 1 << 60}); err == nil || len(tr.Lines()) != 3 {
		t.Error("a number that JSON readers change was taken")
	}
}

func FuzzVerifyTranscript(f *testing.F) {
	tr := chain(f, 3)
	f.Add(tr.Encode(), tr.Head())
	f.Add([]byte("{}\n"), "")
	f.Fuzz(func(t *testing.T, text []byte, head string) {
		n, err := verifyTranscript(bytes.NewReader(text), head)
		if _, ok := errors.AsType[*InvalidError](err); err != nil && !ok {
			t.Fatalf("an error of type %T", err)
		}
		if err == nil && int64(bytes.Count(text, []byte("\n"))) != n {
			t.Fatalf("%d lines were accepted in %q", n, text)
		}
	})
}
