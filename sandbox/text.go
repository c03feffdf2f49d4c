package sandbox

import (
	"strconv"
	"strings"
	"time"
)

// InstanceID names one instance. The provider mints it; it is opaque.
type InstanceID string

// SnapshotID names one snapshot. The provider mints it; it is opaque.
type SnapshotID string

// Timestamp is a canonical UTC time, YYYY-MM-DDTHH:MM:SS.mmmZ, year 1970 to
// 9999. It is kept as text because identity is byte-exact: parsing and
// printing again is where a naive implementation changes it.
// Source: contract "Bounds", row Timestamps.
type Timestamp string

// timestampLayout has exactly three fraction digits: the form that survives a
// round trip through every common Date type.
const timestampLayout = "2006-01-02T15:04:05.000Z"

// At returns t as a Timestamp, cut to milliseconds. The result is invalid if
// t lies outside the years 1970 to 9999.
func At(t time.Time) Timestamp { return Timestamp(t.UTC().Format(timestampLayout)) }

// Time parses t. It fails on everything that does not come back byte for byte
// when printed again: offsets, other precisions, a comma, February 30, 24:00,
// leap seconds.
func (t Timestamp) Time() (time.Time, error) {
	parsed, err := time.Parse(timestampLayout, string(t))
	if err != nil || !t.shaped() || parsed.Year() < 1970 {
		return time.Time{}, invalid("timestamp", "YYYY-MM-DDTHH:MM:SS.mmmZ, year 1970 to 9999", string(t))
	}
	return parsed, nil
}

// shaped reports whether t is digits where the layout has them and the layout's
// text elsewhere. Parsing alone is lenient: it also takes a comma for the point,
// one digit for an hour and signs for digits.
func (t Timestamp) shaped() bool {
	if len(t) != len(timestampLayout) {
		return false
	}
	for i := range len(t) {
		layout, c := timestampLayout[i], t[i]
		digit := layout >= '0' && layout <= '9'
		if digit && (c < '0' || c > '9') || !digit && c != layout {
			return false
		}
	}
	return true
}

// Valid reports whether t is canonical.
func (t Timestamp) Valid() bool {
	_, err := t.Time()
	return err == nil
}

// Before reports whether t is strictly before u. Both must be valid; canonical
// times order as text.
func (t Timestamp) Before(u Timestamp) bool { return t < u }

// Digest is "sha256:" and 64 lower-case hex digits.
// Source: contract "Bounds", row Digests.
type Digest string

// Valid reports whether d has the one form.
func (d Digest) Valid() bool {
	hex, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(hex) != 64 {
		return false
	}
	for i := range len(hex) {
		if c := hex[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// ImageDigest returns the digest suffix of an image reference NAME@DIGEST, or
// "" if it has none. An instance's image_digest is derived from this, never
// reported by an image store.
// Source: contract "Identity is cross-checked, not trusted".
func ImageDigest(reference string) Digest {
	name, suffix, ok := strings.Cut(reference, "@")
	if !ok || name == "" || !Digest(suffix).Valid() {
		return ""
	}
	return Digest(suffix)
}

// checkCoordinate holds a provider coordinate to ^[a-z0-9][a-z0-9._-]{0,254}$.
// Source: concept "The capability envelope", row provider.
func checkCoordinate(field, s string) error {
	ok := len(s) >= 1 && len(s) <= 255 && s[0] != '.' && s[0] != '_' && s[0] != '-'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return invalid(field, "^[a-z0-9][a-z0-9._-]{0,254}$", s)
	}
	return nil
}

// checkIdentity holds an opaque identity to printable ASCII without spaces,
// quotes or backslashes, 1 to 255 bytes: it is compared byte for byte, put in
// errors and logs, and must not need escaping anywhere.
func checkIdentity(field, s string) error {
	ok := len(s) >= 1 && len(s) <= MaxIdentityBytes
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '\''
	}
	if !ok {
		return invalid(field, "1 to 255 printable ASCII bytes without space, quote or backslash", s)
	}
	return nil
}

func checkTimestamp(field string, t Timestamp) error {
	if !t.Valid() {
		return invalid(field, "YYYY-MM-DDTHH:MM:SS.mmmZ, year 1970 to 9999", string(t))
	}
	return nil
}

func checkDigest(field string, d Digest) error {
	if !d.Valid() {
		return invalid(field, "sha256: and 64 lower-case hex digits", string(d))
	}
	return nil
}

func checkInteger(field string, n, low, high int64) error {
	if n < low || n > high {
		return invalid(field, "an integer from "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10), strconv.FormatInt(n, 10))
	}
	return nil
}

// at names an element of a list: "mounts[2]".
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// first returns the first error, so that a Validate reads as a list of rules.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// prefix puts a parent's name before the field of an *Invalid.
func prefix(parent string, err error) error {
	if inv, ok := err.(*Invalid); ok {
		return &Invalid{Field: parent + "." + inv.Field, Expected: inv.Expected, Got: inv.Got}
	}
	return err
}
