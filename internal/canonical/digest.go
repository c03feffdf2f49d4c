package canonical

import (
	"crypto/sha256"
	"encoding/hex"
)

const digestPrefix = "sha256:"

// Digest gives the SHA-256 of data as "sha256:" and 64 lower-case hex digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// DigestOf gives the Digest of the canonical JSON of v. Errors: those of Encode.
func DigestOf(v any) (string, error) {
	data, err := Encode(v)
	if err != nil {
		return "", err
	}
	return Digest(data), nil
}

// ValidDigest reports whether s has the one form that Digest writes:
// ^sha256:[0-9a-f]{64}$, and nothing after it.
func ValidDigest(s string) bool {
	if len(s) != len(digestPrefix)+2*sha256.Size || s[:len(digestPrefix)] != digestPrefix {
		return false
	}
	for _, c := range []byte(s[len(digestPrefix):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
