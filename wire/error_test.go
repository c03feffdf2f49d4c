package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// published is each of the twenty-five tags as it travels.
var publishedErrors = []struct {
	status  int
	body    string
	failure error
}{
	{422, `{"error":{"_tag":"SandboxCapabilityUnavailable","operation":"provision","requirement":"tier"}}`, sandbox.Unavailable("provision", "tier", "", "")},
	{422, `{"error":{"_tag":"SandboxCapabilityUnavailable","actual":"container","expected":"microvm","operation":"provision","requirement":"tier"}}`, sandbox.Unavailable("provision", "tier", "microvm", "container")},
	{413, `{"error":{"_tag":"SandboxFileTooLarge","maximum_bytes":16777216,"operation":"write_file","path":"/a/\u0000ff"}}`, sandbox.TooLarge("write_file", "/a/\xff", sandbox.MaxFileBytes)},
	{404, `{"error":{"_tag":"SandboxInstanceNotFound","instance_id":"i1","operation":"execute"}}`, sandbox.NoInstance("execute", "i1")},
	{404, `{"error":{"_tag":"SandboxSnapshotNotFound","operation":"resume","snapshot_id":"n1"}}`, sandbox.NoSnapshot("resume", "n1")},
	{409, `{"error":{"_tag":"SandboxLifecycleConflict","actual":"active","expected":"provisioning","operation":"activate"}}`, sandbox.Conflict("activate", "provisioning", "active")},
	{409, `{"error":{"_tag":"SandboxLifecycleConflict","actual":"list_dir_unsupported","expected":"","operation":"list_dir"}}`, sandbox.Conflict("list_dir", "", "list_dir_unsupported")},
	{500, `{"error":{"_tag":"SandboxOperationFailed","operation":"provision_rollback","reason":"timed_out"}}`, sandbox.Failed("provision_rollback", "timed_out", nil)},
	{500, `{"error":{"_tag":"SandboxOperationFailed","operation":"read_file","path":"/a","reason":"not_found"}}`, sandbox.FailedAt("read_file", "/a", "not_found", nil)},
	{422, `{"error":{"_tag":"SandboxOutputLimitExceeded","limit_bytes":5,"operation":"execute","stream":"stderr"}}`, sandbox.OverLimit("stderr", 5)},
	{403, `{"error":{"_tag":"SandboxSnapshotForbidden","instance_id":"i1","operation":"snapshot"}}`, sandbox.Forbidden("snapshot", "i1")},
	{401, `{"error":{"_tag":"WireUnauthenticated","operation":""}}`, &Error{Tag: TagUnauthenticated}},
	{403, `{"error":{"_tag":"WireForbidden","operation":"provision"}}`, &Error{Tag: TagForbidden, Operation: "provision"}},
	{400, `{"error":{"_tag":"WireMalformed","message":"expected integer","operation":"provision","pointer":"mounts[3].access"}}`, &Error{Tag: TagMalformed, Operation: "provision", Pointer: "mounts[3].access", Message: "expected integer"}},
	{400, `{"error":{"_tag":"WireUnsupported","operation":"","supported":["checkfu.sandbox-wire.v1"]}}`, &Error{Tag: TagUnsupported, Supported: []string{Revision}}},
	{404, `{"error":{"_tag":"WireMemberUnknown","operation":"x"}}`, &Error{Tag: TagMemberUnknown, Operation: "x"}},
	{404, `{"error":{"_tag":"WireOperationUnknown","operation":"operation"}}`, &Error{Tag: TagOperationUnknown, Operation: "operation"}},
	{404, `{"error":{"_tag":"WireProcessNotFound","operation":"process_wait"}}`, &Error{Tag: TagProcessNotFound, Operation: "process_wait"}},
	{413, `{"error":{"_tag":"WirePayloadTooLarge","maximum_bytes":8388608,"operation":"provision"}}`, &Error{Tag: TagPayloadTooLarge, Operation: "provision", MaximumBytes: MaxRequestBytes}},
	{409, `{"error":{"_tag":"WireLeaseFenced","lease_epoch":8,"operation":"execute"}}`, &Error{Tag: TagLeaseFenced, Operation: "execute", LeaseEpoch: 8}},
	{422, `{"error":{"_tag":"WireOperationMismatch","operation":"execute"}}`, &Error{Tag: TagOperationMismatch, Operation: "execute"}},
	{409, `{"error":{"_tag":"WireOperationRolledBack","operation":"provision"}}`, &Error{Tag: TagOperationRolledBack, Operation: "provision"}},
	{429, `{"error":{"_tag":"WireInputBufferFull","input_credit":0,"input_offset":65536,"operation":"process_input"}}`, &Error{Tag: TagInputBufferFull, Operation: "process_input", InputOffset: 65536}},
	{409, `{"error":{"_tag":"WireInputGap","input_credit":1,"input_offset":0,"operation":"process_input"}}`, &Error{Tag: TagInputGap, Operation: "process_input", InputCredit: 1}},
	{409, `{"error":{"_tag":"WireInputClosed","cause":"guest_closed","input_credit":0,"input_offset":9,"operation":"process_input"}}`, &Error{Tag: TagInputClosed, Operation: "process_input", InputOffset: 9, Cause: CauseGuestClosed}},
	{410, `{"error":{"_tag":"WireOutputTruncated","low_water":11611392,"operation":"process_stream"}}`, &Error{Tag: TagOutputTruncated, Operation: "process_stream", LowWater: 11611392}},
	{409, `{"error":{"_tag":"WireCursorAhead","end":0,"operation":"process_stream"}}`, &Error{Tag: TagCursorAhead, Operation: "process_stream"}},
	{503, `{"error":{"_tag":"WireOverloaded","operation":"execute","retry_after_ms":60000}}`, &Error{Tag: TagOverloaded, Operation: "execute", RetryAfterMS: 60000}},
}

