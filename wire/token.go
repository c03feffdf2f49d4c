package wire

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// ParseToken reads the bearer token of a request; "" where there is no
// Authorization at all, as with client certificates.
// Errors: *Error with TagUnauthenticated. It never repeats what came.
func ParseToken(header map[string][]string) (string, error) {
	values := header[HeaderAuthorization]
	if len(values) == 0 {
		return "", nil
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if len(values) != 1 || !ok || !ValidToken(token) {
		return "", &Error{Tag: TagUnauthenticated}
	}
	return token, nil
}

// ValidToken reports whether s has the form of a token: 32 to 512 characters of
// [A-Za-z0-9._~+/=-].
func ValidToken(s string) bool {
	if len(s) < MinTokenBytes || len(s) > MaxTokenBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("._~+/=-", c) < 0 {
			return false
		}
	}
	return true
}

// Tokens are the tokens that are valid at one time: two while one replaces the
// other. Only their digests are kept.
type Tokens struct {
	digests [][sha256.Size]byte
}

// NewTokens takes at most two tokens.
// Errors: *Error with TagUnauthenticated where one has not the form of a token
// or there are more.
func NewTokens(tokens ...string) (Tokens, error) {
	var t Tokens
	for _, token := range tokens {
		if !ValidToken(token) || len(tokens) > 2 {
			return Tokens{}, &Error{Tag: TagUnauthenticated}
		}
		t.digests = append(t.digests, sha256.Sum256([]byte(token)))
	}
	return t, nil
}

// Accept reports whether token is one of them. The time it takes tells neither
// which, nor how much of it was right, nor how long it is.
func (t Tokens) Accept(token string) bool {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for i := range t.digests {
		found |= subtle.ConstantTimeCompare(sum[:], t.digests[i][:])
	}
	return found == 1
}
