package evidence

import (
	"time"

	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/sandbox"
)

// Verifier holds what a receipt is judged by.
type Verifier struct {
	// Attesters are who may have signed: ReviewedAttesters, but in tests and for
	// who asks a question about a set of their own.
	Attesters Attesters
	// Now is the time of the judgement.
	Now time.Time
	// For is the revision that is to be certified; nil asks about none, and the
	// certificate then says itself which one it is for.
	For *grade.Certificate
}

// Verified is a receipt that an attester of the set signed and that stands.
type Verified struct {
	Receipt  Receipt
	Attester Attester
}

// Certificate is what package grade admits security_boundary by.
func (v Verified) Certificate() grade.Certificate { return v.Receipt.Certificate() }

// Verify judges the two files. Nothing of the receipt is read before its
// signature holds.
// Errors: *Refused with any reason; the first, in the order of the reasons.
// Source: grading "What a signature proves"; "The current posture".
func (v Verifier) Verify(receipt, signature []byte) (Verified, error) {
	if len(receipt) > MaxReceiptBytes {
		return Verified{}, refuse(ReasonTooLarge, "", "at most 256 KiB", "more")
	}
	attester, err := Authenticate(EgressConformance, receipt, signature, v.Attesters)
	if err != nil {
		return Verified{}, err
	}
	r, err := Decode(receipt)
	if err != nil {
		return Verified{}, err
	}
	now := sandbox.At(v.Now)
	switch {
	case !now.Valid():
		return Verified{}, refuse(ReasonField, "now", "a time in 1970 to 9999", string(now))
	case now.Before(r.IssuedAt):
		return Verified{}, refuse(ReasonFuture, "issued_at", "at or before "+string(now), string(r.IssuedAt))
	case !now.Before(r.ExpiresAt):
		return Verified{}, refuse(ReasonExpired, "expires_at", "after "+string(now), string(r.ExpiresAt))
	}
	if v.For != nil {
		if err := same(*v.For, r); err != nil {
			return Verified{}, err
		}
	}
	return Verified{r, attester}, nil
}

// Whole judges all of the two files but whose word they are and when: that the
// receipt is one, and that the key which the signature file names signed it. It
// certifies nothing: anybody can make a key. It returns that key, in lower-case hex.
// Errors: *Refused as Verify's, but never ReasonUnlistedKey or about now.
func Whole(receipt, signature []byte) (Receipt, string, error) {
	if len(receipt) > MaxReceiptBytes {
		return Receipt{}, "", refuse(ReasonTooLarge, "", "at most 256 KiB", "more")
	}
	var s Signature
	if err := decode(signature, MaxSignatureBytes, &s); err != nil {
		err.Field = "signature file"
		return Receipt{}, "", err
	}
	anybody := Attesters{Attesters: []Attester{{Name: "anybody", Key: s.Key}}}
	if _, err := Authenticate(EgressConformance, receipt, signature, anybody); err != nil {
		return Receipt{}, "", err
	}
	r, err := Decode(receipt)
	return r, s.Key, err
}

// same compares byte for byte: one provider's other revision is separate
// evidence.
func same(want grade.Certificate, r Receipt) error {
	for _, f := range []struct{ field, want, got string }{
		{"provider", want.Provider, r.Provider},
		{"provider_revision", want.ProviderRevision, r.ProviderRevision},
		{"materialization_revision", want.MaterializationRevision, r.MaterializationRevision},
	} {
		if f.want != f.got {
			return refuse(ReasonOtherRevision, f.field, f.want, f.got)
		}
	}
	return nil
}
