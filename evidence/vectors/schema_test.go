package vectors_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/checkfu/checkfu/evidence"
	"github.com/checkfu/checkfu/evidence/vectors"
)

func schemaFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(vectors.Files(), "schema/"+name+".json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// compiled is read by a validator that is not ours.
func compiled(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaFile(t, name)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(name, doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// refuses: what is no single JSON value is nothing that a schema sees.
func refuses(s *jsonschema.Schema, text string) bool {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	return err == nil && s.Validate(value) != nil
}

// TestSchemas_RefuseWhatTheVectorsSay, and nothing that is accepted.
func TestSchemas_RefuseWhatTheVectorsSay(t *testing.T) {
	receipt, signature, attesters := compiled(t, "receipt"), compiled(t, "signature"), compiled(t, "attesters")
	for _, s := range scenarios() {
		refused := refuses(attesters, s.Attesters)
		if s.Kind == "receipt" {
			refused = refused || refuses(receipt, s.Receipt) || refuses(signature, s.Signature)
		}
		if refused != s.SchemaRefuses {
			t.Errorf("%s: the schemas refuse: %v, the vector says %v", s.Name, refused, s.SchemaRefuses)
		}
	}
}

// TestSchemas_HaveTheFieldsOfTheTypes: closed, the same keys, the same required
// ones.
func TestSchemas_HaveTheFieldsOfTheTypes(t *testing.T) {
	type object struct {
		AdditionalProperties *bool `json:"additionalProperties"`
		Properties           map[string]json.RawMessage
		Required             []string
		Defs                 map[string]json.RawMessage `json:"$defs"`
	}
	read := func(data []byte) (o object) {
		if err := json.Unmarshal(data, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	check := func(name string, o object, typ reflect.Type) {
		var required []string
		n := 0
		for i := range typ.NumField() {
			key, option, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if o.Properties[key] == nil {
				t.Errorf("%s: no property %s", name, key)
			}
			if option == "" {
				required = append(required, key)
			}
			n++
		}
		slices.Sort(required)
		slices.Sort(o.Required)
		if !slices.Equal(required, o.Required) || n != len(o.Properties) || o.AdditionalProperties == nil || *o.AdditionalProperties {
			t.Errorf("%s: %d properties, required %v, want %d and %v, closed", name, len(o.Properties), o.Required, n, required)
		}
	}
	receipt := read(schemaFile(t, "receipt"))
	check("receipt", receipt, reflect.TypeFor[evidence.Receipt]())
	check("case", read(receipt.Defs["Case"]), reflect.TypeFor[evidence.Case]())
	check("mutant", read(receipt.Defs["Mutant"]), reflect.TypeFor[evidence.Mutant]())
	check("signature", read(schemaFile(t, "signature")), reflect.TypeFor[evidence.Signature]())
	attesters := read(schemaFile(t, "attesters"))
	check("attesters", attesters, reflect.TypeFor[evidence.Attesters]())
	var list struct{ Items json.RawMessage }
	if err := json.Unmarshal(attesters.Properties["attesters"], &list); err != nil {
		t.Fatal(err)
	}
	check("attester", read(list.Items), reflect.TypeFor[evidence.Attester]())
}
