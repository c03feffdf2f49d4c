package route

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// TokenPrefix begins every run's token, so that scanners of secrets know one.
const TokenPrefix = "cfu_run_"

// tokenBytes is how much chance a token has; it is written in base64url.
const tokenBytes = 32

// tokenLength is that of a whole token, in bytes.
var tokenLength = len(TokenPrefix) + base64.RawURLEncoding.EncodedLen(tokenBytes)

// NewToken makes a run's token: the prefix and 256 bits of chance.
// Source: contract "Identity is cross-checked"; concept "What Checkfu supplies".
func NewToken() string {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // it never fails: the runtime ends the process first
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// TokenDigest is the form in which a token is kept and looked up: "sha256:" and
// hex digits. One round is enough, because nobody guesses 256 bits.
func TokenDigest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// SameDigest compares two digests in a time that tells nothing of where they
// differ.
func SameDigest(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Credential is the run's token of a request, whose values of a header get
// answers. SDKs put it where their API wants the key.
// Errors: *Refusal 401 for none, for one that is no run's token, which is then
// not the workload's to hold, and for two that differ.
func Credential(get func(name string) []string) (string, error) {
	var found []string
	for _, v := range get(Authorization) {
		scheme, token, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "bearer") {
			return "", unauthorized("expected a bearer token")
		}
		found = append(found, token)
	}
	found = append(found, get(APIKey)...)
	if len(found) == 0 {
		return "", unauthorized("expected a run token, got none")
	}
	for _, token := range found {
		if len(token) != tokenLength || !strings.HasPrefix(token, TokenPrefix) {
			return "", unauthorized("expected a run token, " + TokenPrefix + "…, got something else")
		}
		if subtle.ConstantTimeCompare([]byte(token), []byte(found[0])) != 1 {
			return "", unauthorized("expected one run token, got two that differ")
		}
	}
	return found[0], nil
}

func unauthorized(message string) error { return &Refusal{401, ReasonToken, message} }
