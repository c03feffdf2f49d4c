package wire

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// describe asks the target by hand what it is.
func describe(t *probe.T) (wire.CapabilitiesResponse, answer) {
	a := send(t, request{endpoint: wire.Capabilities, message: wire.Empty{}})
	return value[wire.CapabilitiesResponse](t, "capabilities", a), a
}

func answers(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	is, first := describe(t)
	digest, err := wire.CapabilitiesDigest(is.Capabilities)
	t.Need("capabilities", err)
	at, err := wire.ParseResponseHeader(first.header)
	t.Need("capabilities", err)
	broken := o.request(wire.Destroy, nil)
	broken.body = []byte("{")
	for _, c := range []struct {
		request request
		framed  bool
	}{
		{request: request{endpoint: wire.Capabilities, message: wire.Empty{}}},
		{request: o.request(wire.Destroy, wire.InstanceRequest{InstanceID: sandbox.InstanceID(t.ID("none-"))})},
		{request: request{endpoint: wire.Endpoint(t.Nonce()), lease: o.lease}},
		{request: broken},
		{request: request{endpoint: wire.Capabilities, message: wire.Empty{}, change: func(r *http.Request) { r.Header.Del(wire.HeaderWire) }}},
		{request: o.request(wire.Execute, wire.ExecuteCall{InstanceID: sandbox.InstanceID(t.ID("none-")), Command: probe.Command("true")})},
		{request: o.execute("true"), framed: true},
	} {
		a := send(t, c.request)
		h, err := wire.ParseResponseHeader(a.header)
		if !t.Check("author", err == nil, "the three headers of a provider", err) {
			continue
		}
		t.Check("digest", h.Capabilities == digest, string(digest), string(h.Capabilities))
		t.Check("boot", h.Boot == at.Boot, string(at.Boot), string(h.Boot))
		want := wire.MediaJSON
		if c.framed {
			want = wire.MediaFrames
		}
		t.Check("media", wire.CheckMedia(a.header, want) == nil, want+", as it is", strings.Join(a.header["Content-Type"], " "))
		t.Check("no-cookie", len(a.header["Set-Cookie"]) == 0, "no cookie", "one")
		if c.framed {
			for _, name := range []string{"Cache-Control", "X-Accel-Buffering", "Incremental"} {
				must := http.Header{}
				(wire.ResponseHeader{}).Set(must, true)
				t.Check("framed", a.header.Get(name) == must.Get(name), name+": "+must.Get(name), a.header.Get(name))
			}
		}
	}
}

func errorBodies(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	none := sandbox.InstanceID(t.ID("none-"))
	idle := probe.Command("true")
	idle.TimeoutSeconds = 0
	for _, c := range []struct {
		id      string
		request request
		want    sandbox.Error
	}{
		{"not-found", o.request(wire.Execute, wire.ExecuteCall{InstanceID: none, Command: probe.Command("true")}),
			sandbox.Error{Kind: sandbox.InstanceNotFound, Operation: sandbox.OpExecute, ID: string(none)}},
		{"conflict", o.request(wire.Activate, wire.InstanceRequest{InstanceID: o.id}),
			sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpActivate}},
		{"invalid", o.request(wire.Execute, wire.ExecuteCall{InstanceID: o.id, Command: idle}),
			sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpExecute, Reason: sandbox.ReasonInvalidRequest}},
	} {
		a := send(t, c.request)
		failure := a.failure()
		if failure == nil { // said in the response that had begun
			_, _, failure = settled(a)
			t.Refused(c.id, failure, &c.want)
			continue
		}
		if t.Refused(c.id, failure, &c.want) {
			t.Check("status", a.status == wire.Status(failure), http.StatusText(wire.Status(failure)), http.StatusText(a.status))
		}
	}
}

// absentees is one request for each member that may be absent.
func absentees(t *probe.T, o *own) map[sandbox.Operation]request {
	file, expires := sandbox.HomePath+"/"+t.Nonce(), sandbox.At(t.Now().Add(time.Hour))
	all := map[sandbox.Operation]wire.Message{
		sandbox.OpReadFiles:        wire.ReadFilesRequest{InstanceID: o.id, AllowedRoot: sandbox.HomePath, Files: []sandbox.FileMember{{Path: file, MaximumBytes: 1}}, AggregateMaximumBytes: 1},
		sandbox.OpListDir:          wire.ListRequest{InstanceID: o.id, Root: sandbox.HomePath, MaxEntries: 1},
		sandbox.OpListProjectDir:   wire.ListRequest{InstanceID: o.id, Root: sandbox.HomePath, MaxEntries: 1},
		sandbox.OpSnapshot:         wire.SnapshotRequest{InstanceID: o.id, ExpiresAt: expires},
		sandbox.OpBeginActiveWrite: wire.BeginActiveWriteRequest{InstanceID: o.id, Targets: []string{file}},
		sandbox.OpOpenProcess:      wire.OpenProcessRequest{InstanceID: o.id, ProcessID: wire.NewProcessID(), Process: process("true")},
	}
	asked := map[sandbox.Operation]request{}
	for member, message := range all {
		asked[member] = o.request(wire.Endpoint(member), message)
	}
	return asked
}

func members(t *probe.T) {
	is, posted := describe(t)
	got := send(t, request{endpoint: wire.Capabilities, message: wire.Empty{}, change: func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = http.MethodGet, nil, 0
		r.Header.Del("Content-Type")
	}})
	same := value[wire.CapabilitiesResponse](t, "get", got)
	one, err := wire.Encode(is)
	t.Need("capabilities", err)
	other, err := wire.Encode(same)
	t.Need("capabilities", err)
	t.Check("get", string(one) == string(other), string(posted.body), string(got.body))
	o := allocate(t, probe.Shape{}).activate()
	for member, q := range absentees(t, o) {
		if slices.Contains(is.Wire.Members, member) {
			continue
		}
		a := send(t, q)
		failure := a.failure()
		t.Check("absent", errors.Is(failure, &wire.Error{Tag: wire.TagMemberUnknown}) ||
			errors.Is(failure, &sandbox.Error{Kind: sandbox.CapabilityUnavailable}) ||
			errors.Is(failure, &sandbox.Error{Kind: sandbox.SnapshotForbidden}) || // which zero retention says first
			errors.Is(failure, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: string(member) + "_unsupported"}),
			"that there is no "+string(member), failure)
	}
}
