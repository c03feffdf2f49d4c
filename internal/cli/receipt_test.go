package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/evidence/vectors"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// receiptCommands are the words of the scripts about receipts.
var receiptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"vector": writeVector,
	"seal":   sealReceipt,
}

type receiptVector struct {
	Attesters, Receipt, Signature string
	Now                           sandbox.Timestamp
	For                           *grade.Certificate
	Accept                        bool
	Reason                        evidence.Reason
	Field                         string
}

func readVector(name string) (v receiptVector, err error) {
	data, err := fs.ReadFile(vectors.Files(), "scenario/receipt/"+name)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}

func (v receiptVector) write(dir string) error {
	for name, text := range map[string]string{"receipt.json": v.Receipt, "receipt.json.sig": v.Signature, "attesters.json": v.Attesters} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeVector lays the three files of a vector into the script's directory.
func writeVector(ts *testscript.TestScript, neg bool, args []string) {
	v, err := readVector(args[0] + ".json")
	ts.Check(err)
	ts.Check(v.write(ts.MkAbs(".")))
}

// sealReceipt makes receipt.json and receipt.json.sig anew by a test key, issued
// a minute ago, for the provider whose envelope a file holds.
func sealReceipt(ts *testscript.TestScript, neg bool, args []string) {
	v, err := readVector("valid.json")
	ts.Check(err)
	r, err := evidence.Decode([]byte(v.Receipt))
	ts.Check(err)
	var c sandbox.Capabilities
	ts.Check(canonical.Decode([]byte(ts.ReadFile(args[0])), &c))
	r.Provider, r.ProviderRevision, r.MaterializationRevision = c.Provider, c.ProviderRevision, c.MaterializationRevision
	now := time.Now()
	r.StartedAt, r.IssuedAt, r.ExpiresAt = sandbox.At(now.Add(-2*time.Minute)), sandbox.At(now.Add(-time.Minute)), sandbox.At(now.Add(time.Hour))
	var keys struct{ Keys []struct{ Seed string } }
	data, err := fs.ReadFile(vectors.Files(), "keys.json")
	ts.Check(err)
	ts.Check(json.Unmarshal(data, &keys))
	seed, err := hex.DecodeString(keys.Keys[0].Seed)
	ts.Check(err)
	v.Signature = ""
	sig, err := evidence.Seal(r, ed25519.NewKeyFromSeed(seed))
	ts.Check(err)
	text, err := evidence.Encode(r)
	ts.Check(err)
	v.Receipt, v.Signature = string(text), string(sig)
	ts.Check(v.write(ts.MkAbs(".")))
}

// TestReceiptVerify_SaysOfEachVectorWhatItIsFor, by its code and as JSON.
func TestReceiptVerify_SaysOfEachVectorWhatItIsFor(t *testing.T) {
	entries, err := fs.ReadDir(vectors.Files(), "scenario/receipt")
	if err != nil || len(entries) < 50 {
		t.Fatal(err, len(entries))
	}
	for _, e := range entries {
		v, err := readVector(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if v.For != nil {
			continue // by an envelope: receipt.txtar
		}
		dir := t.TempDir()
		if err := v.write(dir); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		code := Run(context.Background(), []string{"egress", "receipt", "verify", dir + "/receipt.json", "--attesters", dir + "/attesters.json",
			"--at", string(v.Now), "--json"}, nil, &stdout, &stderr)
		var got verdict
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		want := map[bool]int{true: 0, false: 6}[v.Accept]
		if code != want || got.Valid != v.Accept || got.Reason != v.Reason || got.Field != v.Field || (stderr.Len() > 0) == v.Accept {
			t.Errorf("%s: code %d, %+v, %s", e.Name(), code, got, &stderr)
		}
		if got.Certifies != "" || got.Reviewed {
			t.Errorf("%s: a set of one's own certifies %s", e.Name(), got.Certifies)
		}
	}
}
