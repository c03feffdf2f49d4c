package vectors_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/evidence/vectors"
)

var update = flag.Bool("update", false, "write the vectors anew")

// TestVectors_AreWhatTheLibrarySays: byte for byte, nothing else lies there, and
// each has the verdict that it is for.
func TestVectors_AreWhatTheLibrarySays(t *testing.T) {
	want := map[string][]byte{"keys.json": keys()}
	for _, s := range scenarios() {
		if _, twice := want[s.path()]; twice {
			t.Errorf("two scenarios are %s", s.path())
		}
		want[s.path()] = s.print()
		err := s.judge(t)
		var refused *evidence.Refused
		switch {
		case s.Accept && err != nil:
			t.Errorf("%s: %v", s.Name, err)
		case s.Accept:
		case !errors.As(err, &refused):
			t.Errorf("%s: %T %v", s.Name, err, err)
		case refused.Reason != s.Reason || refused.Field != s.Field:
			t.Errorf("%s: %s of %q (%v), want %s of %q", s.Name, refused.Reason, refused.Field, err, s.Reason, s.Field)
		}
	}
	if *update {
		rewrite(t, want)
		return
	}
	total := 0
	err := fs.WalkDir(vectors.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		have, err := fs.ReadFile(vectors.Files(), path)
		total += len(have)
		data, made := want[path]
		delete(want, path)
		switch {
		case made && !bytes.Equal(have, data):
			t.Errorf("%s is not what is made", path)
		case !made && filepath.Dir(path) != "." && filepath.Dir(path) != "schema":
			t.Errorf("%s is not made any more", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range want {
		t.Errorf("%s is missing", path)
	}
	if t.Failed() {
		t.Log("run go test ./evidence/vectors -run TestVectors -update and look at the difference")
	}
	if total > 2<<20 {
		t.Errorf("the vectors have %d bytes", total)
	}
}

func rewrite(t *testing.T, files map[string][]byte) {
	t.Helper()
	if err := os.RemoveAll("scenario"); err != nil {
		t.Fatal(err)
	}
	for path, data := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// keys publishes the private halves.
func keys() []byte {
	type key struct {
		Name   string `json:"name"`
		Seed   string `json:"seed"`
		Public string `json:"public"`
	}
	out := struct {
		Says string `json:"says"`
		Keys []key  `json:"keys"`
	}{Says: "Test keys. Their private halves are public: nothing that they sign says anything, and none of them may ever be listed."}
	for _, n := range []string{"1", "2"} {
		k := testKey(n)
		out.Keys = append(out.Keys, key{"test-key-" + n, hex.EncodeToString(k.Seed()), public(k)})
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

// TestEveryReasonHasAVector but for the two that a vector cannot show: a file
// too large to keep.
func TestEveryReasonHasAVector(t *testing.T) {
	shown := map[evidence.Reason]bool{evidence.ReasonTooLarge: true}
	for _, s := range scenarios() {
		shown[s.Reason] = true
	}
	for _, r := range []evidence.Reason{evidence.ReasonMalformed, evidence.ReasonNotCanonical, evidence.ReasonAlgorithm, evidence.ReasonDomain,
		evidence.ReasonKey, evidence.ReasonUnlistedKey, evidence.ReasonSignature, evidence.ReasonField, evidence.ReasonFacts, evidence.ReasonCase,
		evidence.ReasonMutant, evidence.ReasonTime, evidence.ReasonFuture, evidence.ReasonExpired, evidence.ReasonOtherRevision} {
		if !shown[r] {
			t.Errorf("no vector shows %s", r)
		}
	}
}

// TestTheForgeryIsReal: crypto/ed25519 itself takes it, for any message. It is
// the set and the verifier that do not.
func TestTheForgeryIsReal(t *testing.T) {
	key, err := hex.DecodeString(neutral)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hex.DecodeString(forged())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"", "anything", "anything else"} {
		if !ed25519.Verify(key, []byte(m), signature) {
			t.Errorf("the forgery over %q does not verify: this test shows nothing", m)
		}
	}
	// And the first encoding of R = 0 is a signature, so that it is the second
	// one's bytes that are refused.
	m := message(encode(sample()))
	first, err := hex.DecodeString(overEncoding(testKey("1"), neutral, m))
	if err != nil || !ed25519.Verify(testKey("1").Public().(ed25519.PublicKey), m, first) {
		t.Error("S is not right for its R: the vector shows nothing", err)
	}
}
