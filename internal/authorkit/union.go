package authorkit

import (
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// unions are the rules between the fields of one object, by definition.
var unions = map[string]Schema{
	"Exit":          {"oneOf": []any{with("exit_code"), with("signal")}},
	"Waited":        {"oneOf": []any{with("exit"), with("running")}},
	"ExecuteResult": {"oneOf": []any{with("exit_code"), with("signal"), with("timed_out")}},
	"FileItem": {"oneOf": []any{
		when("status", wire.ItemOK, all(with("size", "digest"), without("reason"))),
		when("status", wire.ItemRefused, all(with("reason"), without("size", "digest"))),
	}},
	"Detach": {"oneOf": []any{
		when("reason", wire.DetachPollEnd, without("attach_id", "lease_epoch")),
		when("reason", wire.DetachDraining, without("attach_id", "lease_epoch")),
		when("reason", wire.DetachSuperseded, without("lease_epoch")),
		when("reason", wire.DetachFenced, all(with("lease_epoch"), without("attach_id"))),
	}},
	"Released": {"oneOf": []any{
		when("disposition", sandbox.DispositionReleased, with("snapshot")),
		when("disposition", sandbox.DispositionDestroyed, without("snapshot")),
	}},
	"NetworkPolicy": {"oneOf": []any{
		when("mode", sandbox.NetworkAllowlist, with("destinations")),
		when("mode", sandbox.NetworkNone, without("destinations", "required_egress_certification")),
		when("mode", sandbox.NetworkUnrestricted, without("destinations", "required_egress_certification")),
	}},
	"Leaf": {"oneOf": []any{
		when("type", sandbox.LeafRegular, all(with("digest"), without("target", "guest_observed"))),
		when("type", sandbox.LeafSymlink, without("digest", "size", "executable")),
		all(Schema{"type": "object", "properties": Schema{"type": Schema{"enum": words(sandbox.LeafSubmodule, sandbox.LeafDevice, sandbox.LeafSocket, sandbox.LeafFIFO, sandbox.LeafOther)}}},
			without("digest", "size", "executable", "target")),
	}},
	"FileCall": link, "StageCall": link,
	"Capabilities": {"allOf": []any{
		implies(is("image_mode", sandbox.ImageFixed), Schema{"type": "object", "properties": Schema{"fixed_base_images": Schema{"type": "array", "minItems": 1}}}),
		implies(is("image_mode", sandbox.ImageProfile), Schema{"type": "object", "properties": Schema{"fixed_base_images": Schema{"type": "array", "maxItems": 0}}}),
		implies(Schema{"type": "object", "properties": Schema{"snapshots": Schema{"const": false}}}, Schema{"type": "object", "properties": Schema{
			"retention_modes":  Schema{"not": contains(sandbox.RetentionDurable)},
			"snapshot_custody": Schema{"const": sandbox.CustodyRunner}, "snapshot_clone": Schema{"const": false}}}),
	}},
	"Info": {"allOf": []any{
		Schema{"if": Schema{"type": "object", "properties": Schema{"members": contains(sandbox.OpOpenProcess)}},
			"then": Schema{"type": "object", "properties": Schema{"limits": with("output_window_bytes", "input_buffer_bytes")}},
			"else": Schema{"type": "object", "properties": Schema{"limits": without("output_window_bytes", "input_buffer_bytes")}}},
	}},
	"CapabilitiesResponse": {"allOf": agreement()},
}

// link is a symbolic link, which has no content and is not executable.
var link = Schema{"dependentSchemas": Schema{"symlink": Schema{"type": "object", "properties": Schema{"size": Schema{"const": 0}, "executable": Schema{"const": false}}}}}

// agreement holds the members to what the envelope says of them.
func agreement() []any {
	free := []sandbox.Operation{sandbox.OpReadFiles, sandbox.OpListProjectDir, sandbox.OpOpenProcess}
	said := map[sandbox.Operation]string{sandbox.OpListDir: "list_dir", sandbox.OpBeginActiveWrite: "active_mount_write",
		sandbox.OpSnapshot: "snapshots", sandbox.OpResume: "snapshots", sandbox.OpCloneSnapshot: "snapshot_clone"}
	members := func(s Schema) Schema {
		return Schema{"type": "object", "properties": Schema{"wire": Schema{"type": "object", "properties": Schema{"members": s}}}}
	}
	var rules []any
	for _, op := range sandbox.Operations() {
		switch key, conditional := said[op]; {
		case conditional:
			rules = append(rules, Schema{
				"if":   Schema{"type": "object", "properties": Schema{"capabilities": Schema{"type": "object", "required": []any{key}, "properties": Schema{key: Schema{"const": true}}}}},
				"then": members(contains(op)), "else": members(Schema{"not": contains(op)}),
			})
		case op != free[0] && op != free[1] && op != free[2]:
			rules = append(rules, members(contains(op)))
		}
	}
	return rules
}

func with(keys ...string) Schema { return Schema{"type": "object", "required": list(keys)} }

func without(keys ...string) Schema {
	properties := Schema{}
	for _, key := range keys {
		properties[key] = false
	}
	return Schema{"type": "object", "properties": properties}
}

func list(keys []string) []any {
	out := make([]any, len(keys))
	for i, key := range keys {
		out[i] = key
	}
	return out
}

func is[T ~string](key string, word T) Schema {
	return Schema{"type": "object", "properties": Schema{key: Schema{"const": string(word)}}}
}

func when[T ~string](key string, word T, then Schema) Schema { return all(is(key, word), then) }

func all(parts ...Schema) Schema {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return Schema{"allOf": out}
}

func implies(condition, consequence Schema) Schema {
	return Schema{"if": condition, "then": consequence}
}

func contains[T ~string](word T) Schema {
	return Schema{"type": "array", "contains": Schema{"const": string(word)}}
}

// errorBody is the union of the twenty-five tags.
func (d definitions) errorBody() Schema {
	numbers := map[string]Schema{"limit_bytes": whole, "maximum_bytes": whole, "lease_epoch": whole, "input_offset": whole,
		"input_credit": credit, "low_water": whole, "end": whole, "retry_after_ms": integer(0, wire.MaxRetryAfterMS)}
	sets := map[string]Schema{
		"requirement": {"enum": words(sandbox.Requirements()...)},
		"stream":      {"enum": words(sandbox.StreamStdout, sandbox.StreamStderr)},
		"cause":       {"enum": []any{wire.CauseEnded, wire.CauseGuestClosed, wire.CauseExited}},
		"supported":   {"type": "array", "maxItems": 16, "items": pattern(`^[!-~]{1,128}$`)},
	}
	var branches []any
	for _, tag := range errorTags() {
		_, must, may, _ := wire.ErrorShape(tag)
		properties := Schema{"_tag": Schema{"const": tag}, "operation": d.use("ErrorText"), "message": d.use("MessageText")}
		required := append([]string{"_tag", "operation"}, must...)
		for _, key := range append(append([]string{}, must...), may...) {
			switch {
			case numbers[key] != nil:
				properties[key] = numbers[key]
			case sets[key] != nil:
				properties[key] = sets[key]
			default:
				properties[key] = d.use("ErrorText")
			}
		}
		d[tag] = Schema{"type": "object", "additionalProperties": false, "properties": properties, "required": list(required)}
		branches = append(branches, reference(tag))
	}
	return Schema{"type": "object", "additionalProperties": false, "required": []any{"error"}, "properties": Schema{"error": Schema{"oneOf": branches}}}
}

// errorTags are the eight of a provider and the seventeen of the wire.
func errorTags() (tags []string) {
	for _, k := range sandbox.Kinds() {
		tags = append(tags, string(k))
	}
	for _, t := range wire.Tags() {
		tags = append(tags, string(t))
	}
	return tags
}
