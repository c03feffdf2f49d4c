package canonical

import (
	"strings"
	"testing"
	"time"
)

func TestTimestamp(t *testing.T) {
	zone := time.FixedZone("", 5*3600+30*60)
	for _, c := range []struct {
		t    time.Time
		want string // empty: refused
	}{
		{time.Unix(0, 0), "1970-01-01T00:00:00.000Z"},
		{time.Date(2026, 2, 3, 4, 5, 6, 7_999_999, time.UTC), "2026-02-03T04:05:06.007Z"},
		{time.Date(2026, 1, 1, 1, 0, 0, 0, zone), "2025-12-31T19:30:00.000Z"},
		{time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), "9999-12-31T23:59:59.999Z"},
		{time.Date(1970, 1, 1, 5, 30, 0, 0, zone), "1970-01-01T00:00:00.000Z"},
		{time.Unix(0, -1), ""},
		{time.Date(1970, 1, 1, 0, 0, 0, 0, zone), ""}, // 1969 in UTC
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, zone), "9999-12-31T18:30:00.000Z"},
		{time.Time{}, ""},
	} {
		got, err := Timestamp(c.t)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v: %q %v, want %q", c.t, got, err, c.want)
		}
		if err != nil && reasonOf(t, err) != ReasonOutOfRange {
			t.Errorf("%v: %v", c.t, err)
		}
	}
}

func TestParseTimestamp(t *testing.T) {
	for s, want := range map[string]Reason{
		"1970-01-01T00:00:00.000Z": "",
		"2024-02-29T23:59:59.999Z": "",
		"9999-12-31T23:59:59.999Z": "",
		"2000-02-29T12:00:00.120Z": "",

		"1969-12-31T23:59:59.999Z": ReasonOutOfRange,
		"0000-01-01T00:00:00.000Z": ReasonOutOfRange,

		"":                              ReasonTimestamp,
		"2026-02-30T00:00:00.000Z":      ReasonTimestamp, // JavaScript rolls it over
		"2025-02-29T00:00:00.000Z":      ReasonTimestamp,
		"1900-02-29T00:00:00.000Z":      ReasonTimestamp,
		"2026-04-31T00:00:00.000Z":      ReasonTimestamp,
		"2026-00-10T00:00:00.000Z":      ReasonTimestamp,
		"2026-13-10T00:00:00.000Z":      ReasonTimestamp,
		"2026-01-00T00:00:00.000Z":      ReasonTimestamp,
		"2026-01-32T00:00:00.000Z":      ReasonTimestamp,
		"2026-01-01T24:00:00.000Z":      ReasonTimestamp, // JavaScript takes it
		"2026-01-01T23:60:00.000Z":      ReasonTimestamp,
		"2016-12-31T23:59:60.000Z":      ReasonTimestamp, // a real leap second
		"2026-01-01T00:00:00,000Z":      ReasonTimestamp, // Go takes it
		"2026-01-01T00:00:00.000z":      ReasonTimestamp,
		"2026-01-01t00:00:00.000Z":      ReasonTimestamp,
		"2026-01-01 00:00:00.000Z":      ReasonTimestamp,
		"2026-01-01T00:00:00.000":       ReasonTimestamp,
		"2026-01-01T00:00:00Z":          ReasonTimestamp,
		"2026-01-01T00:00:00.Z":         ReasonTimestamp,
		"2026-01-01T00:00:00.0Z":        ReasonTimestamp,
		"2026-01-01T00:00:00.0000Z":     ReasonTimestamp,
		"2026-01-01T00:00:00.000000Z":   ReasonTimestamp,
		"2026-01-01T00:00:00.000+00:00": ReasonTimestamp,
		"2026-01-01T00:00:00.000-00:00": ReasonTimestamp,
		"2026-01-01T00:00:00+00:00":     ReasonTimestamp,
		"2026-01-01T00:00:00.00+0":      ReasonTimestamp,
		"2026-01-01T00:00:00.000Z\n":    ReasonTimestamp,
		" 2026-01-01T00:00:00.000Z":     ReasonTimestamp,
		"2026-01-01T00:00:00.000Z ":     ReasonTimestamp,
		"2026-1-01T000:00:00.000Z":      ReasonTimestamp,
		"2026-01-01T0:000:00.000Z":      ReasonTimestamp,
		"+2026-01-01T00:00:00.00Z":      ReasonTimestamp,
		"-026-01-01T00:00:00.000Z":      ReasonTimestamp,
		"+010000-01-01T00:00:00.000Z":   ReasonTimestamp,
		"10000-01-01T00:00:00.000Z":     ReasonTimestamp,
		"20260101T000000.000Z":          ReasonTimestamp,
		"2026-W01-1T00:00:00.000Z":      ReasonTimestamp,
		"2026-01-01T00:00:00.-00Z":      ReasonTimestamp,
		"2026-01-01T00:00:00.+00Z":      ReasonTimestamp,
		"2026-01-01T-1:00:00.000Z":      ReasonTimestamp,
		"2026-01-01T 1:00:00.000Z":      ReasonTimestamp,
		"２０２６-01-01T00:00:00.000Z":      ReasonTimestamp, // Python takes it
		"２26-01-01T00:00:00.000Z":       ReasonTimestamp, // the right length in bytes
		"2026-01-01T00:00:00.0\x000Z":   ReasonTimestamp,
		strings.Repeat("9", 1<<20):      ReasonTimestamp,
	} {
		got, err := ParseTimestamp(s)
		if reasonOf(t, err) != want {
			t.Errorf("%.40q: %v, want %s", s, err, want)
			continue
		}
		if err != nil {
			if !got.IsZero() || len(err.Error()) > 300 {
				t.Errorf("%.40q: %v with an error of %d bytes", s, got, len(err.Error()))
			}
			continue
		}
		if again, err := Timestamp(got); err != nil || again != s || got.Location() != time.UTC {
			t.Errorf("%q: again %q %v", s, again, err)
		}
	}
}

func FuzzParseTimestamp(f *testing.F) {
	for _, s := range []string{"2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00,000Z", "2026-02-30T24:00:60.000+00:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTimestamp(s)
		if err != nil {
			reasonOf(t, err)
			return
		}
		again, err := Timestamp(got)
		if err != nil || again != s {
			t.Fatalf("%q came back as %q %v", s, again, err)
		}
		// Independently of time.Parse: digits stand where the form has them, and
		// every other byte is the form's own.
		digit := func(c byte) bool { return '0' <= c && c <= '9' }
		for i := range len(s) {
			if digit(s[i]) != digit(timestampForm[i]) || !digit(s[i]) && s[i] != timestampForm[i] {
				t.Fatalf("%q is not of the form at byte %d", s, i)
			}
		}
	})
}
