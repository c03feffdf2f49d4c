package evidence

import (
	_ "embed" // the reviewed set
	"strconv"
)

// AttestersSchema names the form of a file of attesters.
const AttestersSchema = "checkfu.sandbox-egress-conformance-attesters.v1"

// The bounds of a set.
const (
	MaxAttestersBytes = 64 << 10
	MaxAttesters      = 64
)

// Attester is who may sign receipts.
type Attester struct {
	Name string `json:"name"` // ^[a-z0-9][a-z0-9._-]{0,63}$
	Key  string `json:"key"`  // 32 bytes, lower-case hex
}

// Attesters are the keys that are listed. The zero value lists nobody.
type Attesters struct {
	Schema    string     `json:"schema"`
	Attesters []Attester `json:"attesters"` // ascending by name
}

//go:embed attesters.json
var reviewed []byte

// ReviewedAttesters is SANDBOX_EGRESS_CONFORMANCE_ATTESTERS: the set of this
// build, which only a reviewed change alters (REVIEWS.md). It is empty.
// Source: grading "The current posture".
func ReviewedAttesters() Attesters {
	set, err := ParseAttesters(reviewed)
	if err != nil {
		return Attesters{} // it is embedded and tested; what cannot be read lists nobody
	}
	return set
}

// ParseAttesters reads a file of attesters, in any white space and order of
// keys. Names ascend, no name and no key stands twice, and a key under which
// everybody can sign is refused.
// Errors: ReasonTooLarge, ReasonMalformed, ReasonField, ReasonKey.
func ParseAttesters(data []byte) (Attesters, error) {
	var set Attesters
	if err := read(data, MaxAttestersBytes, &set); err != nil {
		return Attesters{}, err
	}
	if set.Schema != AttestersSchema {
		return Attesters{}, refuse(ReasonField, "schema", AttestersSchema, set.Schema)
	}
	if len(set.Attesters) > MaxAttesters {
		return Attesters{}, refuse(ReasonField, "attesters", "at most "+strconv.Itoa(MaxAttesters), strconv.Itoa(len(set.Attesters)))
	}
	seen := map[string]bool{}
	for i, a := range set.Attesters {
		at := "attesters[" + strconv.Itoa(i) + "]."
		switch {
		case !slug(a.Name):
			return Attesters{}, refuse(ReasonField, at+"name", "^[a-z0-9][a-z0-9._-]{0,63}$", a.Name)
		case i > 0 && set.Attesters[i-1].Name >= a.Name:
			return Attesters{}, refuse(ReasonField, at+"name", "ascending, none twice", a.Name)
		}
		if _, err := parseKey(at+"key", a.Key); err != nil {
			return Attesters{}, err
		}
		if seen[a.Key] {
			return Attesters{}, refuse(ReasonField, at+"key", "one attester a key", a.Key)
		}
		seen[a.Key] = true
	}
	return set, nil
}

// find looks a key up. An Attesters that was not parsed can hold a key of low
// order; Authenticate has refused that by then.
func (s Attesters) find(key string) (Attester, bool) {
	for _, a := range s.Attesters {
		if a.Key == key {
			return a, true
		}
	}
	return Attester{}, false
}

// say is who would have been accepted.
func (s Attesters) say() string {
	if len(s.Attesters) == 0 {
		return "the key of a listed attester, and nobody is listed"
	}
	return "one of " + strconv.Itoa(len(s.Attesters)) + " listed keys"
}

// slug is a short name that needs no quoting anywhere.
func slug(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		word := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !word && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
