package wire

import (
	"errors"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// refuse is a field that broke a rule of the wire. What came instead is not
// repeated: it may be a secret, and whoever sent it has it.
func refuse(field, expected string) error {
	return &Error{Tag: TagMalformed, Pointer: field, Message: "expected " + expected}
}

func between(field string, n, low, high int64) error {
	if n < low || n > high {
		return refuse(field, "an integer from "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10))
	}
	return nil
}

func count(field string, n int64) error { return between(field, n, 0, maxOffset) }

func timestamp(field string, t sandbox.Timestamp) error {
	if !t.Valid() {
		return refuse(field, "YYYY-MM-DDTHH:MM:SS.mmmZ, year 1970 to 9999")
	}
	return nil
}

func digest(field string, d sandbox.Digest) error {
	if !d.Valid() {
		return refuse(field, "sha256: and 64 lower-case hex digits")
	}
	return nil
}

func operationID(field string, id OperationID) error { return id32(field, "op_", id.Valid()) }
func processID(field string, id ProcessID) error     { return id32(field, "pr_", id.Valid()) }
func attachID(field string, id AttachID) error       { return id32(field, "at_", id.Valid()) }

func id32(field, prefix string, valid bool) error {
	if !valid {
		return refuse(field, prefix+" and 32 lower-case hex digits")
	}
	return nil
}

func snapshot(field string, s sandbox.Snapshot) error {
	return within(field, first(digest("profile_digest", s.ProfileDigest),
		timestamp("created_at", s.CreatedAt), timestamp("expires_at", s.ExpiresAt)))
}

// invalid turns the contract's refusal of one field into the wire's.
func invalid(err error) error {
	if i := (*sandbox.Invalid)(nil); errors.As(err, &i) {
		return refuse(i.Field, i.Expected)
	}
	return err
}

// within puts the parent's name before the field.
func within(parent string, err error) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		e.Pointer = parent + "." + e.Pointer
	}
	return err
}

// first returns the first error, so that a form reads as a list of rules.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
