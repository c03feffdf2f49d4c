package vectors_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/vectors"
)

// compiled returns every schema, read by a validator that is not ours.
func compiled(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	all := map[string]*jsonschema.Schema{}
	for _, name := range vectors.Schemas() {
		data, _ := vectors.Schema(name)
		all[name] = compile(t, name+".json", data, "")
	}
	return all
}

func compile(t *testing.T, name string, data []byte, fragment string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	s, err := c.Compile(name + fragment)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// scenarios returns the golden vectors of some kinds as they lie in the kit.
func scenarios(t *testing.T, kinds ...string) []authorkit.Scenario {
	t.Helper()
	var all []authorkit.Scenario
	for _, kind := range kinds {
		entries, err := fs.ReadDir(vectors.Files(), "scenario/"+kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			data, err := fs.ReadFile(vectors.Files(), "scenario/"+kind+"/"+e.Name())
			if err != nil {
				t.Fatal(err)
			}
			var s authorkit.Scenario
			d := json.NewDecoder(bytes.NewReader(data))
			d.DisallowUnknownFields()
			if err := d.Decode(&s); err != nil || s.Kind != kind || s.Name+".json" != e.Name() || s.Says == "" {
				t.Fatalf("%s/%s: %v", kind, e.Name(), err)
			}
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no scenarios of %v", kinds)
	}
	return all
}

func raw(t *testing.T, s string) []byte {
	t.Helper()
	data, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// validate is what an author's program does: a JSON parser that knows nothing
// of our rules, then the schema.
func validate(s *jsonschema.Schema, data []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("parser: %w", err)
	}
	return s.Validate(value)
}

func decode(t *testing.T, schema string, data []byte) error {
	t.Helper()
	if schema == authorkit.ErrorName {
		_, err := wire.DecodeError(data)
		return err
	}
	m, ok := authorkit.MessageNamed(schema)
	if !ok {
		t.Fatalf("no message is called %s", schema)
	}
	_, err := m.Decode(data)
	return err
}

func TestSchemas_TakeEveryGoldenMessage(t *testing.T) {
	schemas := compiled(t)
	seen := map[string]bool{}
	for _, s := range scenarios(t, "message", "error") {
		seen[s.Schema] = true
		if err := validate(schemas[s.Schema], raw(t, s.Hex)); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if s.Schema != authorkit.ErrorName {
			if err := validate(bundled(t, s.Schema), raw(t, s.Hex)); err != nil {
				t.Errorf("%s in the bundle: %v", s.Name, err)
			}
		}
	}
	for name := range schemas {
		if !seen[name] {
			t.Errorf("%s has no golden message", name)
		}
	}
}

var bundles = map[string]*jsonschema.Schema{}

func bundled(t *testing.T, name string) *jsonschema.Schema {
	if bundles[name] == nil {
		bundles[name] = compile(t, "bundle.json", vectors.Bundle(), "#/$defs/"+name)
	}
	return bundles[name]
}

func TestSchemas_TakeEveryExchange(t *testing.T) {
	schemas := compiled(t)
	endpoints := map[string]bool{}
	for _, s := range scenarios(t, "exchange") {
		endpoints[s.Endpoint] = true
		for _, half := range []*authorkit.Half{s.Request, s.Response} {
			if half.JSON != nil {
				if err := validate(schemas[half.Schema], raw(t, half.Body)); err != nil {
					t.Errorf("%s: %v", s.Name, err)
				}
			}
		}
		speech := authorkit.SpeechOf(wire.Endpoint(s.Endpoint))
		for _, f := range s.Request.Frames {
			if f.Decoded != nil {
				if err := validate(schemas[speech.Request], raw(t, f.Payload)); err != nil {
					t.Errorf("%s: call: %v", s.Name, err)
				}
			}
		}
		for _, f := range s.Response.Frames {
			name, ok := map[string]string{"result": speech.Answer, "item": speech.Item, "error": "Error", "open": "Opened", "out_end": "OutEnd",
				"err_end": "ErrEnd", "window": "Window", "exit": "Exit", "detach": "Detach", "truncated": "Truncated"}[f.Name]
			if ok {
				if err := validate(schemas[name], raw(t, f.Payload)); err != nil {
					t.Errorf("%s: %s: %v", s.Name, f.Name, err)
				}
			}
		}
	}
	for _, e := range wire.Endpoints() {
		if !endpoints[string(e)] {
			t.Errorf("%s has no exchange", e)
		}
	}
}

// TestSchemas_RefuseWhatTheySay: a negative vector says whether a schema can see
// it, and an independent validator agrees. The codec refuses each of them.
func TestSchemas_RefuseWhatTheySay(t *testing.T) {
	schemas := compiled(t)
	hidden := 0
	for _, s := range scenarios(t, "refused-message", "refused-request") {
		data := raw(t, s.Hex)
		err := validate(schemas[s.Schema], data)
		var invalid *jsonschema.ValidationError
		if visible := errors.As(err, &invalid); visible != *s.Expressible {
			t.Errorf("%s: schema_refuses is %v: %v", s.Name, *s.Expressible, err)
		}
		if !*s.Expressible {
			hidden++
		}
		err = decode(t, s.Schema, data)
		if s.Kind == "refused-request" {
			if err != nil {
				t.Errorf("%s: the codec: %v", s.Name, err)
			}
			continue
		}
		var e *wire.Error
		if !errors.As(err, &e) || e.Pointer != *s.Pointer {
			t.Errorf("%s: %v, want a refusal of %q", s.Name, err, *s.Pointer)
		}
		if c := (*canonical.Error)(nil); errors.As(err, &c) && string(c.Reason) != s.Reason {
			t.Errorf("%s: %s, want %s", s.Name, c.Reason, s.Reason)
		}
	}
	if hidden == 0 {
		t.Error("a schema sees everything: who needs a strict reader")
	}
}

// TestSchemas_TakeNothingThatTheCodecRefuses changes every golden message at
// every place and holds the two judges against each other.
func TestSchemas_TakeNothingThatTheCodecRefuses(t *testing.T) {
	schemas := compiled(t)
	taken, refused := 0, 0
	for _, s := range scenarios(t, "message", "error") {
		var whole any
		d := json.NewDecoder(bytes.NewReader(raw(t, s.Hex)))
		d.UseNumber()
		if err := d.Decode(&whole); err != nil {
			t.Fatal(err)
		}
		for _, changed := range variants(whole) {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(changed); err != nil {
				t.Fatal(err)
			}
			if err := validate(schemas[s.Schema], b.Bytes()); err != nil {
				refused++
				m, _ := authorkit.MessageNamed(s.Schema)
				if !requests[s.Schema] {
					continue
				}
				if value, codec := m.Decode(b.Bytes()); codec == nil && authorkit.Contract(value) == nil {
					// An optional field that is spelt out as empty is left out in
					// the canonical form, which is what travels.
					form, _ := wire.Encode(value)
					if err := validate(schemas[s.Schema], form); err != nil {
						t.Errorf("%s: the schema refuses what codec and contract take: %v\n%s", s.Name, err, form)
					}
				}
				continue
			}
			taken++
			// What the codec alone knows: bytes are no characters, an escape has one form.
			if err := decode(t, s.Schema, b.Bytes()); err != nil {
				t.Errorf("%s: the schema takes what the codec refuses: %v\n%s", s.Name, err, b.Bytes())
			}
		}
	}
	t.Logf("%d variants taken by both, %d refused", taken, refused)
	if taken < 100 || refused < 1000 {
		t.Error("the variants are too few to mean something")
	}
}

// requests are the messages on which the contract has an opinion as a whole.
var requests = map[string]bool{"ProvisionRequest": true, "CloneRequest": true, "ResumeRequest": true, "CleanupRequest": true}

// variants returns value with one place changed, in every way and at every place.
func variants(value any) (all []any) {
	all = append(all, []any{nil, true, "", "x", json.Number("-1"), json.Number("0"), json.Number("9007199254740992"), json.Number("1.5"), []any{}, map[string]any{}, strings.Repeat("a", 300)}...)
	switch v := value.(type) {
	case map[string]any:
		with := func(key string, inner any) {
			out := map[string]any{}
			for k, value := range v {
				out[k] = value
			}
			if inner == any(absent) {
				delete(out, key)
			} else {
				out[key] = inner
			}
			all = append(all, out)
		}
		for key, inner := range v {
			with(key, absent)
			with(strings.ToUpper(key), inner)
			for _, changed := range variants(inner) {
				with(key, changed)
			}
		}
		with("zzz", json.Number("1"))
	case []any:
		for i := range v {
			for _, changed := range variants(v[i]) {
				out := append([]any{}, v...)
				out[i] = changed
				all = append(all, out)
			}
		}
		if len(v) > 0 {
			all = append(all, v[1:], append(append([]any{}, v...), v[0]))
		}
	}
	return all
}

var absent = new(int)
