package authorkit

import (
	"strings"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// refusals are the texts that the strict decoder refuses, each one edit away
// from a message that is right.
func refusals() []refusedMessage {
	const batch = "read-files"
	sum := `"aggregate_maximum_bytes":20`
	deep := strings.Repeat("[", 17) + strings.Repeat("]", 17)
	all := []refusedMessage{
		{name: "duplicate-key", says: "two readers keep two different values", example: batch, old: `"instance_id":"inst-1"`, new: `"instance_id":"inst-1","instance_id":"inst-2"`},
		{name: "duplicate-key-by-escape", says: "the same key, spelt with an escape", example: batch, old: `"instance_id":"inst-1"`, new: `"instance_id":"inst-1","instance_i\u0064":"inst-2"`},
		{name: "duplicate-key-inside", says: "in a nested object", example: batch, old: `"maximum_bytes":10,`, new: `"maximum_bytes":10,"maximum_bytes":11,`},
		{name: "duplicate-key-of-a-map", says: "an environment with one name twice", example: "execute", old: `"LANG":"C.UTF-8"`, new: `"LANG":"C.UTF-8","LANG":"C"`},
		{name: "wrong-case", says: "some decoders fold the case of keys", example: batch, old: `"instance_id"`, new: `"Instance_id"`, visible: true},
		{name: "both-cases", says: "and then two keys are one", example: batch, old: `"instance_id":"inst-1"`, new: `"instance_id":"inst-1","Instance_iD":"inst-2"`, visible: true},
		{name: "unknown-key", says: "objects are closed", example: batch, old: `{"aggregate`, new: `{"zzz":1,"aggregate`, visible: true},
		{name: "unknown-key-inside", says: "nested ones too", example: batch, old: `"maximum_bytes":10,`, new: `"maximum_bytes":10,"mode":420,`, visible: true},
		{name: "missing-key", says: "what is not optional is there", example: batch, old: `,"instance_id":"inst-1"`, new: ``, visible: true},
		{name: "null-text", says: "null is no value", example: batch, old: `"inst-1"`, new: `null`, visible: true},
		{name: "null-optional", says: "what is absent is left out", example: "release-durable", old: `"` + string(retained) + `"`, new: `null`, visible: true},
		{name: "null-list", says: "an empty list is []", example: "provision-zdr", old: `"mounts":[]`, new: `"mounts":null`, visible: true},
		{name: "null-whole", says: "nor is it a message", example: "empty", old: `{}`, new: `null`, visible: true},
		{name: "list-for-object", says: "a list is no object", example: "empty", old: `{}`, new: `[]`, visible: true},
		{name: "text-for-integer", says: "a number in quotes", example: batch, old: sum, new: `"aggregate_maximum_bytes":"20"`, visible: true},
		{name: "integer-for-text", says: "a name without quotes", example: batch, old: `"inst-1"`, new: `1`, visible: true},
		{name: "integer-for-boolean", says: "1 is not true", example: "settled", old: `true`, new: `1`, visible: true},
		{name: "fraction", says: "1.0 is an integer to a JSON Schema and to no strict reader", example: batch, old: sum, new: sum + `.0`},
		{name: "exponent", says: "2e1 likewise", example: batch, old: sum, new: `"aggregate_maximum_bytes":2e1`},
		{name: "exponent-zero", says: "and 20e0", example: batch, old: sum, new: sum + `e0`},
		{name: "real-fraction", says: "20.5", example: batch, old: sum, new: sum + `.5`, visible: true},
		{name: "minus-zero", says: "-0 is two values in one", example: "process-input", old: `"offset":0`, new: `"offset":-0`},
		{name: "integer-2-to-53", says: "the first integer that a double cannot tell from its neighbour", example: "truncated", old: `11611392`, new: `9007199254740992`, visible: true},
		{name: "integer-huge", says: "beyond 64 bits", example: "truncated", old: `11611392`, new: `18446744073709551617`, visible: true},
		{name: "leading-zero", says: "01 is no JSON", example: batch, old: sum, new: `"aggregate_maximum_bytes":020`},
		{name: "plus-sign", says: "nor is +20", example: batch, old: sum, new: `"aggregate_maximum_bytes":+20`},
		{name: "not-a-number", says: "nor is NaN, which some libraries write", example: batch, old: sum, new: `"aggregate_maximum_bytes":NaN`},
		{name: "lone-high-surrogate", says: "half a character", example: batch, old: `a.txt`, new: `\ud800`},
		{name: "lone-low-surrogate", says: "the other half", example: batch, old: `a.txt`, new: `\udc00x`},
		{name: "surrogates-reversed", says: "both, in the wrong order", example: batch, old: `a.txt`, new: `\udc00\ud800`},
		{name: "byte-order-mark", says: "U+FEFF before the text", example: batch, old: `{"aggregate`, new: "\ufeff" + `{"aggregate`},
		{name: "invalid-utf-8", says: "a raw byte 0xff in a string", example: batch, old: `a.txt`, new: "\xff"},
		{name: "surrogate-in-utf-8", says: "a surrogate as three raw bytes", example: batch, old: `a.txt`, new: "\xed\xa0\x80"},
		{name: "control-character", says: "a raw line feed in a string", example: batch, old: `a.txt`, new: "\n"},
		{name: "depth-17", says: "one level more than sixteen; the type refuses it earlier", example: batch, old: `"inst-1"`, new: deep, visible: true},
		{name: "trailing-value", says: "two values", example: "empty", old: `{}`, new: `{}{}`},
		{name: "trailing-comma", says: "a comma before the end", example: "settled", old: `true}`, new: `true,}`},
		{name: "trailing-nul", says: "a byte behind the value", example: "empty", old: `{}`, new: "{}\x00"},
		{name: "comment", says: "JSON has none", example: "empty", old: `{}`, new: `{/**/}`},
		{name: "single-quotes", says: "nor these", example: "settled", old: `"settled"`, new: `'settled'`},
		{name: "early-end", says: "the end is missing", example: "settled", old: `true}`, new: `true`},
		{name: "nothing", says: "no bytes", example: "empty", old: `{}`, new: ``},

		{name: "escape-without-digits", says: "U+0000 that begins no escape", example: "write-file-bytes", old: `\u0000e9`, new: `\u0000`, visible: true},
		{name: "escape-with-one-digit", says: "one digit", example: "write-file-bytes", old: `\u0000e9`, new: `\u0000e`, visible: true},
		{name: "escape-in-upper-case", says: "one byte has one form", example: "write-file-bytes", old: `\u0000e9`, new: `\u0000E9`, visible: true},
		{name: "escape-of-plain-text", says: "an escape of what needed none", example: "write-file-bytes", old: `\u0000e9`, new: `\u000061`},
		{name: "escape-of-a-whole-character", says: "the two bytes of é, escaped although they are UTF-8 together", example: "write-file-bytes", old: `\u0000e9`, new: `\u0000c3\u0000a9`},

		{name: "operation-id-upper-case", says: "ids have one form", example: "operation", old: `op_0123456789abcdef`, new: `op_0123456789ABCDEF`, visible: true},
		{name: "operation-id-short", says: "of 32 digits", example: "operation", old: `op_0123`, new: `op_123`, visible: true},
		{name: "process-id-prefix", says: "and their own prefix", example: "process-wait", old: `pr_`, new: `op_`, visible: true},
		{name: "attach-id-empty", says: "no id is no id", example: "process-stream-follow", old: string(attachID), new: ``, visible: true},
		{name: "rollback-id-missing", says: "an allocation that could not be undone", example: "instance-active", old: string(operationID), new: ``, visible: true},
		{name: "digest-upper-case", says: "lower-case digits", example: "out-end", old: `sha256:5891b5b`, new: `sha256:5891B5B`, visible: true},
		{name: "digest-other", says: "of one algorithm", example: "out-end", old: `sha256:`, new: `sha512:`, visible: true},
		{name: "negative-offset", says: "offsets begin at 0", example: "err-end", old: `2`, new: `-1`, visible: true},
		{name: "negative-epoch", says: "so do epochs", example: "provision", old: `"lease_epoch":7`, new: `"lease_epoch":-7`, visible: true},
		{name: "wait-too-long", says: "a hold is at most 30 s", example: "operation", old: `20000`, new: `30001`, visible: true},
		{name: "heartbeat-too-short", says: "a heartbeat at least 1 s", example: "process-stream-follow", old: `10000`, new: `999`, visible: true},
		{name: "heartbeat-too-long", says: "and at most 30 s", example: "process-stream-follow", old: `10000`, new: `30001`, visible: true},
		{name: "credit-too-large", says: "an input buffer is at most 4 MiB", example: "window", old: `262144`, new: `4194305`, visible: true},
		{name: "output-window-too-small", says: "an output window at least 4 MiB", example: "opened", old: `8388608`, new: `4194303`, visible: true},
		{name: "exit-both", says: "one cause", example: "exit-code", old: `0}`, new: `0,"signal":"SIGKILL"}`, visible: true},
		{name: "exit-none", says: "and not none", example: "exit-code", old: `"exit_code":0`, new: ``, visible: true},
		{name: "exit-256", says: "codes are one byte", example: "exit-code-255", old: `255`, new: `256`, visible: true},
		{name: "exit-signal-lower-case", says: "signals have names", example: "exit-signal", old: `SIGTERM`, new: `sigterm`, visible: true},
		{name: "exit-signal-number", says: "and not numbers", example: "exit-signal", old: `"SIGTERM"`, new: `15`, visible: true},
		{name: "waited-both", says: "it ended or it runs", example: "waited-exit", old: `3}`, new: `3},"running":true`, visible: true},
		{name: "waited-neither", says: "and one of both", example: "waited-running", old: `"running":true`, new: ``, visible: true},
		{name: "detach-unknown-reason", says: "four reasons", example: "detach-poll-end", old: `poll_end`, new: `bored`, visible: true},
		{name: "detach-fenced-without-epoch", says: "by which epoch", example: "detach-fenced", old: `"lease_epoch":8,`, new: ``, visible: true},
		{name: "detach-draining-by-somebody", says: "nobody superseded it", example: "detach-superseded", old: `superseded`, new: `draining`, visible: true},
		{name: "item-ok-without-size", says: "a file that was read has a size", example: "read-files-ok", old: `,"size":6`, new: ``, visible: true},
		{name: "item-ok-with-reason", says: "and no reason", example: "read-files-ok", old: `"size":6`, new: `"reason":"not_found","size":6`, visible: true},
		{name: "item-refused-without-reason", says: "one that was not has a reason", example: "read-files-refused", old: `"reason":"not_found",`, new: ``, visible: true},
		{name: "item-refused-with-size", says: "and no size", example: "read-files-refused", old: `"status"`, new: `"size":0,"status"`, visible: true},
		{name: "item-status", says: "two statuses", example: "read-files-ok", old: `"ok"`, new: `"maybe"`, visible: true},
		{name: "journal-unknown", says: "four states", example: "journal-open", old: `open`, new: `closed`, visible: true},
		{name: "running-done", says: "a 202 has one state", example: "running", old: `"running"`, new: `"done"`, visible: true},
		{name: "settled-false", says: "settled is true or it is an error", example: "settled", old: `true`, new: `false`, visible: true},
		{name: "rollback-of-a-read", says: "what carries no operation id cannot be undone", example: "rollback", old: `provision`, new: `read_file`, visible: true},
		{name: "rollback-of-a-rollback", says: "nor can a rollback", example: "rollback", old: `provision`, new: `rollback`, visible: true},
		{name: "wire-revision", says: "another revision is another wire", example: "capabilities", old: `sandbox-wire.v1`, new: `sandbox-wire.v2`, visible: true},
		{name: "wire-member-twice", says: "each member once", example: "capabilities", old: `"members":[`, new: `"members":["execute",`, visible: true},
		{name: "wire-member-helper", says: "helpers are not listed", example: "capabilities", old: `"members":[`, new: `"members":["rollback",`, visible: true},
		{name: "wire-member-missing", says: "a required member", example: "capabilities", old: `"execute",`, new: ``, visible: true},
		{name: "wire-member-denied", says: "the envelope says list_dir and the members do not", example: "capabilities", old: `"list_dir","list_project_dir"`, new: `"list_project_dir"`, visible: true},
		{name: "wire-member-claimed", says: "the members say list_dir and the envelope does not", example: "capabilities-least", old: `"read_file",`, new: `"read_file","list_dir",`, visible: true},
		{name: "wire-process-limits-alone", says: "limits of live processes without live processes", example: "capabilities-least", old: `"max_wait_ms":20000`, new: `"input_buffer_bytes":65536,"max_wait_ms":20000,"output_window_bytes":4194304`, visible: true},
		{name: "wire-process-limits-missing", says: "and live processes without limits", example: "capabilities", old: `"input_buffer_bytes":262144,`, new: ``, visible: true},
	}
	for _, bad := range badTimestamps() {
		all = append(all, refusedMessage{name: "timestamp-" + bad.name, says: bad.says, example: "snapshot", old: string(retained), new: bad.text, visible: true})
	}
	return all
}

// badTimestamps are the refused of the twenty-three: each of them is taken by
// at least one library for dates.
func badTimestamps() []struct{ name, says, text string } {
	return []struct{ name, says, text string }{
		{"february-30", "no such day", "2026-02-30T00:00:00.000Z"},
		{"hour-24", "midnight is 00:00 of the next day", "2026-01-01T24:00:00.000Z"},
		{"year-10000", "beyond the range", "+010000-01-01T00:00:00.000Z"},
		{"comma", "a comma for the point", "2026-01-01T00:00:00,000Z"},
		{"full-width-digit", "a digit that is not ASCII", "２026-01-01T00:00:00.000Z"},
		{"year-0", "before the range", "0000-01-01T00:00:00.000Z"},
		{"year-1969", "one millisecond before the range", "1969-12-31T23:59:59.999Z"},
		{"february-29-2023", "no leap year", "2023-02-29T00:00:00.000Z"},
		{"february-29-1900", "nor this one, which is before the range too", "1900-02-29T00:00:00.000Z"},
		{"leap-second", "leap seconds do not exist here", "2016-12-31T23:59:60.000Z"},
		{"no-fraction", "three digits of a second", "2026-01-01T00:00:00Z"},
		{"two-digits", "not two", "2026-01-01T00:00:00.00Z"},
		{"four-digits", "not four", "2026-01-01T00:00:00.0000Z"},
		{"offset", "Z and nothing else", "2026-01-01T00:00:00.000+00:00"},
		{"lower-case-z", "in upper case", "2026-01-01T00:00:00.000z"},
		{"space", "T and no space", "2026-01-01 00:00:00.000Z"},
		{"one-digit-hour", "two digits of an hour", "2026-01-01T0:00:00.000Z"},
		{"leading-space", "nothing before it", " 2026-01-01T00:00:00.000Z"},
		{"month-13", "no such month", "2026-13-01T00:00:00.000Z"},
	}
}

func timestamps() (all []Scenario) {
	for _, good := range []struct{ name, text string }{
		{"first", "1970-01-01T00:00:00.000Z"}, {"last", "9999-12-31T23:59:59.999Z"},
		{"february-29-2024", "2024-02-29T23:59:59.999Z"}, {"february-29-2000", "2000-02-29T00:00:00.000Z"},
	} {
		all = append(all, Scenario{Kind: "timestamp", Name: good.name, Says: "a timestamp", Text: good.text, Accept: ref(true)})
	}
	for _, bad := range badTimestamps() {
		all = append(all, Scenario{Kind: "timestamp", Name: bad.name, Says: bad.says, Text: bad.text, Accept: ref(false)})
	}
	return all
}

// refusedErrors are bodies that are no error bodies: new is the whole text.
func refusedErrors() []refusedMessage {
	long := strings.Repeat("x", wire.MaxErrorTextBytes+1)
	return []refusedMessage{
		{name: "page-of-a-proxy", says: "an untyped answer: a transport failure", new: `<html><body>502 Bad Gateway</body></html>`},
		{name: "empty-object", says: "no error", new: `{}`, visible: true},
		{name: "bare", says: "the error lies under the key error", new: `{"_tag":"WireForbidden","operation":"x"}`, visible: true},
		{name: "beside-something", says: "and nothing beside it", new: `{"error":{"_tag":"WireForbidden","operation":"x"},"ok":true}`, visible: true},
		{name: "adapter-unavailable", says: "only a Runner says this", new: `{"error":{"_tag":"SandboxAdapterUnavailable","operation":"x"}}`, visible: true},
		{name: "adapter-ambiguous", says: "and this", new: `{"error":{"_tag":"SandboxAdapterAmbiguous","operation":"x"}}`, visible: true},
		{name: "protocol-invalid", says: "and this", new: `{"error":{"_tag":"SandboxProtocolInvalid","operation":"x"}}`, visible: true},
		{name: "unknown-tag", says: "twenty-five tags", new: `{"error":{"_tag":"WireTired","operation":"x"}}`, visible: true},
		{name: "tag-case", says: "in their own case", new: `{"error":{"_tag":"wireForbidden","operation":"x"}}`, visible: true},
		{name: "no-operation", says: "which operation failed", new: `{"error":{"_tag":"WireForbidden"}}`, visible: true},
		{name: "null-message", says: "no message is left out", new: `{"error":{"_tag":"WireForbidden","message":null,"operation":"x"}}`, visible: true},
		{name: "field-of-another-tag", says: "each tag has its own fields", new: `{"error":{"_tag":"WireForbidden","operation":"x","pointer":"y"}}`, visible: true},
		{name: "field-missing", says: "and all of them", new: `{"error":{"_tag":"SandboxOperationFailed","operation":"x"}}`, visible: true},
		{name: "unknown-field", says: "and no others", new: `{"error":{"_tag":"WireForbidden","code":1,"operation":"x"}}`, visible: true},
		{name: "unknown-cause", says: "three causes", new: `{"error":{"_tag":"WireInputClosed","cause":"tired","input_credit":0,"input_offset":0,"operation":"x"}}`, visible: true},
		{name: "negative-number", says: "no number is negative", new: `{"error":{"_tag":"WireCursorAhead","end":-1,"operation":"x"}}`, visible: true},
		{name: "retry-too-late", says: "at most a minute", new: `{"error":{"_tag":"WireOverloaded","operation":"x","retry_after_ms":60001}}`, visible: true},
		// The bound is one of bytes, and this text is not escaped, so the schema
		// lets three times as much through.
		{name: "long-text", says: "texts are at most 4,096 bytes", new: `{"error":{"_tag":"WireMalformed","operation":"x","pointer":"` + long + `"}}`},
		{name: "seventeen-revisions", says: "at most sixteen", new: `{"error":{"_tag":"WireUnsupported","operation":"x","supported":["` + strings.Repeat(`x","`, 16) + `x"]}}`, visible: true},
	}
}

// Contract is what the contract says of a request that the codec took: a
// *sandbox.Invalid is what a provider answers with SandboxOperationFailed,
// reason invalid_request. Messages that are no requests have no opinion on them.
func Contract(m wire.Message) error {
	switch r := m.(type) {
	case wire.ProvisionRequest:
		return sandbox.ProvisionRequest(r).Validate()
	case wire.CloneRequest:
		return sandbox.CloneRequest(r).Validate()
	case wire.ResumeRequest:
		return sandbox.ResumeRequest(r).Validate()
	case wire.CleanupRequest:
		return sandbox.CleanupRequest(r).Validate()
	case wire.ExecuteCall:
		return r.Command.Validate()
	case wire.OpenProcessRequest:
		return r.Process.Validate()
	case wire.ReadFileRequest:
		return (sandbox.FileRead{Path: r.Path, AllowedRoot: r.AllowedRoot, MaximumBytes: r.MaximumBytes}).Validate()
	case wire.ReadFilesRequest:
		return (sandbox.FilesRead{AllowedRoot: r.AllowedRoot, Files: r.Files, AggregateMaximumBytes: r.AggregateMaximumBytes}).Validate()
	case wire.ListRequest:
		return (sandbox.Listing{Root: r.Root, MaxEntries: r.MaxEntries}).Validate()
	case wire.FileCall:
		return (sandbox.FileWrite{Path: r.Path, Executable: r.Executable, Symlink: r.Symlink}).Validate()
	}
	return nil
}
