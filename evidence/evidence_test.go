package evidence_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// refusedAs asks for one reason, in one field where a field is named.
func refusedAs(t *testing.T, name string, err error, reason evidence.Reason, field string) {
	t.Helper()
	if !errors.Is(err, &evidence.Refused{Reason: reason, Field: field}) {
		t.Errorf("%s: %v, want %s of %q", name, err, reason, field)
	}
}

func TestFiveFacts_AreTheDocumentsOwn(t *testing.T) {
	want := []evidence.Fact{"exact_destination_match", "connect_time_public_address", "redirect_recheck", "authority_separation", "default_deny"}
	if !slices.Equal(evidence.Facts(), want) {
		t.Error(evidence.Facts())
	}
}

// Every set of facts but the whole one: 31 subsets, and every order but one.
func TestFiveFacts_AReceiptMissingOneCertifiesNothing(t *testing.T) {
	facts := evidence.Facts()
	for subset := range 31 {
		r := sample(t)
		r.Facts = nil
		for i, f := range facts {
			if subset&(1<<i) != 0 {
				r.Facts = append(r.Facts, f)
			}
		}
		refusedAs(t, "a subset", r.Validate(), evidence.ReasonFacts, "facts")
		_, err := evidence.Seal(r, testKey(t))
		refusedAs(t, "a subset, to be sealed", err, evidence.ReasonFacts, "facts")
	}
	for i := range 4 {
		r := sample(t)
		r.Facts[i], r.Facts[i+1] = r.Facts[i+1], r.Facts[i]
		refusedAs(t, "another order", r.Validate(), evidence.ReasonFacts, "facts")
	}
}

