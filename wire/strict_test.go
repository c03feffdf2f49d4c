package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// TestDecode_RefusesWhatTwoReadersReadDifferently are the negative cases of the
// wire's JSON: scenarios W08 to W13.
func TestDecode_RefusesWhatTwoReadersReadDifferently(t *testing.T) {
	const good = `{"aggregate_maximum_bytes":1,"allowed_root":"/a","files":[{"maximum_bytes":1,"path":"/a/b"}],"instance_id":"i"}`
	if _, err := Decode[ReadFilesRequest]([]byte(good)); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("[", 17) + strings.Repeat("]", 17)
	for _, c := range []struct {
		scenario, old, new, pointer string
		reason                      canonical.Reason
	}{
		{"W08 duplicate key", `"instance_id":"i"`, `"instance_id":"i","instance_id":"j"`, "instance_id", canonical.ReasonDuplicateKey},
		{"W08 duplicate by escape", `"instance_id":"i"`, `"instance_id":"i","instance_i\u0064":"j"`, "instance_id", canonical.ReasonDuplicateKey},
		{"W08 duplicate inside", `"maximum_bytes":1,`, `"maximum_bytes":1,"maximum_bytes":2,`, "files[0].maximum_bytes", canonical.ReasonDuplicateKey},
		{"W09 case", `"instance_id"`, `"Instance_id"`, "Instance_id", canonical.ReasonUnknownKey},
		{"W09 both cases", `"instance_id":"i"`, `"instance_id":"i","Instance_iD":"j"`, "Instance_iD", canonical.ReasonUnknownKey},
		{"W10 unknown key", `"instance_id":"i"`, `"instance_id":"i","x":1`, "x", canonical.ReasonUnknownKey},
		{"W10 unknown inside", `"path":"/a/b"`, `"path":"/a/b","mode":1`, "files[0].mode", canonical.ReasonUnknownKey},
		{"W11 null for a list", `[{"maximum_bytes":1,"path":"/a/b"}]`, `null`, "files", canonical.ReasonNull},
		{"W11 null for text", `"i"`, `null`, "instance_id", canonical.ReasonNull},
		{"W12 fraction", `"aggregate_maximum_bytes":1`, `"aggregate_maximum_bytes":1.0`, "aggregate_maximum_bytes", canonical.ReasonNotInteger},
		{"W12 exponent", `"aggregate_maximum_bytes":1`, `"aggregate_maximum_bytes":1e0`, "aggregate_maximum_bytes", canonical.ReasonNotInteger},
		{"W12 minus zero", `"aggregate_maximum_bytes":1`, `"aggregate_maximum_bytes":-0`, "aggregate_maximum_bytes", canonical.ReasonNegativeZero},
		{"W12 2^53", `"aggregate_maximum_bytes":1`, `"aggregate_maximum_bytes":9007199254740992`, "aggregate_maximum_bytes", canonical.ReasonOutOfRange},
		{"W12 leading zero", `"aggregate_maximum_bytes":1`, `"aggregate_maximum_bytes":01`, "aggregate_maximum_bytes", canonical.ReasonSyntax},
		{"W12 text for a number", `"aggregate_maximum_bytes":1`, `"aggregate_maximum_bytes":"1"`, "aggregate_maximum_bytes", canonical.ReasonWrongType},
		{"W13 lone high surrogate", `"/a/b"`, `"/a/\ud800"`, "files[0].path", canonical.ReasonLoneSurrogate},
		{"W13 lone low surrogate", `"/a/b"`, `"/a/\udc00x"`, "files[0].path", canonical.ReasonLoneSurrogate},
		{"W13 byte order mark", `{"aggregate`, "\ufeff" + `{"aggregate`, "", canonical.ReasonByteOrderMark},
		{"W13 invalid UTF-8", `"i"`, "\"\xff\"", "", canonical.ReasonInvalidUTF8},
		{"W13 depth 17", `"i"`, deep, "instance_id", canonical.ReasonWrongType},
		{"a missing key", `,"instance_id":"i"`, ``, "instance_id", canonical.ReasonMissingKey},
		{"a control character", `"i"`, "\"\n\"", "instance_id", canonical.ReasonControlCharacter},
		{"bytes after it", `"instance_id":"i"}`, `"instance_id":"i"}{}`, "", canonical.ReasonTrailingData},
	} {
		data := strings.Replace(good, c.old, c.new, 1)
		if data == good {
			t.Fatalf("%s changes nothing", c.scenario)
		}
		_, err := Decode[ReadFilesRequest]([]byte(data))
		var e *Error
		if !errors.As(err, &e) || e.Tag != TagMalformed || e.Pointer != c.pointer || !errors.Is(err, &canonical.Error{Reason: c.reason}) {
			t.Errorf("%s: %v, want %s at %q", c.scenario, err, c.reason, c.pointer)
		}
	}
}

