package vectors_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/grade"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// scenario is one vector: two files, the set that they are judged by, and the
// verdict.
type scenario struct {
	Kind      string             `json:"kind"` // receipt or attesters
	Name      string             `json:"name"`
	Says      string             `json:"says"`
	Attesters string             `json:"attesters"` // the content of the file
	Receipt   string             `json:"receipt,omitempty"`
	Signature string             `json:"signature,omitempty"`
	Now       sandbox.Timestamp  `json:"now,omitempty"`
	For       *grade.Certificate `json:"for,omitempty"`
	Accept    bool               `json:"accept"`
	Reason    evidence.Reason    `json:"reason,omitempty"`
	Field     string             `json:"field,omitempty"`
	// SchemaRefuses says that a JSON Schema is enough to refuse one of the files.
	SchemaRefuses bool `json:"schema_refuses,omitempty"`
}

// testKey makes a key that everybody can make.
func testKey(n string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("checkfu evidence test key " + n + ": never list it"))
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(key ed25519.PrivateKey) string { return hex.EncodeToString(key[ed25519.SeedSize:]) }

const now = sandbox.Timestamp("2026-12-01T00:00:00.000Z")

// sample is a receipt that nobody earned.
func sample() evidence.Receipt {
	digest := func(b string) sandbox.Digest { return sandbox.Digest("sha256:" + strings.Repeat(b, 32)) }
	r := evidence.Receipt{
		Schema: evidence.EgressConformance, Facts: evidence.Facts(),
		Provider: "acme", ProviderRevision: "acme/7", MaterializationRevision: "acme-image/2",
		Topology: evidence.TopologySocketFile, TopologyDigest: digest("01"), GuardDigest: digest("02"), GuardConfigDigest: digest("03"), RulesetDigest: digest("04"),
		ECH: evidence.ECHDeny, RunID: "run_vector", LeaseID: "lease_vector", LeaseEpoch: 3,
		StartedAt: "2026-11-30T10:00:00.000Z", IssuedAt: "2026-11-30T10:20:00.000Z", ExpiresAt: "2026-12-30T10:20:00.000Z",
	}
	for _, id := range evidence.CaseIDs() {
		c := evidence.Case{ID: id, GuardOnly: evidence.Pass, KernelOnly: evidence.Pass, Both: evidence.Pass}
		switch {
		case id == evidence.Unseen:
			c = evidence.Case{ID: id, GuardOnly: evidence.Skip, KernelOnly: evidence.Skip, Both: evidence.Skip, Reason: "a name inside TLS on a shared CDN is not visible without ending the TLS"}
		case id[0] == 'E':
			c.KernelOnly, c.Reason = evidence.Skip, "the kernel sees addresses and no names"
		}
		r.Cases = append(r.Cases, c)
	}
	for _, m := range []struct{ name, killer string }{
		{"address-classifier-deleted", "P01"}, {"checked-then-resolved-again", "P73"}, {"empty-list-allows", "D17"}, {"first-answer-only", "P68"},
		{"open-when-killed", "D19"}, {"port-ignored", "E02"}, {"sni-ignored", "E42"}, {"suffix-match", "E04"},
	} {
		for _, k := range []evidence.Configuration{evidence.Both, evidence.GuardOnly} {
			r.Mutants = append(r.Mutants, evidence.Mutant{Name: m.name, Configuration: k, KilledBy: m.killer})
		}
	}
	return r
}

func encode(v any) []byte {
	data, err := canonical.Encode(v)
	if err != nil {
		panic(err)
	}
	return data
}

func sign(d evidence.Domain, statement []byte, key ed25519.PrivateKey) []byte {
	data, err := evidence.Sign(d, statement, key)
	if err != nil {
		panic(err)
	}
	return data
}

func setOf(list ...evidence.Attester) string {
	return string(encode(evidence.Attesters{Schema: evidence.AttestersSchema, Attesters: list}))
}

// message is what a signature of a receipt is over.
func message(receipt []byte) []byte {
	return append([]byte("checkfu.sandbox-egress-conformance.v1\x00"), receipt...)
}

// neutral is the key under which everybody can sign everything.
var neutral = "01" + strings.Repeat("00", 31)

