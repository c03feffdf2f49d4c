package evidence

import (
	"crypto/ed25519"
	"encoding/hex"

	"github.com/checkfu/checkfu/internal/canonical"
)

// Domain names one kind of statement. A signature over the same bytes in
// another domain is no signature in this one.
type Domain string

// EgressConformance is the domain, and the schema, of the receipt of an egress
// matrix.
// Source: grading "What a signature proves".
const EgressConformance Domain = "checkfu.sandbox-egress-conformance.v1"

// MaxSignatureBytes bounds a signature file.
const MaxSignatureBytes = 1024

// algorithm is Ed25519 as RFC 8032 has it: no prehash, no context.
const algorithm = "ed25519"

// Signature is the content of a signature file: canonical JSON. The key is
// there to be looked up in the set of attesters, and for nothing else.
type Signature struct {
	Algorithm string `json:"algorithm"` // always "ed25519"
	Domain    Domain `json:"domain"`
	Key       string `json:"key"`       // 32 bytes, lower-case hex
	Signature string `json:"signature"` // 64 bytes, lower-case hex
}

// message is what is signed. No domain holds a zero byte, so that no two pairs
// of domain and statement give the same message.
func message(d Domain, statement []byte) []byte {
	m := make([]byte, 0, len(d)+1+len(statement))
	m = append(m, d...)
	m = append(m, 0)
	return append(m, statement...)
}

// Sign returns the signature file of statement in the domain d. It signs what it
// is given; whoever makes a receipt calls [Seal], which looks at it first.
// Errors: ReasonKey, ReasonDomain.
func Sign(d Domain, statement []byte, key ed25519.PrivateKey) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, refuse(ReasonKey, "", "an Ed25519 private key of 64 bytes", "")
	}
	if !printable(string(d)) || d == "" {
		return nil, refuse(ReasonDomain, "domain", "printable ASCII", string(d))
	}
	// A key whose halves do not belong together signs under a public key that
	// is nobody's, and two such signatures give the private half away.
	key = ed25519.NewKeyFromSeed(key.Seed())
	return canonical.Encode(Signature{algorithm, d, hex.EncodeToString(key[ed25519.SeedSize:]), hex.EncodeToString(ed25519.Sign(key, message(d, statement)))})
}

// Authenticate checks the signature file over statement and returns the
// attester that made it. It does not look into statement.
// Errors: ReasonTooLarge, ReasonMalformed, ReasonNotCanonical (of the signature
// file), ReasonAlgorithm, ReasonDomain, ReasonKey, ReasonUnlistedKey,
// ReasonSignature.
func Authenticate(d Domain, statement, signature []byte, set Attesters) (Attester, error) {
	var s Signature
	if err := decode(signature, MaxSignatureBytes, &s); err != nil {
		err.Field = "signature file"
		return Attester{}, err
	}
	switch {
	case s.Algorithm != algorithm:
		return Attester{}, refuse(ReasonAlgorithm, "algorithm", algorithm, s.Algorithm)
	case s.Domain != d:
		return Attester{}, refuse(ReasonDomain, "domain", string(d), string(s.Domain))
	}
	key, err := parseKey("key", s.Key)
	if err != nil {
		return Attester{}, err
	}
	attester, ok := set.find(s.Key)
	if !ok {
		return Attester{}, refuse(ReasonUnlistedKey, "key", set.say(), s.Key)
	}
	// crypto/ed25519 refuses an S that is not below the group's order and an R
	// in another encoding, so that a signature cannot be changed into another.
	raw, err := parseHex(ReasonSignature, "signature", s.Signature, ed25519.SignatureSize)
	if err != nil {
		return Attester{}, err
	}
	if !ed25519.Verify(key, message(d, statement), raw) {
		return Attester{}, refuse(ReasonSignature, "signature", "one by "+attester.Name+" over these bytes in "+string(d), "another")
	}
	return attester, nil
}
