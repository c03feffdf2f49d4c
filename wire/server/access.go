package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/checkfu/checkfu/wire"
)

// access says who may call.
type access struct {
	tokens wire.Tokens
	bearer bool
	keys   [][32]byte
	custom func(*http.Request) error
	clock  Clock
}

func newAccess(o Options) (access, error) {
	tokens, err := wire.NewTokens(o.Tokens...)
	return access{tokens: tokens, bearer: len(o.Tokens) > 0, keys: o.ClientKeys, custom: o.Authenticate, clock: o.Clock}, err
}

// check is the first thing that happens to a request: a stranger learns nothing,
// not even which paths there are.
// Errors: *wire.Error with TagUnauthenticated or TagForbidden, which repeat
// nothing of what came.
func (a access) check(r *http.Request) error {
	token, err := wire.ParseToken(r.Header)
	if err != nil {
		return err
	}
	if a.custom != nil {
		err := a.custom(r)
		if e := (*wire.Error)(nil); err == nil || errors.As(err, &e) && (e.Tag == wire.TagUnauthenticated || e.Tag == wire.TagForbidden) {
			return err
		}
		return &wire.Error{Tag: wire.TagUnauthenticated, Err: err}
	}
	if a.bearer && !a.tokens.Accept(token) {
		return &wire.Error{Tag: wire.TagUnauthenticated}
	}
	if len(a.keys) > 0 {
		return a.certificate(r)
	}
	return nil
}

// certificate holds the caller's certificate to the pinned keys. Who signed it
// says nothing here; when it is valid does, because that is how an enrollment
// ends by itself.
func (a access) certificate(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return &wire.Error{Tag: wire.TagUnauthenticated}
	}
	leaf := r.TLS.PeerCertificates[0]
	if now := a.clock.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return &wire.Error{Tag: wire.TagUnauthenticated}
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	found := 0
	for i := range a.keys {
		found |= subtle.ConstantTimeCompare(sum[:], a.keys[i][:])
	}
	if found != 1 {
		return &wire.Error{Tag: wire.TagForbidden}
	}
	return nil
}