// scenarios makes all vectors.
func scenarios() []scenario {
	one, two := testKey("1"), testKey("2")
	listed := setOf(evidence.Attester{Name: "test-key-1", Key: public(one)})
	var all []scenario
	add := func(name, says string, reason evidence.Reason, field string, change func(s *scenario)) {
		data := encode(sample())
		s := scenario{Kind: "receipt", Name: name, Says: says, Attesters: listed, Now: now, Receipt: string(data),
			Signature: string(sign(evidence.EgressConformance, data, one)), Accept: reason == "", Reason: reason, Field: field}
		if change != nil {
			change(&s)
		}
		all = append(all, s)
	}
	// signed puts other bytes under a good signature: what is refused is then
	// refused for what it says.
	signed := func(s *scenario, data []byte) {
		s.Receipt, s.Signature = string(data), string(sign(evidence.EgressConformance, data, one))
	}
	text := func(old, new string) func(s *scenario) {
		return func(s *scenario) {
			changed := strings.Replace(s.Receipt, old, new, 1)
			if changed == s.Receipt {
				panic("nothing to change: " + old)
			}
			signed(s, []byte(changed))
		}
	}
	value := func(change func(r *evidence.Receipt)) func(s *scenario) {
		return func(s *scenario) {
			r := sample()
			change(&r)
			signed(s, encode(r))
		}
	}
	schema := func(change func(s *scenario)) func(s *scenario) {
		return func(s *scenario) { change(s); s.SchemaRefuses = true }
	}
	sealed := func(change func(g *evidence.Signature)) func(s *scenario) {
		return func(s *scenario) {
			var g evidence.Signature
			if err := canonical.Decode([]byte(s.Signature), &g); err != nil {
				panic(err)
			}
			change(&g)
			s.Signature = string(encode(g))
		}
	}

	add("valid", "a receipt that stands", "", "", nil)
	add("valid-first-moment", "it stands from the moment at which it was issued", "", "", func(s *scenario) { s.Now = sample().IssuedAt })
	add("valid-for", "it is the receipt of the revision that was asked about", "", "", func(s *scenario) { c := sample().Certificate(); s.For = &c })
	add("valid-two-listed", "the second of two listed attesters signed it", "", "", func(s *scenario) {
		s.Attesters = setOf(evidence.Attester{Name: "test-key-1", Key: public(one)}, evidence.Attester{Name: "test-key-2", Key: public(two)})
		s.Signature = string(sign(evidence.EgressConformance, []byte(s.Receipt), two))
	})
	add("valid-ech-lax", "a receipt names the lax setting that it was made under", "", "", value(func(r *evidence.Receipt) { r.ECH = evidence.ECHLax }))

	add("nobody-listed", "the set that ships is empty", evidence.ReasonUnlistedKey, "key", func(s *scenario) { s.Attesters = setOf() })
	add("unlisted-key", "a good signature by a key that is not listed", evidence.ReasonUnlistedKey, "key", func(s *scenario) {
		s.Signature = string(sign(evidence.EgressConformance, []byte(s.Receipt), two))
	})
	add("borrowed-key", "an unlisted key signed, and the file names a listed one", evidence.ReasonSignature, "signature", func(s *scenario) {
		s.Signature = string(sign(evidence.EgressConformance, []byte(s.Receipt), two))
		sealed(func(g *evidence.Signature) { g.Key = public(one) })(s)
	})
	add("other-domain", "signed as another kind of statement", evidence.ReasonDomain, "domain", func(s *scenario) {
		s.Signature = string(sign("checkfu.sandbox-egress-conformance.v2", []byte(s.Receipt), one))
		s.SchemaRefuses = true
	})
	add("relabelled-domain", "signed as another kind of statement, and the file says otherwise", evidence.ReasonSignature, "signature", func(s *scenario) {
		s.Signature = string(sign("checkfu.sandbox-egress-conformance.v2", []byte(s.Receipt), one))
		sealed(func(g *evidence.Signature) { g.Domain = evidence.EgressConformance })(s)
	})
	add("no-domain", "signed without the domain in front", evidence.ReasonSignature, "signature", sealed(func(g *evidence.Signature) {
		g.Signature = hex.EncodeToString(ed25519.Sign(one, encode(sample())))
	}))
	add("other-algorithm", "another algorithm is no choice of the file", evidence.ReasonAlgorithm, "algorithm", schema(sealed(func(g *evidence.Signature) { g.Algorithm = "none" })))
	add("short-key", "a key of 31 bytes", evidence.ReasonKey, "key", schema(sealed(func(g *evidence.Signature) { g.Key = g.Key[2:] })))
	add("upper-case-key", "one key has one spelling", evidence.ReasonKey, "key", schema(sealed(func(g *evidence.Signature) { g.Key = strings.ToUpper(g.Key) })))
	add("low-order-key", "the neutral element, under which everybody can sign: also if somebody listed it", evidence.ReasonKey, "key", func(s *scenario) {
		sealed(func(g *evidence.Signature) {
			g.Key, g.Signature = neutral, forged()
		})(s)
	})
	add("short-signature", "a signature of 63 bytes", evidence.ReasonSignature, "signature", schema(sealed(func(g *evidence.Signature) { g.Signature = g.Signature[2:] })))
	add("malleable-signature", "S plus the group's order: the same signature with another number", evidence.ReasonSignature, "signature", sealed(func(g *evidence.Signature) { g.Signature = malleable(g.Signature) }))
	add("second-encoding-of-r", "R is the neutral element with the field's prime added; the holder of the key made S for it", evidence.ReasonSignature, "signature", sealed(func(g *evidence.Signature) {
		g.Signature = overEncoding(one, "ee"+strings.Repeat("ff", 30)+"7f", message(encode(sample())))
	}))
	add("tampered-signature", "one bit of the signature", evidence.ReasonSignature, "signature", sealed(func(g *evidence.Signature) { g.Signature = flip(g.Signature) }))
	add("tampered-receipt", "one digit of the receipt, under the signature of the old one", evidence.ReasonSignature, "signature", func(s *scenario) {
		s.Receipt = strings.Replace(s.Receipt, `"lease_epoch":3`, `"lease_epoch":4`, 1)
	})
	add("newline-after-receipt", "one byte more than was signed", evidence.ReasonSignature, "signature", func(s *scenario) { s.Receipt += "\n" })
	add("newline-after-signature", "a signature file has one form", evidence.ReasonNotCanonical, "signature file", func(s *scenario) { s.Signature += "\n" })
	add("signature-of-more", "a signature file with a field of its own", evidence.ReasonMalformed, "signature file", func(s *scenario) {
		s.Signature = strings.Replace(s.Signature, `{`, `{"accept":true,`, 1)
		s.SchemaRefuses = true
	})

	add("unknown-field", "a field that the schema does not have", evidence.ReasonMalformed, "", schema(text(`{"cases":`, `{"award":"gold","cases":`)))
	add("missing-field", "no digest of the guard", evidence.ReasonMalformed, "", schema(text(`"guard_digest":"`+string(sample().GuardDigest)+`",`, ``)))
	add("duplicate-key", "one key twice: two readers, two receipts", evidence.ReasonMalformed, "", text(`"ech":"deny"`, `"ech":"lax","ech":"deny"`))
	add("wrong-case-key", "a key in another case", evidence.ReasonMalformed, "", schema(text(`"ech":`, `"ECH":`)))
	add("null", "null is no value", evidence.ReasonMalformed, "", schema(text(`"ech":"deny"`, `"ech":null`)))
	add("trailing-data", "a second value behind the first", evidence.ReasonMalformed, "", func(s *scenario) { signed(s, append([]byte(s.Receipt), "{}"...)) })
	add("white-space", "the same value with a space in it", evidence.ReasonNotCanonical, "", text(`"ech":"deny"`, `"ech": "deny"`))
	add("trailing-newline", "the same value and a newline, which was signed too", evidence.ReasonNotCanonical, "", func(s *scenario) { signed(s, append([]byte(s.Receipt), '\n')) })
	add("escaped", "the same value with a letter escaped", evidence.ReasonNotCanonical, "", text(`"ech":"deny"`, `"ech":"den\u0079"`))
	add("key-order", "the same value in another order", evidence.ReasonNotCanonical, "", text(`"killed_by":"P01","name":"address-classifier-deleted"`, `"name":"address-classifier-deleted","killed_by":"P01"`))

	add("other-schema", "a receipt that says that it is another kind of statement", evidence.ReasonDomain, "schema", schema(value(func(r *evidence.Receipt) { r.Schema = "checkfu.sandbox-egress-conformance.v2" })))
	add("four-facts", "four facts certify nothing", evidence.ReasonFacts, "facts", schema(value(func(r *evidence.Receipt) { r.Facts = r.Facts[:4] })))
	add("no-facts", "nor do none", evidence.ReasonFacts, "facts", schema(value(func(r *evidence.Receipt) { r.Facts = nil })))
	add("six-facts", "nor do five and one more", evidence.ReasonFacts, "facts", schema(value(func(r *evidence.Receipt) { r.Facts = append(r.Facts, evidence.DefaultDeny) })))
	add("one-fact-twice", "five words, four facts", evidence.ReasonFacts, "facts", schema(value(func(r *evidence.Receipt) { r.Facts[1] = r.Facts[0] })))
	add("no-such-topology", "a topology that is none", evidence.ReasonField, "topology", schema(value(func(r *evidence.Receipt) { r.Topology = "bridge" })))
	add("short-digest", "a digest of 31 bytes", evidence.ReasonField, "guard_digest", schema(value(func(r *evidence.Receipt) { r.GuardDigest = r.GuardDigest[:69] })))
	add("no-run", "no Run: authority_separation was not taken during one", evidence.ReasonField, "run_id", schema(value(func(r *evidence.Receipt) { r.RunID = "" })))
	add("negative-epoch", "an epoch below zero", evidence.ReasonField, "lease_epoch", schema(value(func(r *evidence.Receipt) { r.LeaseEpoch = -1 })))
	add("failed-case", "a case failed", evidence.ReasonCase, "cases[53].both", schema(value(func(r *evidence.Receipt) { r.Cases[53].Both = evidence.Fail })))
	add("missing-case", "one case is not there", evidence.ReasonCase, "cases[53].id", schema(value(func(r *evidence.Receipt) { r.Cases = slices.Delete(r.Cases, 53, 54) })))
	add("case-twice", "one case twice", evidence.ReasonCase, "cases[54].id", schema(value(func(r *evidence.Receipt) { r.Cases = slices.Insert(r.Cases, 53, r.Cases[53]) })))
	add("skipped-case", "a case other than the one about a shared CDN, skipped everywhere", evidence.ReasonCase, "cases[53]", value(func(r *evidence.Receipt) {
		r.Cases[53] = evidence.Case{ID: "P01", GuardOnly: evidence.Skip, KernelOnly: evidence.Skip, Both: evidence.Skip, Reason: "no time"}
	}))
	add("skip-without-reason", "a skip that says nothing", evidence.ReasonCase, "cases[0].reason", value(func(r *evidence.Receipt) { r.Cases[0].Reason = "" }))
	add("surviving-mutant", "a guard that was made wrong passed everything", evidence.ReasonMutant, "mutants[0].killed_by", schema(value(func(r *evidence.Receipt) { r.Mutants[0].KilledBy = "" })))
	add("killed-by-a-skip", "a mutant killed by a case that was skipped there", evidence.ReasonMutant, "mutants[0].killed_by", value(func(r *evidence.Receipt) { r.Mutants[0].KilledBy = "E52" }))
	add("few-mutants", "seven mutants", evidence.ReasonMutant, "mutants", value(func(r *evidence.Receipt) { r.Mutants = r.Mutants[:14] }))
	add("issued-before-started", "issued before the matrix began", evidence.ReasonTime, "issued_at", value(func(r *evidence.Receipt) { r.StartedAt = "2026-11-30T10:20:00.001Z" }))
	add("ninety-one-days", "a receipt that would stand too long", evidence.ReasonTime, "expires_at", value(func(r *evidence.Receipt) { r.ExpiresAt = "2027-03-01T10:20:00.000Z" }))
	add("february-thirtieth", "a day that does not exist", evidence.ReasonField, "expires_at", schema(value(func(r *evidence.Receipt) { r.ExpiresAt = "2027-02-30T10:20:00.000Z" })))

	add("future", "issued one millisecond from now", evidence.ReasonFuture, "issued_at", func(s *scenario) { s.Now = "2026-11-30T10:19:59.999Z" })
	add("expired", "it stands until its end and not at it", evidence.ReasonExpired, "expires_at", func(s *scenario) { s.Now = sample().ExpiresAt })
	for _, f := range []struct {
		name  string
		field string
		set   func(*grade.Certificate)
	}{
		{"other-provider", "provider", func(c *grade.Certificate) { c.Provider = "acme-worker" }},
		{"other-revision", "provider_revision", func(c *grade.Certificate) { c.ProviderRevision = "acme/8" }},
		{"other-materialization", "materialization_revision", func(c *grade.Certificate) { c.MaterializationRevision = "acme-image/3" }},
	} {
		add(f.name, "the receipt of something else than what was asked about", evidence.ReasonOtherRevision, f.field, func(s *scenario) {
			c := sample().Certificate()
			f.set(&c)
			s.For = &c
		})
	}

	set := func(name, says, content string, reason evidence.Reason, field string, schema bool) {
		all = append(all, scenario{Kind: "attesters", Name: name, Says: says, Attesters: content, Accept: reason == "", Reason: reason, Field: field, SchemaRefuses: schema})
	}
	a, b := evidence.Attester{Name: "a", Key: public(one)}, evidence.Attester{Name: "b", Key: public(two)}
	set("empty", "nobody, in the form that ships", "{\n  \"schema\": \""+evidence.AttestersSchema+"\",\n  \"attesters\": []\n}\n", "", "", false)
	set("two", "two attesters", setOf(a, b), "", "", false)
	set("unsorted", "names ascend", setOf(b, a), evidence.ReasonField, "attesters[1].name", false)
	set("one-key-two-names", "one attester a key", setOf(a, evidence.Attester{Name: "c", Key: a.Key}), evidence.ReasonField, "attesters[1].key", false)
	set("bad-name", "a name with a space", setOf(evidence.Attester{Name: "a b", Key: a.Key}), evidence.ReasonField, "attesters[0].name", true)
	set("low-order", "a key under which everybody can sign", setOf(evidence.Attester{Name: "a", Key: neutral}), evidence.ReasonKey, "attesters[0].key", false)
	set("other-encoding", "the neutral element with the field's prime added", setOf(evidence.Attester{Name: "a", Key: "ee" + strings.Repeat("ff", 30) + "7f"}), evidence.ReasonKey, "attesters[0].key", false)
	set("short", "a key of 31 bytes", setOf(evidence.Attester{Name: "a", Key: a.Key[2:]}), evidence.ReasonKey, "attesters[0].key", true)
	set("unknown-field", "a field that the schema does not have", `{"attesters":[],"open":true,"schema":"`+evidence.AttestersSchema+`"}`, evidence.ReasonMalformed, "", true)
	set("other-schema", "another form", `{"attesters":[],"schema":"checkfu.attesters.v9"}`, evidence.ReasonField, "schema", true)
	return all
}

