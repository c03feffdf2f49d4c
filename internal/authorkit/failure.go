package authorkit

import (
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// adapter is an error of the contract as a part of a scenario.
type adapter struct {
	Kind      string `json:"kind"`
	Operation string `json:"operation"`
	Expected  string `json:"expected,omitzero"`
	Actual    string `json:"actual,omitzero"`
	Reason    string `json:"reason,omitzero"`
}

// failed is one failure of each tag, and of each shape that a tag has.
type failed struct {
	name, says string
	failure    error
}

func failures() []failed {
	return []failed{
		{"capability-unavailable", "a requirement that cannot be met", sandbox.Unavailable(sandbox.OpProvision, sandbox.RequireTier, "", "")},
		{"capability-unavailable-values", "with what was asked for and what there is", sandbox.Unavailable(sandbox.OpProvision, sandbox.RequireResources, "16 GiB", "8 GiB")},
		{"file-too-large", "over 16 MiB; the path is not UTF-8", sandbox.TooLarge(sandbox.OpWriteFile, "/workspace/repo/\xff", sandbox.MaxFileBytes)},
		{"instance-not-found", "no such instance", sandbox.NoInstance(sandbox.OpExecute, instanceID)},
		{"lifecycle-conflict", "the wrong state", sandbox.Conflict(sandbox.OpActivate, "provisioning", "active")},
		{"lifecycle-conflict-absent", "a member that is not there", sandbox.Conflict(sandbox.OpListDir, "", sandbox.ActualListDirUnsupported)},
		{"operation-failed", "a rollback that took too long", sandbox.Failed("provision_rollback", sandbox.ReasonTimedOut, nil)},
		{"operation-failed-path", "about one path", sandbox.FailedAt(sandbox.OpReadFile, "/workspace/project/a.txt", sandbox.ReasonNotFound, nil)},
		{"output-limit-exceeded", "a command that wrote too much", sandbox.OverLimit(sandbox.StreamStderr, 1<<20)},
		{"snapshot-forbidden", "zero retention", sandbox.Forbidden(sandbox.OpSnapshot, "")},
		{"snapshot-forbidden-instance", "of which instance", sandbox.Forbidden(sandbox.OpSnapshot, instanceID)},
		{"snapshot-not-found", "no such snapshot", sandbox.NoSnapshot(sandbox.OpResume, snapshotID)},
		{"unauthenticated", "no token, or another", &wire.Error{Tag: wire.TagUnauthenticated}},
		{"forbidden", "known, and not allowed", &wire.Error{Tag: wire.TagForbidden, Operation: "provision"}},
		{"malformed", "which field, and what was expected; never what came", &wire.Error{Tag: wire.TagMalformed, Operation: "provision", Pointer: "mounts[3].access", Message: "expected read_only or read_write"}},
		{"malformed-header", "a header is named in lower case", &wire.Error{Tag: wire.TagMalformed, Operation: "provision", Pointer: "checkfu-lease-epoch"}},
		{"unsupported", "another revision", &wire.Error{Tag: wire.TagUnsupported, Supported: []string{wire.Revision}}},
		{"member-unknown", "no such endpoint", &wire.Error{Tag: wire.TagMemberUnknown, Operation: "pause"}},
		{"operation-unknown", "no such operation", &wire.Error{Tag: wire.TagOperationUnknown, Operation: "operation"}},
		{"process-not-found", "no such process", &wire.Error{Tag: wire.TagProcessNotFound, Operation: "process_wait"}},
		{"payload-too-large", "a body over its bound", &wire.Error{Tag: wire.TagPayloadTooLarge, Operation: "provision", MaximumBytes: wire.MaxRequestBytes}},
		{"lease-fenced", "a lower epoch than the current one", &wire.Error{Tag: wire.TagLeaseFenced, Operation: "execute", LeaseEpoch: 8}},
		{"operation-mismatch", "the id of another request", &wire.Error{Tag: wire.TagOperationMismatch, Operation: "execute"}},
		{"operation-rolled-back", "the original came after its rollback", &wire.Error{Tag: wire.TagOperationRolledBack, Operation: "provision"}},
		{"input-buffer-full", "more than the credit; nothing was taken", &wire.Error{Tag: wire.TagInputBufferFull, Operation: "process_input", InputOffset: 65536}},
		{"input-gap", "bytes before these are missing", &wire.Error{Tag: wire.TagInputGap, Operation: "process_input", InputOffset: 6, InputCredit: 65530}},
		{"input-closed-ended", "the caller's own half-close", &wire.Error{Tag: wire.TagInputClosed, Operation: "process_input", InputOffset: 6, Cause: wire.CauseEnded}},
		{"input-closed-guest", "the process closed it", &wire.Error{Tag: wire.TagInputClosed, Operation: "process_input", InputOffset: 6, Cause: wire.CauseGuestClosed}},
		{"input-closed-exited", "the process is gone", &wire.Error{Tag: wire.TagInputClosed, Operation: "process_input", InputOffset: 6, Cause: wire.CauseExited}},
		{"output-truncated", "what the reader wants is gone", &wire.Error{Tag: wire.TagOutputTruncated, Operation: "process_stream", LowWater: 11611392}},
		{"cursor-ahead", "what the reader wants was never written", &wire.Error{Tag: wire.TagCursorAhead, Operation: "process_stream", End: 6}},
		{"overloaded", "nothing was done yet; come again", &wire.Error{Tag: wire.TagOverloaded, Operation: "execute", RetryAfterMS: 1500}},
	}
}

func errorBodies() (all []Scenario) {
	for _, f := range failures() {
		body, status, err := wire.EncodeError(f.failure)
		if err != nil {
			panic("authorkit: " + err.Error())
		}
		s := Scenario{Kind: "error", Name: f.name, Says: f.says, Schema: ErrorName, Status: status, Decoded: literal(body)}.jsonText(body)
		s.Retryable, s.Violation = ref(false), ref(false)
		if w, ok := f.failure.(*wire.Error); ok {
			s.Tag, s.Retryable, s.Violation = string(w.Tag), ref(w.Retryable()), ref(w.Violation())
			if a := w.Adapter(sandbox.OpExecute); a != nil {
				s.Adapter = inWords(a)
			}
		} else {
			a := f.failure.(*sandbox.Error)
			s.Tag, s.Adapter = string(a.Kind), inWords(a)
		}
		_, s.Must, s.May, _ = wire.ErrorShape(s.Tag)
		all = append(all, s)
	}
	return all
}

func inWords(a *sandbox.Error) json.RawMessage {
	data, err := canonical.Encode(adapter{string(a.Kind), string(a.Operation), a.Expected, a.Actual, a.Reason})
	if err != nil {
		panic("authorkit: " + err.Error())
	}
	return data
}

// Given is what one delivery of one call came to.
type Given struct {
	Endpoint string `json:"endpoint"`
	Outcome  string `json:"outcome"` // answered, or what became of the connection
	Status   int    `json:"status,omitempty"`
	Media    string `json:"media,omitempty"`
	Encoding string `json:"content_encoding,omitempty"`
	Body     string `json:"body_hex,omitempty"`
}

// dispositions say what a Runner does after each way in which a call can fail.
func dispositions() []Scenario {
	var all []Scenario
	add := func(name, says, action string, reply *sandbox.Error, given Given) {
		s := Scenario{Kind: "disposition", Name: name, Says: says, Action: action, Given: &given}
		if reply != nil {
			s.Adapter = inWords(reply)
		}
		all = append(all, s)
	}
	body := func(b []byte) string { return hex.EncodeToString(b) }
	on := func(e wire.Endpoint, outcome string) Given { return Given{Endpoint: string(e), Outcome: outcome} }
	answered := func(e wire.Endpoint, status int, media, text string) Given {
		return Given{Endpoint: string(e), Outcome: "answered", Status: status, Media: media, Body: body([]byte(text))}
	}
	right := encode(wire.InstanceHandoff{Value: instance(sandbox.StateProvisioning), Rollback: rollback()})

	add("refused-connection", "no connection", "retry", nil, on(wire.Provision, "refused"))
	add("reset-before-headers", "a connection that ended before an answer: it may have been done", "retry", nil, on(wire.Provision, "reset"))
	add("stale-keep-alive", "a pooled connection that was closed under us", "retry", nil, on(wire.Execute, "closed"))
	add("half-a-body", "an answer that ends early", "retry", nil, Given{Endpoint: "provision", Outcome: "truncated", Status: 200, Media: wire.MediaJSON, Body: body(right[:40])})
	add("half-a-frame", "frames that end inside one", "retry", nil, Given{Endpoint: "execute", Outcome: "truncated", Status: 200, Media: wire.MediaFrames, Body: "1100000010"})
	add("no-result", "frames that end without a result: not an answer", "retry", nil, Given{Endpoint: "execute", Outcome: "truncated", Status: 200, Media: wire.MediaFrames, Body: body(wire.AppendOutput(nil, wire.TypeOut, 0, []byte(hello)))})
	add("untyped-502", "a proxy answered, not the provider", "retry", nil, answered(wire.Provision, 502, "text/html", "<html>502 Bad Gateway</html>"))
	add("untyped-504", "likewise", "retry", nil, answered(wire.Provision, 504, "text/html", "<html>504 Gateway Time-out</html>"))
	add("untyped-500", "a status alone says nothing", "retry", nil, answered(wire.Provision, 500, "text/plain", "oops"))
	add("deadline-mutating", "time is over and nobody knows what was done", "fail", sandbox.Failed(sandbox.OpExecute, sandbox.ReasonIndeterminate, nil), on(wire.Execute, "deadline"))
	add("deadline-reading", "time is over and nothing was to be done", "fail", sandbox.Failed(sandbox.OpReadFile, sandbox.ReasonTimedOut, nil), on(wire.ReadFile, "deadline"))
	add("deadline-rollback", "30 seconds are over: the Runner lets go, the provider goes on", "fail", sandbox.Failed("provision_rollback", sandbox.ReasonTimedOut, nil), on(wire.RollbackOperation, "deadline"))
	add("running", "a 202", "poll", nil, answered(wire.Provision, 202, wire.MediaJSON, string(encode(wire.Running{OperationID: operationID, State: "running"}))))
	add("redirect", "no redirect is followed", "violate", nil, answered(wire.Provision, 307, "text/html", ""))
	add("error-body-in-200", "an error is not an answer", "violate", nil, answered(wire.Provision, 200, wire.MediaJSON, `{"error":{"_tag":"WireForbidden","operation":"provision"}}`))
	add("compressed", "nothing is inflated", "violate", nil, Given{Endpoint: "provision", Outcome: "answered", Status: 200, Media: wire.MediaJSON, Encoding: "gzip", Body: "1f8b08"})
	add("other-operation", "the rollback id of another operation", "violate", nil, answered(wire.Provision, 200, wire.MediaJSON,
		string(encode(wire.InstanceHandoff{Value: instance(sandbox.StateProvisioning), Rollback: wire.Rollback{OperationID: rolledBack}}))))
	add("wrong-identity", "an allocation that was not asked for is undone by the id of the request", "unwind", nil, answered(wire.Provision, 200, wire.MediaJSON,
		strings.Replace(string(right), `"workspace_id":"ws-1"`, `"workspace_id":"ws-2"`, 1)))
	add("malformed-answer", "an allocation that cannot be read is undone likewise", "unwind", nil, answered(wire.Provision, 200, wire.MediaJSON,
		strings.Replace(string(right), `"state":"provisioning"`, `"state":"provisioning","state":"active"`, 1)))
	add("dispatch-lost", "after the marker nothing but a typed answer says what happened: inspect, send again", "redeliver", nil, on(wire.DispatchActiveWrite, "reset"))
	add("stream-end", "a stream that ends without its ends is a dropped connection, never an exit", "reattach", nil, Given{Endpoint: "process_stream", Outcome: "truncated", Status: 200, Media: wire.MediaFrames, Body: body(wire.AppendOutput(nil, wire.TypeOut, 0, []byte(hello)))})
	add("stream-silent", "three heartbeats and five seconds of silence", "reattach", nil, on(wire.ProcessStream, "silent"))
	add("stream-draining", "the provider wants to be rid of the connection", "reattach", nil, answered(wire.ProcessStream, 200, wire.MediaFrames, string(frame(wire.TypeDetach, wire.Detach{Reason: wire.DetachDraining}))))
	add("stream-poll-end", "a poll that is over", "reattach", nil, answered(wire.ProcessStream, 200, wire.MediaFrames, string(frame(wire.TypeDetach, wire.Detach{Reason: wire.DetachPollEnd}))))
	add("stream-superseded", "another reader of the same lease", "stop", nil, answered(wire.ProcessStream, 200, wire.MediaFrames, string(frame(wire.TypeDetach, wire.Detach{Reason: wire.DetachSuperseded, AttachID: otherAttach}))))
	add("stream-fenced", "the lease is lost", "stop", nil, answered(wire.ProcessStream, 200, wire.MediaFrames, string(frame(wire.TypeDetach, wire.Detach{Reason: wire.DetachFenced, LeaseEpoch: 8}))))
	add("stream-truncated", "output is gone: the process is killed, nothing is made up", "fail", sandbox.Failed(sandbox.OpOpenProcess, wire.ReasonOutputTruncated, nil), answered(wire.ProcessStream, 200, wire.MediaFrames, string(frame(wire.TypeTruncated, wire.Truncated{LowWater: 11611392}))))

	typed := func(name, says string, e wire.Endpoint, failure error, action string, reply *sandbox.Error) {
		data, status, err := wire.EncodeError(failure)
		if err != nil {
			panic("authorkit: " + err.Error())
		}
		add(name, says, action, reply, answered(e, status, wire.MediaJSON, string(data)))
	}
	adapters := map[string]wire.Endpoint{"file-too-large": wire.WriteFile, "lifecycle-conflict": wire.Activate, "lifecycle-conflict-absent": wire.ListDir,
		"operation-failed": wire.RollbackOperation, "operation-failed-path": wire.ReadFile, "output-limit-exceeded": wire.Execute,
		"snapshot-forbidden": wire.Snapshot, "snapshot-forbidden-instance": wire.Snapshot, "snapshot-not-found": wire.Resume, "instance-not-found": wire.Execute}
	for _, f := range failures() {
		switch e := f.failure.(type) {
		case *sandbox.Error:
			endpoint, ok := adapters[f.name]
			if !ok {
				endpoint = wire.Provision
			}
			typed("typed-"+f.name, "a typed error is the answer; it is not sent again", endpoint, e, "fail", e)
		case *wire.Error:
			endpoint := wire.Endpoint(e.Operation)
			t, ok := endpoint.Traits()
			if !ok {
				endpoint = wire.Provision
				t, _ = endpoint.Traits()
			}
			action, reply := "fail", e.Adapter(t.Member)
			switch {
			case e.Retryable():
				action = "retry"
			case e.Tag == wire.TagOperationUnknown:
				// The journal is gone, and with it what became of the operation.
				reply = sandbox.Failed(sandbox.OpExecute, sandbox.ReasonIndeterminate, nil)
			case e.Violation():
				action = "violate"
			case e.Tag == wire.TagLeaseFenced:
				action = "stop"
			case e.Tag == wire.TagInputBufferFull:
				action = "refill"
			case e.Tag == wire.TagInputGap:
				action = "rewind"
			case e.Tag == wire.TagInputClosed:
				action = "close-input"
			case reply == nil:
				reply = sandbox.Failed(t.Member, sandbox.ReasonProviderError, nil)
			}
			typed("typed-"+f.name, f.says, endpoint, e, action, reply)
		}
	}
	return all
}

func frame(t wire.Type, m wire.Message) []byte {
	return wire.AppendFrame(nil, wire.Frame{Type: t, Payload: encode(m)})
}
