package evidence

import (
	"crypto/ed25519"

	"github.com/checkfu/checkfu/internal/canonical"
)

// Encode returns the canonical bytes of r: the whole content of its file, which
// is what is signed. They are the caller's.
// Errors: as Validate; ReasonTooLarge. Nothing that a verifier would refuse
// without looking at the clock gets bytes.
func Encode(r Receipt) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	data, err := canonical.Encode(r)
	if err != nil {
		return nil, &Refused{Reason: ReasonMalformed, Err: err}
	}
	if len(data) > MaxReceiptBytes {
		return nil, refuse(ReasonTooLarge, "", "at most 256 KiB", "more")
	}
	return data, nil
}

// Seal returns the signature file for the receipt, whose own file is
// [Encode](r). It signs only what is whole: with a fact, a case or a killed
// mutant missing it is an error.
//
// A receipt that whoever ran the matrix sealed with a key of their own is
// diagnostic: it certifies where that key is listed, and nobody's is.
// Errors: as Encode; ReasonKey.
func Seal(r Receipt, key ed25519.PrivateKey) ([]byte, error) {
	data, err := Encode(r)
	if err != nil {
		return nil, err
	}
	return Sign(EgressConformance, data, key)
}

// Decode reads a receipt and checks all but its signature, its time and its
// revision. What it returns is a claim of nobody.
// Errors: ReasonTooLarge, ReasonMalformed, ReasonNotCanonical, and as Validate.
func Decode(data []byte) (Receipt, error) {
	var r Receipt
	if err := decode(data, MaxReceiptBytes, &r); err != nil {
		return Receipt{}, err
	}
	if err := r.Validate(); err != nil {
		return Receipt{}, err
	}
	return r, nil
}