func TestErrors_TravelUnchanged(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range publishedErrors {
		for _, failure := range []error{c.failure, fmt.Errorf("at the server: %w", c.failure)} {
			body, status, err := EncodeError(failure)
			if err != nil || string(body) != c.body || status != c.status || Status(failure) != status {
				t.Errorf("%v: %d %s, %v", failure, status, body, err)
			}
		}
		back, err := DecodeError([]byte(c.body))
		if err != nil || !equal(back, c.failure) {
			t.Errorf("%s: %#v, %v", c.body, back, err)
		}
		body, _ := Decode[errorBody]([]byte(c.body))
		seen[body.Error.Tag] = true
	}
	for _, tag := range append(Tags(), tagsOf(sandbox.Kinds())...) {
		if !seen[string(tag)] {
			t.Errorf("%s is not published", tag)
		}
		delete(seen, string(tag))
	}
	if len(seen) > 0 || len(rules) != 25 {
		t.Errorf("%d rules, tags that do not exist: %v", len(rules), seen)
	}
}

func tagsOf(kinds []sandbox.Kind) (tags []Tag) {
	for _, k := range kinds {
		tags = append(tags, Tag(k))
	}
	return tags
}

// TestErrors_AreClosed: for every tag, each field that is not its own is
// refused, and each of its own that is missing.
func TestErrors_AreClosed(t *testing.T) {
	fields := map[string]string{"requirement": `"tier"`, "expected": `"x"`, "actual": `"x"`, "reason": `"x"`, "path": `"/x"`,
		"instance_id": `"x"`, "snapshot_id": `"x"`, "stream": `"stdout"`, "limit_bytes": `1`, "maximum_bytes": `1`, "pointer": `"x"`,
		"supported": `["x"]`, "lease_epoch": `1`, "input_offset": `1`, "input_credit": `1`, "cause": `"ended"`, "low_water": `1`, "end": `1`, "retry_after_ms": `1`}
	for _, tag := range append(Tags(), tagsOf(sandbox.Kinds())...) {
		_, must, may, ok := ErrorShape(string(tag))
		if !ok {
			t.Fatalf("%s has no shape", tag)
		}
		body := func(keys []string) []byte {
			s := `{"error":{"_tag":"` + string(tag) + `","operation":"x"`
			for _, k := range keys {
				s += `,"` + k + `":` + fields[k]
			}
			return []byte(s + "}}")
		}
		if _, err := DecodeError(body(must)); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
		if _, err := DecodeError(body(append(slices.Clone(must), may...))); err != nil {
			t.Errorf("%s with all: %v", tag, err)
		}
		for i, k := range must {
			if failure, err := DecodeError(body(slices.Delete(slices.Clone(must), i, i+1))); err == nil {
				t.Errorf("%s without %s is %v", tag, k, failure)
			}
		}
		for k := range fields {
			if slices.Contains(must, k) || slices.Contains(may, k) {
				continue
			}
			if failure, err := DecodeError(body(append(slices.Clone(must), k))); err == nil {
				t.Errorf("%s with %s is %v", tag, k, failure)
			}
		}
	}
	if _, _, _, ok := ErrorShape("SandboxProtocolInvalid"); ok {
		t.Error("a Runner's tag has a shape")
	}
}