// timestamps are the twenty-three inputs of scenario W14. Each is taken by at
// least one common reader of dates.
var timestamps = []struct {
	text string
	ok   bool
}{
	{"1970-01-01T00:00:00.000Z", true}, {"2024-02-29T23:59:59.999Z", true}, {"9999-12-31T23:59:59.999Z", true}, {"2000-02-29T00:00:00.000Z", true},
	{"2026-02-30T00:00:00.000Z", false}, {"2026-01-01T24:00:00.000Z", false}, {"+010000-01-01T00:00:00.000Z", false},
	{"2026-01-01T00:00:00,000Z", false}, {"２026-01-01T00:00:00.000Z", false}, {"0000-01-01T00:00:00.000Z", false},
	{"1969-12-31T23:59:59.999Z", false}, {"2023-02-29T00:00:00.000Z", false}, {"1900-02-29T00:00:00.000Z", false},
	{"2016-12-31T23:59:60.000Z", false}, {"2026-01-01T00:00:00Z", false}, {"2026-01-01T00:00:00.00Z", false},
	{"2026-01-01T00:00:00.0000Z", false}, {"2026-01-01T00:00:00.000+00:00", false}, {"2026-01-01T00:00:00.000z", false},
	{"2026-01-01 00:00:00.000Z", false}, {"2026-01-01T0:00:00.000Z", false}, {" 2026-01-01T00:00:00.000Z", false}, {"2026-13-01T00:00:00.000Z", false},
}

func TestDecode_TakesCanonicalTimestampsOnly(t *testing.T) {
	if len(timestamps) != 23 {
		t.Errorf("%d inputs", len(timestamps))
	}
	for _, c := range timestamps {
		_, err := Decode[SnapshotRequest]([]byte(`{"expires_at":"` + c.text + `","instance_id":"i"}`))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.text, err)
		}
		if _, encode := Encode(SnapshotRequest{"i", sandbox.Timestamp(c.text)}); (encode == nil) != c.ok {
			t.Errorf("%s: encoding: %v", c.text, encode)
		}
	}
}

// TestEncode_IsCanonical are the vectors of scenario W15: what other encoders
// escape and RFC 8785 does not.
func TestEncode_IsCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"\u2028\u2029": "\"\u2028\u2029\"", "\x7f": "\"\x7f\"", "😀": `"😀"`, "<&>/": `"<&>/"`,
		"\"\\\b\f\n\r\t\x1f": `"\"\\\b\f\n\r\t\u001f"`, "a\xffb": `"a\u0000ffb"`, "\x00": `"\u000000"`, "é\xc3": `"é\u0000c3"`,
	} {
		data, err := Encode(InstanceRequest{sandbox.InstanceID(text)})
		if err != nil || string(data) != `{"instance_id":`+want+`}` {
			t.Errorf("%q: %s, %v", text, data, err)
		}
	}
	c := ExecuteCall{InstanceID: "i", Command: sandbox.Command{Environment: map[string]string{"B": "", "A": "", "a": "", "_": ""}}}
	const want = `{"command":{"arguments":[],"environment":{"A":"","B":"","_":"","a":""},"executable":"","output_limit_bytes":0,"timeout_seconds":0,"working_directory":""},"instance_id":"i"}`
	if data, err := Encode(c); err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
}