func TestSeal_MakesWhatVerifies(t *testing.T) {
	r := sample(t)
	data, err := evidence.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := evidence.Seal(r, testKey(t))
	if err != nil {
		t.Fatal(err)
	}
	v, err := verifier(t).Verify(data, sig)
	if err != nil || v.Attester.Name != "test-key-1" {
		t.Fatal(v.Attester, err)
	}
	want := grade.Certificate{Provider: "acme", ProviderRevision: "acme/7", MaterializationRevision: "acme-image/2"}
	if v.Certificate() != want || v.Receipt.RunID != r.RunID {
		t.Error(v.Certificate(), v.Receipt.RunID)
	}
	again, err := evidence.Seal(r, testKey(t))
	if err != nil || !bytes.Equal(again, sig) {
		t.Error("two signatures of one receipt differ", err)
	}
	// What is signed is the domain, a zero byte, and the file.
	var s evidence.Signature
	if err := canonical.Decode(sig, &s); err != nil {
		t.Fatal(err)
	}
	message := append([]byte("checkfu.sandbox-egress-conformance.v1\x00"), data...)
	if want, err := canonical.Encode(evidence.Signature{Algorithm: "ed25519", Domain: evidence.EgressConformance, Key: s.Key, Signature: hexOf(ed25519.Sign(testKey(t), message))}); err != nil || !bytes.Equal(want, sig) {
		t.Error("it is something else that was signed", err)
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// TestSeal_RefusesWhatIsNotWhole, before a key is touched.
func TestSeal_RefusesWhatIsNotWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *evidence.Receipt)
		reason evidence.Reason
		field  string
	}{
		{"a failed case", func(r *evidence.Receipt) { r.Cases[0].GuardOnly = evidence.Fail }, evidence.ReasonCase, "cases[0].guard_only"},
		{"a case that did not run", func(r *evidence.Receipt) { r.Cases[210].KernelOnly = "" }, evidence.ReasonCase, "cases[210].kernel_only"},
		{"no cases", func(r *evidence.Receipt) { r.Cases = nil }, evidence.ReasonCase, "cases[0]"},
		{"all but the last case", func(r *evidence.Receipt) { r.Cases = r.Cases[:210] }, evidence.ReasonCase, "cases[210]"},
		{"a case too many", func(r *evidence.Receipt) { r.Cases = append(r.Cases, evidence.Case{ID: "A18"}) }, evidence.ReasonCase, "cases[211]"},
		{"two cases in another order", func(r *evidence.Receipt) { r.Cases[1], r.Cases[2] = r.Cases[2], r.Cases[1] }, evidence.ReasonCase, "cases[1].id"},
		{"a reason and no skip", func(r *evidence.Receipt) { r.Cases[60].Reason = "x" }, evidence.ReasonCase, "cases[60].reason"},
		{"a reason with a newline", func(r *evidence.Receipt) { r.Cases[51].Reason = "x\ny" }, evidence.ReasonCase, "cases[51].reason"},
		{"a reason of 201", func(r *evidence.Receipt) { r.Cases[51].Reason = strings.Repeat("x", 201) }, evidence.ReasonCase, "cases[51].reason"},
		{"a mutant that lives", func(r *evidence.Receipt) { r.Mutants[15].KilledBy = "" }, evidence.ReasonMutant, "mutants[15].killed_by"},
		{"a mutant killed by nobody", func(r *evidence.Receipt) { r.Mutants[3].KilledBy = "P91" }, evidence.ReasonMutant, "mutants[3].killed_by"},
		{"a mutant twice", func(r *evidence.Receipt) { r.Mutants[1] = r.Mutants[0] }, evidence.ReasonMutant, "mutants[1]"},
		{"a mutant in no configuration", func(r *evidence.Receipt) { r.Mutants[0].Configuration = "none" }, evidence.ReasonMutant, "mutants[0].configuration"},
		{"a mutant without a name", func(r *evidence.Receipt) { r.Mutants[0].Name = "" }, evidence.ReasonMutant, "mutants[0].name"},
		{"no mutants", func(r *evidence.Receipt) { r.Mutants = nil }, evidence.ReasonMutant, "mutants"},
		{"no provider", func(r *evidence.Receipt) { r.Provider = "" }, evidence.ReasonField, "provider"},
		{"a provider in capitals", func(r *evidence.Receipt) { r.Provider = "Acme" }, evidence.ReasonField, "provider"},
		{"no revision", func(r *evidence.Receipt) { r.ProviderRevision = "" }, evidence.ReasonField, "provider_revision"},
		{"no materialization", func(r *evidence.Receipt) { r.MaterializationRevision = "" }, evidence.ReasonField, "materialization_revision"},
		{"no digest", func(r *evidence.Receipt) { r.RulesetDigest = "" }, evidence.ReasonField, "ruleset_digest"},
		{"a digest in capitals", func(r *evidence.Receipt) {
			r.GuardConfigDigest = sandbox.Digest(strings.ToUpper(string(r.GuardConfigDigest)))
		}, evidence.ReasonField, "guard_config_digest"},
		{"no word on ECH", func(r *evidence.Receipt) { r.ECH = "" }, evidence.ReasonField, "ech"},
		{"no lease", func(r *evidence.Receipt) { r.LeaseID = "" }, evidence.ReasonField, "lease_id"},
		{"a run with a space", func(r *evidence.Receipt) { r.RunID = "run 1" }, evidence.ReasonField, "run_id"},
		{"an epoch beyond 2^53-1", func(r *evidence.Receipt) { r.LeaseEpoch = sandbox.MaxInteger + 1 }, evidence.ReasonField, "lease_epoch"},
		{"no time", func(r *evidence.Receipt) { r.StartedAt = "" }, evidence.ReasonField, "started_at"},
		{"expires as it is issued", func(r *evidence.Receipt) { r.ExpiresAt = r.IssuedAt }, evidence.ReasonTime, "expires_at"},
		{"another schema", func(r *evidence.Receipt) { r.Schema = "" }, evidence.ReasonDomain, "schema"},
	} {
		r := sample(t)
		c.change(&r)
		_, err := evidence.Seal(r, testKey(t))
		refusedAs(t, c.name, err, c.reason, c.field)
		_, err = evidence.Encode(r)
		refusedAs(t, c.name, err, c.reason, c.field)
	}
	many := sample(t)
	for i := range evidence.MaxMutants {
		many.Mutants = append(many.Mutants, evidence.Mutant{Name: "z" + strings.Repeat("a", i/60) + string(rune('0'+i%10)), Configuration: evidence.Both, KilledBy: "P01"})
	}
	slices.SortFunc(many.Mutants, func(a, b evidence.Mutant) int { return strings.Compare(a.Name, b.Name) })
	if err := many.Validate(); !errors.Is(err, &evidence.Refused{Reason: evidence.ReasonMutant}) {
		t.Error(err)
	}
	for name, key := range map[string]ed25519.PrivateKey{"none": nil, "short": testKey(t)[:63], "a seed": ed25519.PrivateKey(testKey(t).Seed())} {
		_, err := evidence.Seal(sample(t), key)
		refusedAs(t, "key: "+name, err, evidence.ReasonKey, "")
	}
}

