package canonical

import "testing"

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
}
