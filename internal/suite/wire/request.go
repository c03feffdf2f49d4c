package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// requestProbes are of one request and its answer.
func requestProbes() []probe.Probe {
	request := func(id, clause, heading, title string, run func(*probe.T)) probe.Probe {
		return probe.Probe{ID: "wire." + id, Suite: of, Clause: "CF-WI-" + clause, Source: `docs/wire.md "` + heading + `"`,
			Title: title, Requires: []report.Token{report.Process}, Run: run}
	}
	return []probe.Probe{
		request("revision", "01", "Headers", "a request of another revision of the wire is refused by name, with the revisions that are spoken", revision),
		request("token", "02", "One call", "who has no token of the provider learns nothing, not even which paths there are", tokens),
		request("headers", "03", "Headers", "a header that is missing, given twice, foreign or of another form is refused by its name", headers),
		request("lease", "04", "Endpoints", "the lease of a provision is that of its headers", oneLease),
		request("path", "05", "One call", "what is no endpoint is refused by name, whatever it resembles", paths),
		request("media", "06", "Headers", "a body of another type, or one that is compressed, is refused", media),
		request("json", "07", "JSON", "a body that two readers could read as two values is refused, and does nothing", strictJSON),
		request("timestamps", "08", "JSON", "a timestamp has one form and is a day that exists", timestamps),
		request("text", "09", "Text that is not UTF-8", "text reaches the machine as the bytes that it stands for", text),
		request("frames", "10", "Frames", "a framed body that is not its call and its data is refused, and does nothing", framesRefused),
		request("limits", "11", "Limits", "a body that is longer than it may be is refused while it comes", limits),
		request("answers", "12", "Headers", "every answer says who wrote it, errors too", answers),
		request("errors", "13", "Errors", "an error is its body, with its status and exactly its fields", errorBodies),
		request("members", "14", "Endpoints", "what is served is what is listed, and the rest is refused by name", members),
		request("dribble", "15", "One call", "a request that comes slowly holds up no other", dribbles),
		request("connection", "16", "One call", "each request on a connection gets its answer, and what is a body is no request", oneConnection),
	}
}

func revision(t *probe.T) {
	for _, values := range [][]string{{"checkfu.sandbox-wire.v0"}, {wire.Revision, wire.Revision}, nil} {
		a := send(t, request{endpoint: wire.Capabilities, message: wire.Empty{}, change: func(r *http.Request) {
			r.Header[wire.HeaderWire] = values
		}})
		if !refused(t, "refused", a, wire.TagUnsupported) {
			continue
		}
		_, e := refusedBy(a)
		t.Check("supported", slices.Contains(e.Supported, wire.Revision), wire.Revision, strings.Join(e.Supported, " "))
	}
}

func tokens(t *probe.T) {
	token := t.Target().Wire.Token
	if token == "" {
		t.NotHere("the provider takes no token from here")
	}
	other := byte('x')
	if token[len(token)-1] == other {
		other = 'y'
	}
	long := strings.Repeat(t.Nonce(), 2)
	for _, c := range []struct {
		id     string
		values []string
	}{
		{"missing", nil},
		{"wrong", []string{"Bearer " + long}},
		{"wrong", []string{"Bearer " + token[:len(token)-1] + string(other)}},
		{"wrong", []string{"Bearer " + token + "0"}},
		{"wrong", []string{"Bearer " + token[:len(token)-1]}},
		{"scheme", []string{"Basic " + token}},
		{"twice", []string{"Bearer " + long, "Bearer " + token}},
	} {
		a := send(t, request{endpoint: wire.Capabilities, message: wire.Empty{}, change: func(r *http.Request) {
			r.Header[wire.HeaderAuthorization] = c.values
		}})
		refused(t, c.id, a, wire.TagUnauthenticated)
		t.Check("no-echo", !bytes.Contains(a.body, []byte(long)) && !bytes.Contains(a.body, []byte(token)), "an answer without the token", "the token")
	}
	a := send(t, request{endpoint: wire.Capabilities, message: wire.Empty{}, change: func(r *http.Request) {
		r.Header.Del(wire.HeaderAuthorization)
		r.Header.Set(wire.HeaderWire, "checkfu.sandbox-wire.v0")
		r.URL.Path += t.Nonce()
	}})
	refused(t, "first", a, wire.TagUnauthenticated)
}

