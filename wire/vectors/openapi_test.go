package vectors_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/vectors"
)

type object = map[string]any

func document(t *testing.T) object {
	t.Helper()
	var doc object
	if err := json.Unmarshal(vectors.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// walk visits every value below v with its JSON pointer.
func walk(v any, at string, visit func(pointer string, v any)) {
	visit(at, v)
	switch v := v.(type) {
	case object:
		for key, inner := range v {
			walk(inner, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), visit)
		}
	case []any:
		for i, inner := range v {
			walk(inner, at+"/"+strconv.Itoa(i), visit)
		}
	}
}

func find(doc any, pointer string) (any, bool) {
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
		o, ok := doc.(object)
		if !ok {
			return nil, false
		}
		if doc, ok = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]; !ok {
			return nil, false
		}
	}
	return doc, true
}

func TestOpenAPI_RefersToWhatIsThere(t *testing.T) {
	doc := document(t)
	used := map[string]bool{}
	walk(doc, "#", func(at string, v any) {
		o, ok := v.(object)
		if !ok || o["$ref"] == nil {
			return
		}
		target, ok := o["$ref"].(string)
		if !ok || !strings.HasPrefix(target, "#/components/") {
			t.Errorf("%s refers to %v", at, o["$ref"])
			return
		}
		if _, ok := find(doc, target); !ok {
			t.Errorf("%s refers to %s, which is not there", at, target)
		}
		used[target] = true
	})
	for kind, all := range doc["components"].(object) {
		for name := range all.(object) {
			// Frames of a stream are named by the text beside them.
			if kind != "securitySchemes" && kind != "schemas" && !used["#/components/"+kind+"/"+name] {
				t.Errorf("nothing refers to components/%s/%s", kind, name)
			}
		}
	}
}

func TestOpenAPI_SchemasCompile(t *testing.T) {
	doc := document(t)
	components := doc["components"].(object)["schemas"].(object)
	for _, name := range vectors.Schemas() {
		if components[name] == nil {
			t.Errorf("%s is not there", name)
		}
	}
	n := 0
	walk(doc, "#", func(at string, v any) {
		if _, ok := v.(object); ok && (strings.HasSuffix(at, "/schema") || strings.Count(at, "/") == 3 && strings.HasPrefix(at, "#/components/schemas/")) {
			n++
			if n%4 == 0 || strings.HasPrefix(at, "#/components/") {
				compile(t, "openapi.json", vectors.OpenAPI(), at)
			}
		}
	})
	if n < 100 {
		t.Errorf("%d schemas", n)
	}
	// The schemas there mean what those of the kit mean.
	for _, s := range scenarios(t, "message", "error") {
		if s.Name == "capabilities" || s.Kind == "error" && s.Name == "malformed" {
			if err := validate(compile(t, "openapi.json", vectors.OpenAPI(), "#/components/schemas/"+s.Schema), raw(t, s.Hex)); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

func TestOpenAPI_IsTheTableOfEndpoints(t *testing.T) {
	doc := document(t)
	if !strings.HasPrefix(doc["openapi"].(string), "3.1.") || doc["info"].(object)["version"] != wire.Revision {
		t.Errorf("%v %v", doc["openapi"], doc["info"])
	}
	paths := doc["paths"].(object)
	if len(paths) != 29 {
		t.Errorf("%d paths", len(paths))
	}
	ids := map[any]bool{}
	for _, e := range wire.Endpoints() {
		traits, _ := e.Traits()
		item, _ := paths[e.Path()].(object)
		if (item["get"] != nil) != (e == wire.Capabilities) {
			t.Errorf("%s: GET", e)
		}
		for method, value := range item {
			op := value.(object)
			if ids[op["operationId"]] {
				t.Errorf("%s: two operations are called %v", e, op["operationId"])
			}
			ids[op["operationId"]] = true
			var names []string
			for _, p := range op["parameters"].([]any) {
				target, _ := find(doc, p.(object)["$ref"].(string))
				names = append(names, target.(object)["name"].(string))
			}
			header := map[string][]string{}
			wire.RequestHeader{Lease: wire.Lease{ID: "l"}, Operation: wire.NewOperationID(), Deadline: 1}.Set(header, e)
			for name := range header {
				if !slices.Contains(names, name) {
					t.Errorf("%s: no parameter %s", e, name)
				}
			}
			if len(names) != len(header) {
				t.Errorf("%s: parameters %v", e, names)
			}
			media := wire.MediaJSON
			if traits.FramedRequest {
				media = wire.MediaFrames
			}
			if body, ok := op["requestBody"].(object); ok != (method == "post") || ok && body["content"].(object)[media] == nil {
				t.Errorf("%s: body %v", e, body)
			}
			answered := op["responses"].(object)
			if (answered["202"] != nil) != (traits.Mutating || e == wire.PollOperation) {
				t.Errorf("%s: 202", e)
			}
			media = wire.MediaJSON
			if traits.FramedResponse {
				media = wire.MediaFrames
			}
			if answered["200"].(object)["content"].(object)[media] == nil {
				t.Errorf("%s: answers %v", e, answered["200"])
			}
		}
	}
	for _, s := range scenarios(t, "exchange", "disposition") {
		e, status := wire.Endpoint(s.Endpoint), 0
		if s.Given != nil {
			e, status = wire.Endpoint(s.Given.Endpoint), s.Given.Status
			if !strings.HasPrefix(s.Name, "typed-") {
				continue
			}
		} else {
			status = s.Response.Status
		}
		if _, ok := paths[e.Path()].(object)["post"].(object)["responses"].(object)[strconv.Itoa(status)]; !ok {
			t.Errorf("%s: %s may not answer %d", s.Name, e, status)
		}
	}
}
