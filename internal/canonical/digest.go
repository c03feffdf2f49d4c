package canonical

import (
	"crypto/sha256"
	"encoding/hex"
)

// Digest gives the SHA-256 of data as "sha256:" and 64 lower-case hex digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