// TestTally_SaysWhatTheRunSays: a whole run makes the cases of the sample, and
// any other word than pass or skip ends as a refusal to seal.
func TestTally_SaysWhatTheRunSays(t *testing.T) {
	want := sample(t)
	known := map[string]evidence.Case{}
	for _, c := range want.Cases {
		known[c.ID] = c
	}
	said := func(id string, k evidence.Configuration) (evidence.Outcome, string) {
		return known[id].In(k), known[id].Reason
	}
	if got := evidence.Tally(said); !slices.Equal(got, want.Cases) {
		t.Error("the cases differ")
	}
	for _, word := range []evidence.Outcome{evidence.Fail, "error", "blocked", "not_run", ""} {
		for i, k := range evidence.Configurations() {
			r := sample(t)
			r.Cases = evidence.Tally(func(id string, in evidence.Configuration) (evidence.Outcome, string) {
				if id == "R07" && in == k {
					return word, "why"
				}
				return said(id, in)
			})
			_, err := evidence.Seal(r, testKey(t))
			refusedAs(t, string(word), err, evidence.ReasonCase, "cases[149]."+string(evidence.Configurations()[i]))
		}
	}
}

// A private key whose public half is another's signs as the one that its seed
// makes: signing under both would give the seed away.
func TestSign_MendsAKeyOfTwoHalves(t *testing.T) {
	mixed := slices.Clone(testKey(t))
	mixed[40] ^= 1
	sig, err := evidence.Seal(sample(t), mixed)
	if err != nil {
		t.Fatal(err)
	}
	if want := read(t, "valid").Signature; string(sig) != want {
		t.Errorf("%s, want %s", sig, want)
	}
	for _, d := range []evidence.Domain{"", "a\x00b", "a\nb", "é"} {
		_, err := evidence.Sign(d, nil, testKey(t))
		refusedAs(t, "domain "+string(d), err, evidence.ReasonDomain, "domain")
	}
}

// One bit anywhere in the two files, and it is refused.
func TestWhatASignatureProves_NoByteWasAltered(t *testing.T) {
	v, files := verifier(t), read(t, "valid")
	if _, err := v.Verify([]byte(files.Receipt), []byte(files.Signature)); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(files.Receipt); i += 97 { // each verification costs 100 µs
		changed := []byte(files.Receipt)
		changed[i] ^= 1 << (i % 8)
		_, err := v.Verify(changed, []byte(files.Signature))
		refusedAs(t, "receipt", err, evidence.ReasonSignature, "signature")
	}
	for i := range files.Signature {
		changed := []byte(files.Signature)
		changed[i] ^= 1 << (i % 8)
		if _, err := v.Verify([]byte(files.Receipt), changed); !errors.As(err, new(*evidence.Refused)) {
			t.Fatalf("byte %d of the signature file: %v", i, err)
		}
	}
	for n := range len(files.Signature) {
		if _, err := v.Verify([]byte(files.Receipt), []byte(files.Signature)[:n]); err == nil {
			t.Fatalf("%d bytes of the signature file are enough", n)
		}
	}
}