func headers(t *probe.T) {
	o := &own{t: t, lease: wire.Lease{ID: t.ID("lease_"), Epoch: 1}}
	nobody := o.request(wire.Destroy, wire.InstanceRequest{InstanceID: sandbox.InstanceID(t.ID("none-"))})
	described := request{endpoint: wire.Capabilities, message: wire.Empty{}}
	undone := o.request(wire.RollbackOperation, wire.RollbackRequest{OperationID: wire.NewOperationID(), Member: wire.Provision})
	for _, q := range []request{nobody, described, undone} {
		a := send(t, q)
		t.Control("right", a.failure() == nil, a.failure())
	}
	set := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	for _, c := range []struct {
		id, header string
		request    request
		values     []string
	}{
		{"missing", wire.HeaderLeaseID, nobody, nil},
		{"missing", wire.HeaderLeaseEpoch, nobody, nil},
		{"missing", wire.HeaderOperationID, nobody, nil},
		{"twice", wire.HeaderLeaseID, nobody, []string{o.lease.ID, o.lease.ID}},
		{"twice", wire.HeaderLeaseEpoch, nobody, []string{"1", "2"}},
		{"twice", wire.HeaderOperationID, nobody, []string{string(wire.NewOperationID()), string(wire.NewOperationID())}},
		{"twice", wire.HeaderWait, nobody, []string{"1000", "1000"}},
		{"foreign", wire.HeaderLeaseID, described, []string{o.lease.ID}},
		{"foreign", wire.HeaderLeaseEpoch, described, []string{"1"}},
		{"foreign", wire.HeaderOperationID, undone, []string{string(wire.NewOperationID())}},
		{"form", wire.HeaderLeaseID, nobody, []string{""}},
		{"form", wire.HeaderLeaseID, nobody, []string{"a b"}},
		{"form", wire.HeaderLeaseID, nobody, []string{`a"b`}},
		{"form", wire.HeaderLeaseID, nobody, []string{strings.Repeat("a", 256)}},
		{"form", wire.HeaderLeaseEpoch, nobody, []string{"01"}},
		{"form", wire.HeaderLeaseEpoch, nobody, []string{"+1"}},
		{"form", wire.HeaderLeaseEpoch, nobody, []string{"1.0"}},
		{"form", wire.HeaderLeaseEpoch, nobody, []string{"-1"}},
		{"form", wire.HeaderLeaseEpoch, nobody, []string{"9007199254740992"}},
		{"form", wire.HeaderOperationID, nobody, []string{"op_" + t.Nonce()}},
		{"form", wire.HeaderOperationID, nobody, []string{strings.ToUpper(string(wire.NewOperationID()))}},
		{"form", wire.HeaderDeadline, nobody, []string{"0"}},
		{"form", wire.HeaderDeadline, nobody, []string{"604800001"}},
		{"form", wire.HeaderWait, nobody, []string{"30001"}},
		{"form", wire.HeaderWait, nobody, []string{"1e3"}},
	} {
		q := c.request
		q.change = set(c.header, c.values...)
		if a := send(t, q); refused(t, c.id, a, wire.TagMalformed) {
			_, e := refusedBy(a)
			t.Check("pointer", e.Pointer == strings.ToLower(c.header), strings.ToLower(c.header), e.Pointer)
		}
	}
}

func oneLease(t *probe.T) {
	for _, c := range []struct {
		id     string
		change func(*wire.Lease)
	}{
		{"lease_id", func(l *wire.Lease) { l.ID += "x" }},
		{"lease_epoch", func(l *wire.Lease) { l.Epoch++ }},
	} {
		q := t.Request(probe.Shape{})
		l, id := wire.Lease{ID: q.LeaseID, Epoch: q.LeaseEpoch}, wire.NewOperationID()
		c.change(&l)
		t.Defer(func() { undo(t, l, id, wire.Provision) })
		refused(t, c.id, send(t, request{endpoint: wire.Provision, lease: l, operation: id, message: wire.ProvisionRequest(q)}), wire.TagMalformed)
	}
}

// turnedDown records whether an answer is a refusal in the wire's own words,
// where those leave open which.
func turnedDown(t *probe.T, id string, a answer) {
	var e *wire.Error
	got := a.failure()
	shown := any(got)
	if got == nil {
		shown = "success"
	}
	t.Check(id, errors.As(got, &e) && a.status == wire.Status(e), "an error of the wire, with its status", shown)
}

func paths(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	destroy := o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id})
	ask := func(change func(*http.Request)) answer {
		q := destroy
		q.change = change
		return send(t, q)
	}
	for _, c := range []struct{ id, path, raw string }{
		{"unknown", "/v1/" + t.Nonce(), ""},
		{"unknown", "/v2/destroy", ""},
		{"unknown", "/destroy", ""},
		{"unknown", "/", ""},
		{"alike", "/v1/destroy/", ""},
		{"alike", "/v1/Destroy", ""},
		{"alike", "/v1//destroy", ""},
		{"alike", "/v1/x/../destroy", ""},
		{"alike", "/v1/destroy", "/v1/%64estroy"},
	} {
		a := ask(func(r *http.Request) {
			r.URL.Path, r.URL.RawPath = t.Target().Wire.Path+c.path, raw(t.Target().Wire.Path, c.raw)
		})
		refused(t, c.id, a, wire.TagMemberUnknown)
	}
	turnedDown(t, "query", ask(func(r *http.Request) { r.URL.RawQuery = url.Values{"x": {"1"}}.Encode() }))
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		turnedDown(t, "method", ask(func(r *http.Request) { r.Method = method }))
	}
	_, _, err := settled(send(t, o.execute("true")))
	t.Check("no-effect", err == nil, "a machine that nobody destroyed", err)
}

func raw(base, path string) string {
	if path == "" {
		return ""
	}
	return base + path
}

func media(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	destroy := o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id})
	for _, c := range []struct {
		id     string
		values []string
	}{
		{"type", []string{"text/plain"}},
		{"type", []string{wire.MediaFrames}},
		{"type", nil},
		{"parameters", []string{wire.MediaJSON + "; charset=utf-8"}},
	} {
		q := destroy
		q.change = func(r *http.Request) { r.Header["Content-Type"] = c.values }
		turnedDown(t, c.id, send(t, q))
	}
	body, err := destroy.encoded()
	t.Need("encoded", err)
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	_, _ = z.Write(body) // memory takes everything
	_ = z.Close()
	turnedDown(t, "compressed", send(t, request{endpoint: wire.Destroy, lease: o.lease, body: small.Bytes(), change: func(r *http.Request) {
		r.Header.Set("Content-Encoding", "gzip")
	}}))
	_, _, err = settled(send(t, o.execute("true")))
	t.Check("no-effect", err == nil, "a machine that nobody destroyed", err)
}
