package evidence_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/checkfu/checkfu/evidence"
)

// FuzzDecode: whatever is taken is whole and has one byte form; whatever is not
// is refused by the one type.
func FuzzDecode(f *testing.F) {
	for _, v := range every(f) {
		f.Add([]byte(v.Receipt))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := evidence.Decode(data)
		if err != nil {
			if !errors.As(err, new(*evidence.Refused)) || len(r.Cases) > 0 || r.Provider != "" {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		again, err := evidence.Encode(r)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("taken and not the same again: %v", err)
		}
	})
}

// FuzzVerify: only what the test key has signed verifies, whatever is sent.
func FuzzVerify(f *testing.F) {
	stands := map[string]bool{}
	v := verifier(f)
	for _, s := range every(f) {
		f.Add([]byte(s.Receipt), []byte(s.Signature))
		if _, err := v.Verify([]byte(s.Receipt), []byte(s.Signature)); err == nil {
			stands[s.Receipt+"\x00"+s.Signature] = true
		}
	}
	if len(stands) < 2 {
		f.Fatal("the verifier takes nothing: this fuzzer shows nothing")
	}
	f.Fuzz(func(t *testing.T, receipt, signature []byte) {
		got, err := v.Verify(receipt, signature)
		switch {
		case err == nil && !stands[string(receipt)+"\x00"+string(signature)]:
			t.Fatalf("a forgery: %s", signature)
		case err != nil && (!errors.As(err, new(*evidence.Refused)) || got.Attester.Key != ""):
			t.Fatalf("%T %v", err, err)
		}
		for _, c := range errText(err) {
			if c < ' ' || c > '~' {
				t.Fatalf("not fit for a log: %q", err)
			}
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzParseAttesters: a set that is taken holds keys of one spelling, none twice.
func FuzzParseAttesters(f *testing.F) {
	f.Add([]byte(`{"attesters":[],"schema":"` + evidence.AttestersSchema + `"}`))
	for _, v := range every(f)[:8] {
		f.Add([]byte(v.Attesters))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := evidence.ParseAttesters(data)
		if err != nil {
			if !errors.As(err, new(*evidence.Refused)) || len(set.Attesters) > 0 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, a := range set.Attesters {
			key, err := hex.DecodeString(a.Key)
			if err != nil || len(key) != 32 || hex.EncodeToString(key) != a.Key || seen[a.Key] || seen[a.Name] {
				t.Fatalf("%+v", set)
			}
			seen[a.Key], seen[a.Name] = true, true
		}
	})
}