// The zero verifier, the shipped set and an empty one list nobody.
func TestCurrentPosture_NobodyIsListed(t *testing.T) {
	files := read(t, "valid")
	for name, set := range map[string]evidence.Attesters{"reviewed": evidence.ReviewedAttesters(), "none": {}} {
		at, err := files.Now.Time()
		if err != nil {
			t.Fatal(err)
		}
		_, err = evidence.Verifier{Attesters: set, Now: at}.Verify([]byte(files.Receipt), []byte(files.Signature))
		refusedAs(t, name, err, evidence.ReasonUnlistedKey, "key")
		if !errors.As(err, new(*evidence.Refused)) || !bytes.Contains([]byte(err.(*evidence.Refused).Expected), []byte("nobody is listed")) {
			t.Errorf("%s: it is not said that nobody is listed: %v", name, err)
		}
	}
	data, err := os.ReadFile("attesters.json")
	if err != nil {
		t.Fatal(err)
	}
	if set, err := evidence.ParseAttesters(data); err != nil || len(set.Attesters) != 0 {
		t.Error(set, err)
	}
}

func TestBounds(t *testing.T) {
	v, files := verifier(t), read(t, "valid")
	_, err := v.Verify(bytes.Repeat([]byte{' '}, evidence.MaxReceiptBytes+1), []byte(files.Signature))
	refusedAs(t, "receipt", err, evidence.ReasonTooLarge, "")
	_, err = v.Verify([]byte(files.Receipt), bytes.Repeat([]byte{' '}, evidence.MaxSignatureBytes+1))
	refusedAs(t, "signature", err, evidence.ReasonTooLarge, "signature file")
	_, err = evidence.ParseAttesters(bytes.Repeat([]byte{' '}, evidence.MaxAttestersBytes+1))
	refusedAs(t, "attesters", err, evidence.ReasonTooLarge, "")
	_, err = evidence.Decode(bytes.Repeat([]byte{' '}, evidence.MaxReceiptBytes+1))
	refusedAs(t, "decode", err, evidence.ReasonTooLarge, "")
	many := evidence.Attesters{Schema: evidence.AttestersSchema, Attesters: make([]evidence.Attester, evidence.MaxAttesters+1)}
	data, err := canonical.Encode(many)
	if err != nil {
		t.Fatal(err)
	}
	_, err = evidence.ParseAttesters(data)
	refusedAs(t, "65 attesters", err, evidence.ReasonField, "attesters")
	// The largest receipt that is whole fits its bound.
	r := sample(t)
	r.Mutants = nil
	for i := range evidence.MaxMutants {
		r.Mutants = append(r.Mutants, evidence.Mutant{Name: strings.Repeat("m", 60) + string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}), Configuration: evidence.KernelOnly, KilledBy: "P01"})
	}
	for i := range r.Cases {
		c := &r.Cases[i]
		c.GuardOnly, c.KernelOnly, c.Reason = evidence.Skip, evidence.Pass, strings.Repeat("\\", 200)
	}
	if _, err := evidence.Encode(r); err != nil {
		t.Error(err)
	}
	if _, err := (evidence.Verifier{Attesters: v.Attesters, Now: time.Time{}}).Verify([]byte(files.Receipt), []byte(files.Signature)); !errors.Is(err, &evidence.Refused{Reason: evidence.ReasonField, Field: "now"}) {
		t.Error(err)
	}
}

