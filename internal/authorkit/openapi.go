package authorkit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// OpenAPI returns the OpenAPI 3.1 document of the twenty-nine endpoints, made
// from the endpoint table. Bodies of frames are binary there, because the
// format has no word for them: x-checkfu-frames says which frames they hold.
func OpenAPI() Schema {
	paths := Schema{}
	for _, e := range wire.Endpoints() {
		item := Schema{"post": operation(e)}
		if e == wire.Capabilities {
			get := operation(e)
			delete(get, "requestBody")
			get["operationId"] = "get_capabilities"
			item["get"] = get
		}
		paths[e.Path()] = item
	}
	return Schema{
		"openapi": "3.1.1", "jsonSchemaDialect": dialect,
		"info": Schema{"title": "Checkfu sandbox provider", "version": wire.Revision,
			"description": "What a Runner calls on a sandbox provider. See docs/wire.md of Checkfu; the schemas are those of the author kit."},
		"servers":  []any{Schema{"url": "{base}", "variables": Schema{"base": Schema{"default": "https://provider.example", "description": "fixed at enrollment"}}}},
		"security": []any{Schema{"bearer": []any{}}, Schema{"mutualTLS": []any{}}},
		"paths":    paths,
		"components": Schema{
			"schemas": components(), "parameters": parameters(), "headers": headers(), "responses": responses(),
			"securitySchemes": Schema{
				"bearer":    Schema{"type": "http", "scheme": "bearer", "description": "32 to 512 characters of [A-Za-z0-9._~+/=-]"},
				"mutualTLS": Schema{"type": "mutualTLS", "description": "the public keys of both sides are pinned"},
			},
		},
	}
}

// components are the definitions of the bundle.
func components() Schema {
	out := Schema{}
	for name, s := range Bundle()["$defs"].(definitions) {
		out[name] = relocated(map[string]any(s))
	}
	return out
}

// relocated is v with its references pointing into an OpenAPI document.
func relocated(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(Schema, len(v))
		for key, value := range v {
			if target, ok := value.(string); ok && key == "$ref" {
				out[key] = strings.Replace(target, "#/$defs/", "#/components/schemas/", 1)
				continue
			}
			out[key] = relocated(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = relocated(v[i])
		}
		return out
	}
	return v
}

func component(kind, name string) Schema { return Schema{"$ref": "#/components/" + kind + "/" + name} }

func operation(e wire.Endpoint) Schema {
	t, _ := e.Traits()
	s := SpeechOf(e)
	needs := []any{component("parameters", "Wire"), component("parameters", "Deadline"), component("parameters", "Wait")}
	if t.Lease {
		needs = append(needs, component("parameters", "LeaseId"), component("parameters", "LeaseEpoch"))
	}
	if t.Mutating {
		needs = append(needs, component("parameters", "OperationId"))
	}
	op := Schema{
		"operationId": string(e), "tags": []any{group(e)}, "parameters": needs,
		"requestBody":             Schema{"required": true, "content": request(t, s)},
		"responses":               answers(e, t, s),
		"x-checkfu-request-bytes": t.RequestBytes, "x-checkfu-handoff": t.Handoff,
	}
	if t.ResponseBytes > 0 {
		op["x-checkfu-response-bytes"] = t.ResponseBytes
	}
	if t.Member != "" {
		op["x-checkfu-member"] = string(t.Member)
	}
	return op
}

func group(e wire.Endpoint) string {
	for _, op := range sandbox.Operations() {
		if string(op) == string(e) {
			return "member"
		}
	}
	return "helper"
}

func request(t wire.Traits, s Speech) Schema {
	if !t.FramedRequest {
		return Schema{wire.MediaJSON: Schema{"schema": component("schemas", s.Request)}}
	}
	return frames(Schema{"call": component("schemas", s.Request), "data": s.Data})
}

func frames(content Schema) Schema {
	return Schema{wire.MediaFrames: Schema{"schema": Schema{"type": "string", "format": "binary"}, "x-checkfu-frames": content}}
}

