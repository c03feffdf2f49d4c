// Package vectors is the author kit of the wire: what somebody needs to write a
// sandbox provider in any language. It holds JSON Schemas of every message,
// golden vectors, an OpenAPI document, and two programs that check themselves
// against the vectors, one in Python and one for Node. README.md says how to
// use them.
//
// Trusts: nothing; it is data. The data are made from package wire by
// internal/authorkit and written by go generate.
// Units: paths have slashes and begin at the kit's own root.
// Concurrency: all functions may be called at any time.
// Source: contract "Machine-readable author kit".
package vectors

//go:generate go run ../../internal/authorkit/generate .

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed README.md REVIEWS.md revisions.json openapi.json check.py check.mjs schema scenario
var kit embed.FS

// Files is the whole kit, read-only.
func Files() fs.FS { return kit }

// Schemas returns the names of the messages that have a schema, in ascending
// order. The bundle is not one of them.
func Schemas() []string {
	entries, err := kit.ReadDir("schema")
	if err != nil {
		return nil // it is embedded
	}
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".json"); name != "bundle" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Schema returns the JSON Schema of one message; ok is false where there is none
// of this name. The bytes are the caller's.
func Schema(name string) (data []byte, ok bool) {
	if !slices.Contains(Schemas(), name) {
		return nil, false
	}
	data, err := kit.ReadFile(path.Join("schema", name+".json"))
	return data, err == nil
}

// Bundle returns one JSON Schema that defines every message. The bytes are the
// caller's.
func Bundle() []byte { return file("schema/bundle.json") }

// OpenAPI returns the OpenAPI 3.1 document of the endpoints. The bytes are the
// caller's.
func OpenAPI() []byte { return file("openapi.json") }

func file(name string) []byte {
	data, err := kit.ReadFile(name)
	if err != nil {
		return nil // it is embedded
	}
	return data
}