func TestDecodeError_RefusesOtherBodies(t *testing.T) {
	long := strings.Repeat("x", MaxErrorTextBytes+1)
	for name, body := range map[string]string{
		"empty":                      ``,
		"a proxy's page":             `<html><body>502 Bad Gateway</body></html>`,
		"an empty object":            `{}`,
		"an answer":                  `{"journal":"open"}`,
		"a bare error":               `{"_tag":"WireForbidden","operation":"x"}`,
		"beside something":           `{"error":{"_tag":"WireForbidden","operation":"x"},"ok":true}`,
		"adapter unavailable":        `{"error":{"_tag":"SandboxAdapterUnavailable","operation":"x"}}`,
		"adapter ambiguous":          `{"error":{"_tag":"SandboxAdapterAmbiguous","operation":"x"}}`,
		"protocol invalid":           `{"error":{"_tag":"SandboxProtocolInvalid","operation":"x"}}`,
		"an unknown tag":             `{"error":{"_tag":"WireTired","operation":"x"}}`,
		"a tag in another case":      `{"error":{"_tag":"wireForbidden","operation":"x"}}`,
		"no tag":                     `{"error":{"operation":"x"}}`,
		"no operation":               `{"error":{"_tag":"WireForbidden"}}`,
		"null for a field":           `{"error":{"_tag":"WireForbidden","operation":"x","message":null}}`,
		"an unknown field":           `{"error":{"_tag":"WireForbidden","operation":"x","code":1}}`,
		"an unknown cause":           `{"error":{"_tag":"WireInputClosed","cause":"tired","input_credit":0,"input_offset":0,"operation":"x"}}`,
		"a negative number":          `{"error":{"_tag":"WireCursorAhead","end":-1,"operation":"x"}}`,
		"too late a retry":           `{"error":{"_tag":"WireOverloaded","operation":"x","retry_after_ms":60001}}`,
		"too much credit":            `{"error":{"_tag":"WireInputGap","input_credit":4194305,"input_offset":0,"operation":"x"}}`,
		"a long message":             `{"error":{"_tag":"WireForbidden","operation":"x","message":"` + long + `"}}`,
		"a long text":                `{"error":{"_tag":"WireMalformed","operation":"x","pointer":"` + long + `"}}`,
		"a long operation":           `{"error":{"_tag":"WireForbidden","operation":"` + long + `"}}`,
		"seventeen revisions":        `{"error":{"_tag":"WireUnsupported","operation":"x","supported":["` + strings.Repeat(`x","`, 16) + `x"]}}`,
		"a long revision":            `{"error":{"_tag":"WireUnsupported","operation":"x","supported":["` + long + `"]}}`,
		"more than an error's bytes": `{"error":{"_tag":"WireForbidden","operation":"x"` + strings.Repeat(" ", MaxErrorBytes) + `}}`,
	} {
		failure, err := DecodeError([]byte(body))
		var e *Error
		if failure != nil || !errors.As(err, &e) {
			t.Errorf("%s: %v, %v", name, failure, err)
		}
	}
}

