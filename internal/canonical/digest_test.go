package canonical

import (
	"strings"
	"testing"
)

func TestDigest(t *testing.T) {
	// The published SHA-256 vectors of the empty input and of "abc".
	const (
		none = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
		abc  = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	)
	if got := Digest(nil); got != none {
		t.Errorf("empty: %s", got)
	}
	if got := Digest([]byte("abc")); got != abc {
		t.Errorf("abc: %s", got)
	}
	got, err := DigestOf(map[string][]string{"b": nil, "a": {"x"}})
	if want := Digest([]byte(`{"a":["x"],"b":[]}`)); err != nil || got != want {
		t.Errorf("DigestOf: %s %v, want %s", got, err, want)
	}
	if got, err := DigestOf("\xff"); err == nil || got != "" {
		t.Errorf("DigestOf of invalid UTF-8: %q %v", got, err)
	}
	for s, want := range map[string]bool{
		none:                   true,
		abc:                    true,
		"":                     false,
		"sha256:":              false,
		abc[:len(abc)-1]:       false,
		abc + "0":              false,
		abc + "\n":             false,
		" " + abc[:len(abc)-1]: false,
		strings.ToUpper(abc):   false,
		abc[:70] + "A":         false,
		abc[:70] + "g":         false,
		abc[:70] + "/":         false,
		abc[:70] + ":":         false,
		abc[:70] + "`":         false,
		abc[:68] + "é" + "0":   false,
		abc[7:]:                false,
		"sha512:" + abc[7:]:    false,
		"SHA256:" + abc[7:]:    false,
		"sha256-" + abc[7:]:    false,
		"sha256:0x" + abc[9:]:  false,
	} {
		if ValidDigest(s) != want {
			t.Errorf("ValidDigest(%q) = %v", s, !want)
		}
	}
}
