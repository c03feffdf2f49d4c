package sandbox

import (
	"strings"
	"testing"
)

// Every other spelling of an instant that some language's parser takes.
func TestBounds_TimestampsHaveOneSpelling(t *testing.T) {
	for s, want := range map[string]bool{
		"1970-01-01T00:00:00.000Z": true,
		"2024-02-29T23:59:59.999Z": true,
		"9999-12-31T23:59:59.999Z": true,
		"2000-02-29T12:00:00.120Z": true,

		"1969-12-31T23:59:59.999Z": false,
		"0000-01-01T00:00:00.000Z": false,

		"":                              false,
		"2026-02-30T00:00:00.000Z":      false, // JavaScript rolls it over
		"2025-02-29T00:00:00.000Z":      false,
		"1900-02-29T00:00:00.000Z":      false,
		"2026-04-31T00:00:00.000Z":      false,
		"2026-00-10T00:00:00.000Z":      false,
		"2026-13-10T00:00:00.000Z":      false,
		"2026-01-00T00:00:00.000Z":      false,
		"2026-01-32T00:00:00.000Z":      false,
		"2026-01-01T24:00:00.000Z":      false, // JavaScript takes it
		"2026-01-01T23:60:00.000Z":      false,
		"2016-12-31T23:59:60.000Z":      false, // a real leap second
		"2026-01-01T00:00:00,000Z":      false, // Go takes it
		"2026-01-01T00:00:00.000z":      false,
		"2026-01-01t00:00:00.000Z":      false,
		"2026-01-01 00:00:00.000Z":      false,
		"2026-01-01T00:00:00.000":       false,
		"2026-01-01T00:00:00Z":          false,
		"2026-01-01T00:00:00.Z":         false,
		"2026-01-01T00:00:00.0Z":        false,
		"2026-01-01T00:00:00.0000Z":     false,
		"2026-01-01T00:00:00.000000Z":   false,
		"2026-01-01T00:00:00.000+00:00": false,
		"2026-01-01T00:00:00.000-00:00": false,
		"2026-01-01T00:00:00+00:00":     false,
		"2026-01-01T00:00:00.00+0":      false,
		"2026-01-01T00:00:00.000Z\n":    false,
		" 2026-01-01T00:00:00.000Z":     false,
		"2026-01-01T00:00:00.000Z ":     false,
		"2026-1-01T000:00:00.000Z":      false,
		"2026-01-01T0:000:00.000Z":      false,
		"+2026-01-01T00:00:00.00Z":      false,
		"-026-01-01T00:00:00.000Z":      false,
		"+010000-01-01T00:00:00.000Z":   false,
		"10000-01-01T00:00:00.000Z":     false,
		"20260101T000000.000Z":          false,
		"2026-W01-1T00:00:00.000Z":      false,
		"2026-01-01T00:00:00.-00Z":      false,
		"2026-01-01T00:00:00.+00Z":      false,
		"2026-01-01T-1:00:00.000Z":      false,
		"2026-01-01T 1:00:00.000Z":      false,
		"２０２６-01-01T00:00:00.000Z":      false, // Python takes it
		"２26-01-01T00:00:00.000Z":       false, // the right length in bytes
		"2026-01-01T00:00:00.0\x000Z":   false,
		strings.Repeat("9", 1<<20):      false,
	} {
		if got := Timestamp(s).Valid(); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestBounds_DigestsHaveOneSpelling(t *testing.T) {
	const abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for s, want := range map[string]bool{
		"sha256:" + strings.Repeat("0", 64): true,
		abc:                                 true,
		"":                                  false,
		"sha256:":                           false,
		abc[:len(abc)-1]:                    false,
		abc + "0":                           false,
		abc + "\n":                          false,
		" " + abc[:len(abc)-1]:              false,
		strings.ToUpper(abc):                false,
		abc[:70] + "A":                      false,
		abc[:70] + "g":                      false,
		abc[:70] + "/":                      false,
		abc[:70] + ":":                      false,
		abc[:70] + "`":                      false,
		abc[:68] + "é" + "0":                false,
		abc[7:]:                             false,
		"sha512:" + abc[7:]:                 false,
		"SHA256:" + abc[7:]:                 false,
		"sha256-" + abc[7:]:                 false,
		"sha256:0x" + abc[9:]:               false,
	} {
		if got := Digest(s).Valid(); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}