func answers(e wire.Endpoint, t wire.Traits, s Speech) Schema {
	content := Schema{wire.MediaJSON: Schema{"schema": component("schemas", s.Answer)}}
	switch {
	case e == wire.PollOperation:
		content = Schema{
			wire.MediaJSON:   Schema{"schema": Schema{"type": "object", "description": s.Bytes}},
			wire.MediaFrames: frames(Schema{"as": s.Bytes})[wire.MediaFrames],
		}
	case t.FramedResponse:
		inner := Schema{"error": component("schemas", ErrorName)}
		if s.Answer != "" {
			inner["result"] = component("schemas", s.Answer)
		}
		if s.Item != "" {
			inner["item"] = component("schemas", s.Item)
		}
		if s.Bytes != "" {
			inner["bytes"] = s.Bytes
		}
		content = frames(inner)
	}
	out := Schema{"200": Schema{"description": "done", "headers": responseHeaders(t.FramedResponse), "content": content}}
	// What is journaled may be answered later.
	if t.Mutating || e == wire.PollOperation {
		out["202"] = component("responses", "Running")
	}
	for _, status := range statuses() {
		if only, ok := narrow[status]; !ok || only == e {
			out[status] = component("responses", "Error"+status)
		}
	}
	return out
}

// narrow are the statuses of one endpoint only.
var narrow = map[string]wire.Endpoint{"410": wire.ProcessStream, "429": wire.ProcessInput}

// statuses are those of errors, in order of first use.
func statuses() (all []string) {
	seen := map[int]bool{}
	for _, tag := range errorTags() {
		if status, _, _, _ := wire.ErrorShape(tag); !seen[status] {
			seen[status] = true
			all = append(all, strconv.Itoa(status))
		}
	}
	return all
}

func responseHeaders(framed bool) Schema {
	out := Schema{}
	for _, name := range []string{wire.HeaderWire, wire.HeaderCapabilities, wire.HeaderBoot} {
		out[name] = component("headers", name)
	}
	if framed {
		for _, name := range []string{"Cache-Control", "X-Accel-Buffering", "Incremental"} {
			out[name] = component("headers", name)
		}
	}
	return out
}

func headers() Schema {
	required := func(s Schema) Schema { return Schema{"required": true, "schema": s} }
	return Schema{
		wire.HeaderWire:         required(Schema{"const": wire.Revision}),
		wire.HeaderCapabilities: required(component("schemas", "Digest")),
		wire.HeaderBoot:         required(pattern(`^bt_[0-9a-f]{32}$`)),
		"Cache-Control":         required(Schema{"const": "no-store, no-transform"}),
		"X-Accel-Buffering":     required(Schema{"const": "no"}),
		"Incremental":           required(Schema{"const": "?1"}),
	}
}

func parameters() Schema {
	header := func(name string, required bool, s Schema, text string) Schema {
		return Schema{"name": name, "in": "header", "required": required, "schema": s, "description": text}
	}
	return Schema{
		"Wire":        header(wire.HeaderWire, true, Schema{"const": wire.Revision}, "the revision that is spoken"),
		"LeaseId":     header(wire.HeaderLeaseID, true, component("schemas", "Identity"), "the lease that the caller holds"),
		"LeaseEpoch":  header(wire.HeaderLeaseEpoch, true, whole, "its epoch; a lower one than the highest seen is refused"),
		"OperationId": header(wire.HeaderOperationID, true, component("schemas", "OperationID"), "minted by the Runner, the same on every retry"),
		"Deadline":    header(wire.HeaderDeadline, false, integer(1, wire.MaxDeadline.Milliseconds()), "what is left of the caller's budget, in milliseconds"),
		"Wait": header(wire.HeaderWait, false, Schema{"type": "integer", "minimum": 0, "maximum": wire.MaxWaitMS, "default": wire.DefaultWaitMS},
			"the longest hold before a 202, in milliseconds"),
	}
}

func responses() Schema {
	out := Schema{"Running": Schema{"description": "the operation goes on; ask operation", "headers": responseHeaders(false),
		"content": Schema{wire.MediaJSON: Schema{"schema": component("schemas", "Running")}}}}
	for _, status := range statuses() {
		var tags []any
		for _, tag := range errorTags() {
			if s, _, _, _ := wire.ErrorShape(tag); strconv.Itoa(s) == status {
				tags = append(tags, tag)
			}
		}
		branches := make([]any, len(tags))
		for i, tag := range tags {
			branches[i] = component("schemas", fmt.Sprint(tag))
		}
		out["Error"+status] = Schema{"description": "told by its body, never by its status", "x-checkfu-tags": tags, "headers": responseHeaders(false),
			"content": Schema{wire.MediaJSON: Schema{"schema": Schema{"type": "object", "additionalProperties": false, "required": []any{"error"},
				"properties": Schema{"error": Schema{"oneOf": branches}}}}}}
	}
	return out
}
