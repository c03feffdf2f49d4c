package evidence

// Reason says why a statement, a signature or a set is refused. The set is
// closed.
type Reason string

// The reasons, in the order in which a verifier meets them.
const (
	ReasonTooLarge      Reason = "too_large"      // longer than its bound
	ReasonMalformed     Reason = "malformed"      // not JSON of the closed schema: Err says where
	ReasonNotCanonical  Reason = "not_canonical"  // the same value in another byte form
	ReasonAlgorithm     Reason = "algorithm"      // another one than ed25519
	ReasonDomain        Reason = "domain"         // made for another kind of statement
	ReasonKey           Reason = "key"            // no public key that may sign: length, form, low order
	ReasonUnlistedKey   Reason = "unlisted_key"   // not in the set of attesters
	ReasonSignature     Reason = "signature"      // not by this key over these bytes in this domain
	ReasonField         Reason = "field"          // a field that breaks its form
	ReasonFacts         Reason = "facts"          // not the five facts, all of them, once
	ReasonCase          Reason = "case"           // a case is missing, failed, or skipped where it may not be
	ReasonMutant        Reason = "mutant"         // a mutant survived, or too few were tried
	ReasonTime          Reason = "time"           // the times of the receipt contradict each other
	ReasonFuture        Reason = "future"         // issued after now
	ReasonExpired       Reason = "expired"        // past its end
	ReasonOtherRevision Reason = "other_revision" // of another provider, revision or materialization
)

// Refused is the only error of this package. Values of the input are cut to a
// few dozen bytes.
type Refused struct {
	Reason   Reason
	Field    string // JSON path, or "" for the whole
	Expected string
	Got      string
	Err      error // for ReasonMalformed, a *canonical.Error
}

// Error describes the refusal in one line.
func (e *Refused) Error() string {
	text := "evidence: " + string(e.Reason)
	if e.Field != "" {
		text += ": " + e.Field
	}
	if e.Expected != "" {
		text += ": expected " + e.Expected
	}
	if e.Got != "" {
		text += ", got " + e.Got
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Refused) Unwrap() error { return e.Err }

// Is reports whether target is a *Refused with the same Reason and, where
// target names one, the same Field.
func (e *Refused) Is(target error) bool {
	t, ok := target.(*Refused)
	return ok && t.Reason == e.Reason && (t.Field == "" || t.Field == e.Field)
}

func refuse(reason Reason, field, expected, got string) *Refused {
	return &Refused{Reason: reason, Field: field, Expected: expected, Got: excerpt(got)}
}