// forged is a signature under the neutral element, made without any key: R is
// any public key, S its scalar.
func forged() string {
	h := sha512Scalar(testKey("2"))
	return public(testKey("2")) + h
}

func flip(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	b[3] ^= 0x10
	return hex.EncodeToString(b)
}

// judge is what the library says of a scenario.
func (s scenario) judge(t *testing.T) error {
	t.Helper()
	set, err := evidence.ParseAttesters([]byte(s.Attesters))
	if s.Kind == "attesters" {
		return err
	}
	if err != nil {
		t.Fatalf("%s: its own set: %v", s.Name, err)
	}
	at, err := s.Now.Time()
	if err != nil {
		t.Fatal(err)
	}
	v, err := evidence.Verifier{Attesters: set, Now: at.In(time.FixedZone("", 3600)), For: s.For}.Verify([]byte(s.Receipt), []byte(s.Signature))
	if err == nil && !bytes.Equal(encode(v.Receipt), []byte(s.Receipt)) {
		t.Errorf("%s: what was verified is not what was read", s.Name)
	}
	if err != nil && (v.Attester != evidence.Attester{} || v.Receipt.Provider != "") {
		t.Errorf("%s: refused, and something was handed out", s.Name)
	}
	return err
}

func (s scenario) path() string { return "scenario/" + s.Kind + "/" + s.Name + ".json" }

func (s scenario) print() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		panic(err)
	}
	return b.Bytes()
}
