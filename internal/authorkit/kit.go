package authorkit

import (
	"bytes"
	"encoding/json"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// KitSchema names the form of the kit itself.
const KitSchema = "checkfu.sandbox-author-kit.v1"

// Files returns every generated file of the kit: its path below wire/vectors
// and its bytes.
func Files() map[string][]byte {
	files := map[string][]byte{
		"schema/bundle.json": print(Bundle()),
		"openapi.json":       print(OpenAPI()),
	}
	for name, s := range Schemas() {
		files["schema/"+name+".json"] = print(s)
	}
	files["revisions.json"] = print(Revisions{
		Kit: KitSchema, Wire: wire.Revision, Evidence: sandbox.EvidenceSchema, MediaType: wire.MediaFrames,
		Bundle: digest(files["schema/bundle.json"]), OpenAPI: digest(files["openapi.json"]),
	})
	for _, s := range Scenarios() {
		path := "scenario/" + s.Kind + "/" + s.Name + ".json"
		if _, twice := files[path]; twice {
			panic("authorkit: two scenarios are " + path)
		}
		files[path] = print(s)
	}
	return files
}

// Revisions are the compatibility identities, and the digests of the two
// documents that they stand for.
type Revisions struct {
	Kit       string         `json:"kit"`
	Wire      string         `json:"wire"`
	Evidence  string         `json:"evidence"`
	MediaType string         `json:"media_type"`
	Bundle    sandbox.Digest `json:"bundle"`  // of schema/bundle.json as it lies there
	OpenAPI   sandbox.Digest `json:"openapi"` // of openapi.json
}

func digest(data []byte) sandbox.Digest { return sandbox.Digest(canonical.Digest(data)) }

// print is JSON for people and for a diff: indented, keys of maps sorted, one
// end of line.
func print(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("authorkit: " + err.Error())
	}
	return b.Bytes()
}