func TestEncodeError_RefusesWhatNoProviderMaySay(t *testing.T) {
	for name, failure := range map[string]error{
		"nil":             nil,
		"another error":   io.EOF,
		"a Runner's kind": &sandbox.Error{Kind: "SandboxProtocolInvalid", Operation: "x"},
		"no kind":         &sandbox.Error{},
		"no tag":          &Error{},
		"a long path":     sandbox.TooLarge("x", strings.Repeat("p", 4097), 1),
		"a wrong cause":   &Error{Tag: TagInputClosed},
		"a negative":      &Error{Tag: TagCursorAhead, End: -1},
	} {
		if body, _, err := EncodeError(failure); err == nil {
			t.Errorf("%s: %s", name, body)
		}
		if Status(failure) != 500 && (name == "nil" || name == "another error" || name == "no tag") {
			t.Errorf("%s: status %d", name, Status(failure))
		}
	}
	// The worst texts that may travel fit into an error body.
	worst := strings.Repeat("\xff", MaxErrorTextBytes)
	body, _, err := EncodeError(&sandbox.Error{Kind: sandbox.CapabilityUnavailable, Operation: "x", Requirement: "tier", Expected: worst, Actual: worst})
	if err != nil || len(body) > MaxErrorBytes {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	// A cause does not travel, a long message is cut at a character.
	if body, _, err := EncodeError(sandbox.Failed("x", "y", errors.New("secret"))); err != nil || bytes.Contains(body, []byte("secret")) {
		t.Errorf("%s, %v", body, err)
	}
	if body, _, err := EncodeError(&Error{Tag: TagForbidden, Message: "x" + strings.Repeat("é", 600)}); err != nil || bytes.Contains(body, mark) {
		t.Errorf("%s, %v", body, err)
	}
	if body, status, err := EncodeError(&FrameError{Reason: UnknownFrame, Type: 9}); err != nil || status != 400 || !bytes.Contains(body, []byte(`"pointer":"body"`)) {
		t.Errorf("%s, %d, %v", body, status, err)
	}
}

func TestError_InTheContractsWords(t *testing.T) {
	for _, tag := range Tags() {
		e := &Error{Tag: tag}
		a := e.Adapter("execute")
		var want *sandbox.Error
		switch tag {
		case TagLeaseFenced:
			want = sandbox.Conflict("execute", "current_lease", "stale_lease")
		case TagOutputTruncated, TagCursorAhead:
			want = sandbox.Failed("open_process", "output_truncated", nil)
		case TagProcessNotFound:
			want = sandbox.Failed("open_process", "process_lost", nil)
		case TagOperationRolledBack:
			want = sandbox.Conflict("execute", "pending_operation", "operation_rolled_back")
		}
		if (a == nil) != (want == nil) || a != nil && (!errors.Is(a, want) || !errors.Is(a, e)) {
			t.Errorf("%s: %v, want %v", tag, a, want)
		}
		violation := strings.Contains("WireMalformed WireUnsupported WireOperationMismatch WireMemberUnknown WireOperationUnknown WirePayloadTooLarge", string(tag))
		if e.Violation() != violation {
			t.Errorf("%s: a violation: %v", tag, e.Violation())
		}
		if a != nil && e.Violation() || e.Retryable() != (tag == TagOverloaded) {
			t.Errorf("%s has two meanings", tag)
		}
	}
}

func TestError_SaysItsFields(t *testing.T) {
	for want, e := range map[string]*Error{
		`provision: WireMalformed pointer="a\u00e9" message="x\ny"`:                  {Tag: TagMalformed, Operation: "provision", Pointer: "aé", Message: "x\ny"},
		`WireUnsupported supported="v1" supported="v2"`:                              {Tag: TagUnsupported, Supported: []string{"v1", "v2"}},
		`process_input: WireInputClosed cause="ended" input_offset=0 input_credit=0`: {Tag: TagInputClosed, Operation: "process_input", Cause: CauseEnded},
		`WireOverloaded retry_after_ms=5: ` + io.EOF.Error():                         {Tag: TagOverloaded, RetryAfterMS: 5, Err: io.EOF},
		`"a\x1b[2J\nb": WireForbidden`:                                               {Tag: TagForbidden, Operation: "a\x1b[2J\nb"},
		`WireCursorAhead end=3`:                                                      {Tag: TagCursorAhead, End: 3},
		`WirePayloadTooLarge maximum_bytes=1`:                                        {Tag: TagPayloadTooLarge, MaximumBytes: 1},
		`WireLeaseFenced lease_epoch=2`:                                              {Tag: TagLeaseFenced, LeaseEpoch: 2},
		`WireOutputTruncated low_water=9`:                                            {Tag: TagOutputTruncated, LowWater: 9},
	} {
		if e.Error() != want {
			t.Errorf("%s\n%s", e.Error(), want)
		}
	}
	if !errors.Is(malformed(&canonical.Error{Reason: canonical.ReasonNull}), &canonical.Error{Reason: canonical.ReasonNull}) {
		t.Error("the decoder's reason is lost")
	}
}

func FuzzError(f *testing.F) {
	for _, c := range publishedErrors {
		f.Add([]byte(c.body))
	}
	f.Add([]byte(`{"error":{"_tag":"SandboxProtocolInvalid","operation":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		failure, err := DecodeError(data)
		if (failure == nil) == (err == nil) {
			t.Fatalf("%v and %v", failure, err)
		}
		if err != nil {
			if _, _, err := EncodeError(err); err != nil {
				t.Fatalf("a refusal that cannot be sent: %v", err)
			}
			return
		}
		body, status, err := EncodeError(failure)
		if err != nil || status < 400 || status > 599 {
			t.Fatalf("%v cannot be sent again: %d, %v", failure, status, err)
		}
		if a := (*sandbox.Error)(nil); errors.As(failure, &a) {
			a.Err = nil // remote text is not sent on
		}
		back, err := DecodeError(body)
		if err != nil || back.Error() != failure.Error() {
			t.Fatalf("%v came back as %v, %v", failure, back, err)
		}
	})
}
