package evidence_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"testing"
	"time"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/evidence/vectors"
	"github.com/checkfu/checkfu/sandbox"
)

// vector is a scenario as it lies in the kit.
type vector struct {
	Attesters, Receipt, Signature string
	Now                           sandbox.Timestamp
}

func read(t testing.TB, name string) (v vector) {
	t.Helper()
	data, err := fs.ReadFile(vectors.Files(), "scenario/receipt/"+name+".json")
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// every returns all vectors of receipts.
func every(t testing.TB) (all []vector) {
	t.Helper()
	entries, err := fs.ReadDir(vectors.Files(), "scenario/receipt")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, read(t, e.Name()[:len(e.Name())-len(".json")]))
	}
	return all
}

// sample is a receipt that is whole, and testKey the key that signed it, whose
// private half is published.
func sample(t testing.TB) evidence.Receipt {
	t.Helper()
	r, err := evidence.Decode([]byte(read(t, "valid").Receipt))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	data, err := fs.ReadFile(vectors.Files(), "keys.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Keys []struct{ Seed string } }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	seed, err := hex.DecodeString(file.Keys[0].Seed)
	if err != nil {
		t.Fatal(err)
	}
	return ed25519.NewKeyFromSeed(seed)
}

// verifier lists the test key, at the time of the vectors.
func verifier(t testing.TB) evidence.Verifier {
	t.Helper()
	v := read(t, "valid")
	set, err := evidence.ParseAttesters([]byte(v.Attesters))
	if err != nil {
		t.Fatal(err)
	}
	at, err := v.Now.Time()
	if err != nil {
		t.Fatal(err)
	}
	return evidence.Verifier{Attesters: set, Now: at.Add(time.Millisecond)}
}
