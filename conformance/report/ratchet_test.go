package report

import (
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const ratchetText = `# what acme r7 is known to get wrong
identity.provision  https://acme.test/issues/7#note  2026-12-31

	bounds.stdin http://acme.test/8	2027-01-31  ` + "\r\n"

func TestParseRatchet(t *testing.T) {
	got := must(ParseRatchet(strings.NewReader(ratchetText)))(t)
	want := Ratchet{
		{"identity.provision", "https://acme.test/issues/7#note", time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC), 2},
		{"bounds.stdin", "http://acme.test/8", time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC), 4},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if got := must(ParseRatchet(strings.NewReader("# nothing\n\n")))(t); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestWhatRatchetIsRefused(t *testing.T) {
	const good = "a https://x/1 2026-12-31\n"
	for _, c := range []struct {
		text, field string
		line        int64
	}{
		{"a https://x/1\n", "", 1},
		{"a\n", "", 1},
		{good + "b https://x/1 2026-12-31 later\n", "", 2},
		{good + "b https://x/1 2026-12-31 # why\n", "", 2},
		{good + "\n#\na https://y/1 2026-12-31\n", "id", 4},
		{"\ufeff" + good, "id", 1},
		{"a|b https://x/1 2026-12-31\n", "id", 1},
		{strings.Repeat("a", 129) + " https://x/1 2026-12-31\n", "id", 1},
		{good + "b ftp://x/1 2026-12-31\n", "link", 2},
		{"b javascript:alert(1) 2026-12-31\n", "link", 1},
		{"b https:///1 2026-12-31\n", "link", 1},
		{"b #12 2026-12-31\n", "link", 1},
		{"b https://x/\x1b[2J 2026-12-31\n", "link", 1},
		{"b https://x/1 2026-02-30\n", "expires", 1},
		{"b https://x/1 2026-2-3\n", "expires", 1},
		{"b https://x/1 31.12.2026\n", "expires", 1},
		{"b https://x/1 2026-12-31T00:00:00Z\n", "expires", 1},
		{"b https://x/1 never\n", "expires", 1},
		{good + strings.Repeat("#", MaxRatchetLine+1), "", 2},
	} {
		list, err := ParseRatchet(strings.NewReader(c.text))
		e, ok := errors.AsType[*InvalidError](err)
		if !ok || e.Line != c.line || e.Field != c.field || list != nil {
			t.Errorf("%q: want line %d, field %q, got %v", c.text[:min(len(c.text), 60)], c.line, c.field, err)
		}
	}
	if _, err := ParseRatchet(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("want the reader's error, got %v", err)
	}
	var many strings.Builder
	for i := range MaxRatchetEntries + 1 {
		many.WriteString(strconv.Itoa(i) + " https://x/1 2026-12-31\n")
	}
	if _, err := ParseRatchet(strings.NewReader(many.String())); err == nil || !strings.Contains(err.Error(), "entries") {
		t.Errorf("one entry too many: %v", err)
	}
}

func TestApplyRatchet(t *testing.T) {
	day := time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)
	noon := day.Add(12 * time.Hour)
	for _, c := range []struct {
		name     string
		id       string
		now      time.Time
		change   func(*Report)
		stale    string // reason, "" for none
		expected bool
		code     int64
	}{
		{"a failure", "x.fails", noon, nil, "", true, 0},
		{"an overclaim", "x.overclaims", noon, nil, "", true, 0},
		{"the last millisecond", "x.fails", day.Add(24*time.Hour - time.Millisecond), nil, "", true, 0},
		{"the day after", "x.fails", day.Add(24 * time.Hour), nil, "the excuse is past its date 2026-12-31", false, 1},
		{"a pass", "x.passes", noon, nil, "passes now: take it off the list", false, 1},
		{"a pass of a standing check", "standing.envelope", noon, nil, "passes now: take it off the list", false, 1},
		{"a pass of a case", "zdr-release", noon, nil, "passes now: take it off the list", false, 1},
		{"a skip", "x.skipped", noon, nil, "not run: skip", false, 1},
		{"withheld", "x.withheld", noon, nil, "not run: withheld", false, 1},
		{"blocked", "x.blocked", noon, nil, "not run: blocked", false, 1},
		{"no row", "x.fail", noon, nil, "no row of this run has this id", false, 1},
		{"not judged", "x.error", noon, nil, "", false, 4},
		{"a skip under a filter", "x.skipped", noon, func(r *Report) { r.Run.Filters = []string{"y"} }, "", false, 3},
		{"no row under a filter", "x.fail", noon, func(r *Report) { r.Run.Filters = []string{"y"} }, "", false, 3},
		{"a pass under a filter", "x.passes", noon, func(r *Report) { r.Run.Filters = []string{"y"} }, "passes now: take it off the list", false, 1},
	} {
		r := sample()
		for status, id := range map[Status]string{
			Pass: "x.passes", Fail: "x.fails", Overclaim: "x.overclaims", Skip: "x.skipped",
			Withheld: "x.withheld", Blocked: "x.blocked", Error: "x.error",
		} {
			if id != c.id {
				continue
			}
			r.Probes = append(r.Probes, unrun(row(id, Contract), status, "why"))
		}
		if c.change != nil {
			c.change(&r)
		}
		list := Ratchet{{c.id, "https://x/1", day, 7}}
		got := list.Apply(&r, c.now)
		var want []Stale
		if c.stale != "" {
			want = []Stale{{c.id, "https://x/1", "2026-12-31", 7, c.stale}}
		}
		marked := r.Probes[len(r.Probes)-1].Expected
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(r.Stale, want) || marked != c.expected || r.ExitCode != c.code {
			t.Errorf("%s: stale %v, expected %v, exit %d (%s)", c.name, got, marked, r.ExitCode, r.Reason)
		}
		if c.expected && r.Verdict != Nonconformant {
			t.Errorf("%s: an excuse made the verdict %s", c.name, r.Verdict)
		}
		if _, err := Encode(r); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	r := sample()
	r.Stale = []Stale{{ID: "old", Line: 1}}
	if got := Ratchet(nil).Apply(&r, noon); got != nil || r.ExitCode != 0 {
		t.Errorf("an empty list left %v, exit %d", got, r.ExitCode)
	}
}

func FuzzParseRatchet(f *testing.F) {
	f.Add(ratchetText)
	f.Add("a https://[::1]:80/%zz 2026-12-31\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseRatchet(strings.NewReader(text))
		if err != nil {
			if e, ok := errors.AsType[*InvalidError](err); !ok || e.Line < 1 || Printable(e.Error()) != e.Error() && len(e.Error()) <= PrintableBytes {
				t.Fatalf("%#v", err)
			}
			return
		}
		// Written again as it was understood, it means the same.
		var again strings.Builder
		for _, e := range list {
			again.WriteString(e.ID + " " + e.Link + " " + e.Expires.Format("2006-01-02") + "\n")
		}
		back, err := ParseRatchet(strings.NewReader(again.String()))
		if err != nil || len(back) != len(list) {
			t.Fatalf("%q, then %v", text, err)
		}
		r := sample()
		list.Apply(&r, time.Unix(1_800_000_000, 0))
		if _, err := Encode(r); err != nil {
			t.Fatal(err)
		}
	})
}