func TestCodec_BoundsABody(t *testing.T) {
	long := strings.Repeat("a", MaxRequestBytes-len(`{"instance_id":""}`))
	data, err := Encode(InstanceRequest{sandbox.InstanceID(long)})
	if err != nil || len(data) != MaxRequestBytes {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if _, err := Decode[InstanceRequest](data); err != nil {
		t.Error(err)
	}
	if _, err := Encode(InstanceRequest{sandbox.InstanceID(long + "a")}); !errors.Is(err, &Error{Tag: TagPayloadTooLarge}) {
		t.Errorf("encoding: %v", err)
	}
	if _, err := Decode[InstanceRequest](append(data, ' ')); !errors.Is(err, &Error{Tag: TagPayloadTooLarge}) {
		t.Errorf("decoding: %v", err)
	}
	// The largest batch of the contract in plain text is a body.
	r := ReadFilesRequest{InstanceID: "i", AllowedRoot: "/a", Files: make([]sandbox.FileMember, sandbox.MaxReadFiles)}
	for i := range r.Files {
		r.Files[i] = sandbox.FileMember{Path: strings.Repeat("p", sandbox.MaxPathBytes), MaximumBytes: sandbox.MaxFileBytes}
	}
	if _, err := Encode(r); err != nil {
		t.Errorf("1,024 long paths: %v", err)
	}
}

// TestForms_RefuseBothWays: the rules that are the wire's own, each broken alone,
// are refused by Encode and, where JSON can say it, by Decode.
func TestForms_RefuseBothWays(t *testing.T) {
	two := int64(2)
	lease := provision
	lease.LeaseEpoch = -1
	old := reference
	old.CreatedAt = "2026-02-30T00:00:00.000Z"
	for pointer, messages := range map[string][]Message{
		"lease_epoch":                    {ProvisionRequest(lease)},
		"request.lease_epoch":            {ResumeRequest{Request: lease, Snapshot: reference}},
		"snapshot.created_at":            {CloneRequest{Snapshot: old, TargetSessionID: "t"}, ResumeRequest{Request: provision, Snapshot: old}},
		"expires_at":                     {ReleaseRequest{"i", "soon"}},
		"now":                            {CleanupRequest{Now: "", OrphanedBefore: then}},
		"orphaned_before":                {CleanupRequest{Now: then, OrphanedBefore: "x"}},
		"size":                           {FileCall{"i", "/a", -1, zero, false, ""}, StageCall{"i", opID, "/a", -1, zero, false, ""}, FileResult{-1, zero}, FileItem{Status: ItemOK}, FileItem{Status: ItemOK, Size: &one, Digest: zero, Reason: "x"}},
		"digest":                         {FileCall{"i", "/a", 1, "sha256:00", false, ""}, FileItem{Status: ItemOK, Size: &one}, FileResult{1, ""}, OutEnd{zero[:70], false, 0}},
		"transaction_id":                 {TransactionRequest{"i", "op_1"}, StageCall{"i", OperationID(prID), "/a", 1, zero, false, ""}},
		"journal":                        {Journal{"closed"}, Journal{}},
		"process_id":                     {OpenProcessRequest{"i", ProcessID(opID), live}, Opened{"", evidence, 0, 1, 0, DefaultOutputWindowBytes}, StreamRequest{"i", "x", atID, 0, 0, 1000}, InputCall{"i", "x", 0, false}, WaitRequest{"i", "x", 0}, SignalRequest{"i", "x", "SIGINT"}, ProcessRequest{"i", "PR_00000000000000000000000000000002"}},
		"attach_id":                      {StreamRequest{"i", prID, "", 0, 0, 1000}, Detach{Reason: DetachSuperseded, AttachID: "x"}, Detach{Reason: DetachSuperseded, LeaseEpoch: 1}, Detach{Reason: DetachFenced, LeaseEpoch: 1, AttachID: atID}},
		"cursor":                         {StreamRequest{"i", prID, atID, -1, 0, 1000}},
		"wait_ms":                        {StreamRequest{"i", prID, atID, 0, 30001, 1000}, WaitRequest{"i", prID, -1}, OperationRequest{opID, 30001}},
		"heartbeat_ms":                   {StreamRequest{"i", prID, atID, 0, 0, 999}, StreamRequest{"i", prID, atID, 0, 0, 30001}},
		"offset":                         {InputCall{"i", prID, -1, false}, ErrEnd{-1}, OutEnd{zero, false, -1}},
		"input_offset":                   {Window{-1, 0}},
		"input_credit":                   {Window{0, -1}, Window{0, MaxInputBufferBytes + 1}, Opened{prID, evidence, 0, -1, 0, DefaultOutputWindowBytes}},
		"low_water":                      {Truncated{-1}, Opened{prID, evidence, 0, 1, -1, DefaultOutputWindowBytes}},
		"output_window_bytes":            {Opened{prID, evidence, 0, 1, 0, MinOutputWindowBytes - 1}, Opened{prID, evidence, 0, 1, 0, MaxOutputWindowBytes + 1}},
		"exit":                           {Waited{}, Waited{Exit: &exitedZero, Running: true}, Exit{}, Exit{ExitCode: &one, Signal: "SIGKILL"}},
		"exit.signal":                    {Waited{Exit: &sandbox.Exit{Signal: "KILL"}}},
		"signal":                         {Exit{Signal: "SIGlower"}},
		"exit_code":                      {Exit(sandbox.Exited(256)), Exit(sandbox.Exited(-1))},
		"reason":                         {Detach{}, Detach{Reason: "bored"}, Detach{Reason: DetachPollEnd, LeaseEpoch: 1}, Detach{Reason: DetachDraining, AttachID: atID}, FileItem{Status: ItemRefused}, FileItem{Status: ItemRefused, Reason: "not_found", Size: &two}},
		"rollback.operation_id":          {InstanceHandoff{instance, Rollback{}}, SnapshotHandoff{reference, Rollback{"x"}}, ReleasedHandoff{}},
		"operation_id":                   {RollbackRequest{"x", Provision}, OperationRequest{"", 0}, Running{"", "running"}},
		"index":                          {FileItem{Index: -1, Status: ItemOK, Size: &one, Digest: zero}},
		"status":                         {FileItem{Status: "maybe"}},
		"count":                          {FilesResult{-1, 0}, ListResult{-1}, ProjectResult{-1, true}},
		"total_bytes":                    {FilesResult{0, -1}},
		"entries":                        {DirPage{make([]sandbox.DirEntry, 1001)}, ProjectPage{make([]sandbox.Leaf, 1001)}},
		"member":                         {RollbackRequest{opID, ReadFile}, RollbackRequest{opID, RollbackOperation}, RollbackRequest{opID, "x"}},
		"settled":                        {Settled{}},
		"state":                          {Running{opID, "done"}},
		"lease_epoch of a fenced reader": {Detach{Reason: DetachFenced}},
	} {
		pointer, _, _ = strings.Cut(pointer, " ")
		for _, m := range messages {
			data, err := Encode(m)
			var e *Error
			if !errors.As(err, &e) || e.Tag != TagMalformed || e.Pointer != pointer {
				t.Errorf("%T: %s, %v, want a refusal of %s", m, data, err, pointer)
			}
			raw, err := canonical.Encode(m)
			if err != nil {
				continue // beyond what JSON can hold
			}
			for _, k := range kinds {
				if same(k.value, m) {
					if _, err := k.decode(raw); !errors.As(err, &e) || e.Pointer != pointer {
						t.Errorf("%T: decoding %s: %v", m, raw, err)
					}
					break
				}
			}
		}
	}
}