// TestAttesters_NoKeyOfLowOrder works the eight points out anew, as the torsion
// of the curve, and offers each in every encoding that 32 bytes have for it.
func TestAttesters_NoKeyOfLowOrder(t *testing.T) {
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	ys := torsion(t, p)
	if len(ys) != 5 {
		t.Fatalf("%d y coordinates", len(ys))
	}
	offer := func(y *big.Int, sign byte) {
		b := y.FillBytes(make([]byte, 32))
		slices.Reverse(b)
		b[31] |= sign << 7
		data, err := canonical.Encode(evidence.Attesters{Schema: evidence.AttestersSchema, Attesters: []evidence.Attester{{Name: "a", Key: hexOf(b)}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = evidence.ParseAttesters(data)
		refusedAs(t, y.Text(16), err, evidence.ReasonKey, "attesters[0].key")
	}
	for _, y := range ys {
		offer(y, 0)
		offer(y, 1)
	}
	// Whatever 255 bits hold beyond the prime is another encoding of something.
	for i := range int64(19) {
		offer(new(big.Int).Add(p, big.NewInt(i)), byte(i%2))
	}
	// Their neighbours are keys like any other.
	for _, y := range []*big.Int{big.NewInt(2), new(big.Int).Sub(p, big.NewInt(2))} {
		b := y.FillBytes(make([]byte, 32))
		slices.Reverse(b)
		data, err := canonical.Encode(evidence.Attesters{Schema: evidence.AttestersSchema, Attesters: []evidence.Attester{{Name: "a", Key: hexOf(b)}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := evidence.ParseAttesters(data); err != nil {
			t.Error(err)
		}
	}
}

// torsion returns the y of the points P of -x² + y² = 1 + d·x²·y² with 8P = 0.
// The neutral element has 1, order two has -1, order four has 0. A point of
// order eight doubles to y = 0, which is x² + y² = 0: with x² = -y² the curve
// says d·y⁴ + 2y² - 1 = 0.
func torsion(t *testing.T, p *big.Int) []*big.Int {
	t.Helper()
	mod := func(n *big.Int) *big.Int { return n.Mod(n, p) }
	d := mod(new(big.Int).Mul(big.NewInt(-121665), new(big.Int).ModInverse(big.NewInt(121666), p)))
	root := new(big.Int).ModSqrt(mod(new(big.Int).Add(d, big.NewInt(1))), p)
	if root == nil {
		t.Fatal("1 + d has no root")
	}
	all := []*big.Int{big.NewInt(0), big.NewInt(1), new(big.Int).Sub(p, big.NewInt(1))}
	for _, r := range []*big.Int{root, mod(new(big.Int).Neg(root))} {
		square := mod(new(big.Int).Mul(new(big.Int).Sub(r, big.NewInt(1)), new(big.Int).ModInverse(d, p)))
		if y := new(big.Int).ModSqrt(square, p); y != nil {
			all = append(all, y, mod(new(big.Int).Neg(y)))
		}
	}
	return all
}

// TestWhole: what holds of a receipt whoever signed it is all but whose word it is,
// when, and about what.
func TestWhole(t *testing.T) {
	known := map[evidence.Reason]bool{evidence.ReasonUnlistedKey: true, evidence.ReasonFuture: true, evidence.ReasonExpired: true, evidence.ReasonOtherRevision: true}
	whole := 0
	for _, v := range every(t) {
		set, err := evidence.ParseAttesters([]byte(v.Attesters))
		if err != nil {
			t.Fatal(err)
		}
		at, err := v.Now.Time()
		if err != nil {
			t.Fatal(err)
		}
		_, verified := evidence.Verifier{Attesters: set, Now: at}.Verify([]byte(v.Receipt), []byte(v.Signature))
		refused, _ := errors.AsType[*evidence.Refused](verified)
		r, key, err := evidence.Whole([]byte(v.Receipt), []byte(v.Signature))
		switch {
		case verified == nil || known[refused.Reason] && refused.Reason != evidence.ReasonUnlistedKey:
			if err != nil || len(key) != 64 || len(r.Facts) != 5 {
				t.Errorf("%v: %q, %v", verified, key, err)
			}
			whole++
		case refused.Reason == evidence.ReasonUnlistedKey: // and what is behind it may be anything
		default:
			if got, _ := errors.AsType[*evidence.Refused](err); got == nil || got.Reason != refused.Reason {
				t.Errorf("expected %v, got %v", verified, err)
			}
		}
	}
	if whole < 3 {
		t.Errorf("%d were whole", whole)
	}
	if _, _, err := evidence.Whole(make([]byte, evidence.MaxReceiptBytes+1), nil); !errors.Is(err, &evidence.Refused{Reason: evidence.ReasonTooLarge}) {
		t.Error(err)
	}
}
