package sandbox

import (
	"strings"
	"testing"
	"time"
)

// TestBounds_Timestamps: canonical UTC that round-trips byte for byte.
func TestBounds_Timestamps(t *testing.T) {
	for _, good := range []Timestamp{noon, "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2028-02-29T00:00:00.001Z"} {
		at, err := good.Time()
		if err != nil || At(at) != good || !good.Valid() {
			t.Error(good, err)
		}
	}
	for _, bad := range []Timestamp{
		"", "2026-11-29", "2026-11-29T12:00:00Z", "2026-11-29T12:00:00.0Z", "2026-11-29T12:00:00.00Z", "2026-11-29T12:00:00.0000Z",
		"2026-11-29T12:00:00.000000000Z", "2026-11-29T12:00:00,000Z", "2026-11-29T12:00:00.000+00:00", "2026-11-29T12:00:00.000z",
		"2026-11-29t12:00:00.000Z", "2026-11-29 12:00:00.000Z", " 2026-11-29T12:00:00.000Z", "2026-11-29T12:00:00.000Z\n",
		"2026-02-30T12:00:00.000Z", "2026-02-29T12:00:00.000Z", "2026-13-01T12:00:00.000Z", "2026-00-01T12:00:00.000Z",
		"2026-11-29T24:00:00.000Z", "2026-11-29T12:60:00.000Z", "2026-12-31T23:59:60.000Z", "1969-12-31T23:59:59.999Z",
		"0000-01-01T00:00:00.000Z", "10000-01-01T00:00:00.000Z", "+010000-01-01T00:00:00.000Z", "-001-01-01T00:00:00.000Z",
		"2026-1-29T12:00:00.000Z", "２026-11-29T12:00:00.000Z", "2026-11-29T12:00:00.000", "2026-11-29T12:00:00.+00Z",
	} {
		if bad.Valid() {
			t.Errorf("took %q", bad)
		}
	}
	if got := At(time.Date(2026, 11, 29, 14, 0, 0, 999999, time.FixedZone("", 7200))); got != noon {
		t.Error("not UTC, or not cut to milliseconds:", got)
	}
	if At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)).Valid() {
		t.Error("the year 10000 is valid")
	}
	if !noon.Before(one) || noon.Before(noon) || one.Before(noon) {
		t.Error("order")
	}
}

func FuzzTimestamp(f *testing.F) {
	for _, seed := range []string{string(noon), "2026-02-30T12:00:00.000Z", "2026-11-29T12:00:00,000Z", "9999-12-31T23:59:59.999Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := Timestamp(s).Time()
		if err != nil {
			return
		}
		if len(s) != 24 || string(At(at)) != s || at.Year() < 1970 || at.Location() != time.UTC {
			t.Errorf("took %q", s)
		}
	})
}

// TestBounds_Digests: ^sha256:[0-9a-f]{64}$.
func TestBounds_Digests(t *testing.T) {
	if !goodDigest.Valid() {
		t.Error("the good digest")
	}
	hex := string(goodDigest[7:])
	for _, bad := range []string{"", hex, "sha256:", "sha256:" + hex[1:], "sha256:" + hex + "0", "SHA256:" + hex, "sha256:" + strings.ToUpper(hex),
		"sha256: " + hex[1:], "sha512:" + hex, "sha256:" + hex[:63] + "g", "sha256:" + hex[:63] + "\n"} {
		if Digest(bad).Valid() {
			t.Errorf("took %q", bad)
		}
	}
}

func TestImageDigest(t *testing.T) {
	for reference, want := range map[string]Digest{
		goodImage: goodDigest, "a@" + string(goodDigest): goodDigest, "": "", "a": "", "a:1": "", "a@": "", "@" + string(goodDigest): "",
		"a@b@" + string(goodDigest): "", goodImage + "@" + string(goodDigest): "", "a@sha256:0": "",
	} {
		if got := ImageDigest(reference); got != want {
			t.Errorf("%q: got %q", reference, got)
		}
	}
	named(t, checkImage("image", "a@"+string(goodDigest)), "")
	named(t, checkImage("image", "a b@"+string(goodDigest)), "image")
	named(t, checkImage("image", "a"), "image")
}

// TestCapabilityEnvelope_Provider: ^[a-z0-9][a-z0-9._-]{0,254}$.
func TestCapabilityEnvelope_Provider(t *testing.T) {
	bound(t, "provider", 255, func(n int) error { return checkCoordinate("provider", strings.Repeat("a", n)) })
	for _, good := range []string{"a", "0", "a.b_c-d", "9._-"} {
		named(t, checkCoordinate("provider", good), "")
	}
	for _, bad := range []string{"", ".a", "_a", "-a", "A", "aB", "a b", "a/b", "a\n", "é", "a@1"} {
		named(t, checkCoordinate("provider", bad), "provider")
	}
}
