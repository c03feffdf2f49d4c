package wire

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// frame is one frame, whose length may be a lie.
func frame(kind wire.Type, length uint32, payload string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{byte(kind)}, length), payload...)
}

// whole is a frame as it should be.
func whole(kind wire.Type, payload string) []byte { return frame(kind, uint32(len(payload)), payload) }

// called is the JSON of a call that runs script.
func (o *own) called(script string) string {
	body, err := wire.Encode(wire.ExecuteCall{InstanceID: o.id, Command: probe.Command(script)})
	o.t.Need("encoded", err)
	return string(body)
}

// untouched records that the machine is there and that mark was never made.
func (o *own) untouched(mark string) {
	r, _, err := settled(send(o.t, o.execute(`test ! -e "$HOME"/`+mark)))
	o.t.Check("no-effect", err == nil && r.ExitCode != nil && *r.ExitCode == 0, "a machine that lives, in which nothing ran", err)
}

func strictJSON(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce()
	victim, none := `"instance_id":"`+string(o.id)+`"`, `"instance_id":"`+t.ID("none-")+`"`
	swept := `{"now":"` + string(sandbox.At(t.Now())) + `","orphaned_before":"1970-01-01T00:00:00.000Z"`
	run := o.called(`echo ran >"$HOME"/` + mark)
	numbered := func(value string) string {
		return strings.Replace(run, `"timeout_seconds":30`, `"timeout_seconds":`+value, 1)
	}
	ask := func(e wire.Endpoint, body string) answer {
		q := o.request(e, nil)
		if q.body = []byte(body); e == wire.Execute {
			q.body = whole(wire.TypeCall, body)
		}
		return send(t, q)
	}
	for _, right := range []struct {
		e    wire.Endpoint
		body string
	}{{wire.Destroy, "{" + none + "}"}, {wire.Cleanup, swept + `,"pinned_snapshots":[]}`}, {wire.Execute, o.called("true")}} {
		a := ask(right.e, right.body)
		t.Control("right", a.failure() == nil, a.failure())
	}
	deep := func(n int) string { return `{"instance_id":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	for _, c := range []struct {
		id   string
		e    wire.Endpoint
		body string
	}{
		{"duplicate-key", wire.Destroy, "{" + none + "," + victim + "}"},
		{"duplicate-key", wire.Destroy, "{" + victim + "," + none + "}"},
		{"duplicate-key", wire.Destroy, "{" + victim + `,"instance\u005fid":"none"}`},
		{"wrong-case", wire.Destroy, `{"Instance_id":"` + string(o.id) + `"}`},
		{"unknown-key", wire.Destroy, "{" + victim + `,"x":1}`},
		{"missing-key", wire.Destroy, `{}`},
		{"null", wire.Cleanup, swept + `,"pinned_snapshots":null}`},
		{"null", wire.Destroy, `null`},
		{"type", wire.Destroy, `{"instance_id":1}`},
		{"type", wire.Destroy, `["` + string(o.id) + `"]`},
		{"fraction", wire.Execute, numbered("30.0")},
		{"exponent", wire.Execute, numbered("3e1")},
		{"minus-zero", wire.Execute, numbered("-0")},
		{"too-large", wire.Execute, numbered("9007199254740992")},
		{"surrogate", wire.Destroy, `{"instance_id":"\ud800"}`},
		{"surrogate", wire.Destroy, `{"instance_id":"\udc00\ud800"}`},
		{"utf-8", wire.Destroy, "{\"instance_id\":\"\xff\"}"},
		{"utf-8", wire.Destroy, "{\"instance_id\":\"\xed\xa0\x80\"}"},
		{"byte-order-mark", wire.Destroy, "\xef\xbb\xbf{" + victim + "}"},
		{"deep", wire.Destroy, deep(17)},
		{"deep", wire.Destroy, deep(20_000)},
		{"trailing", wire.Destroy, "{" + victim + "}{}"},
		{"trailing", wire.Destroy, "{" + victim + "}\x00"},
		{"syntax", wire.Destroy, "{" + victim},
		{"syntax", wire.Destroy, "{" + victim + ",}"},
		{"syntax", wire.Destroy, "{" + victim + "/**/}"},
		{"syntax", wire.Destroy, "{\"instance_id\":\"a\nb\"}"},
		{"syntax", wire.Execute, numbered("030")},
		{"syntax", wire.Destroy, ""},
		{"escape", wire.Execute, strings.Replace(run, `["-c",`, `["-c","echo \u0000zz",`, 1)},
		{"escape", wire.Execute, strings.Replace(run, `["-c",`, `["-c","echo \u000041",`, 1)},
	} {
		refused(t, c.id, ask(c.e, c.body), wire.TagMalformed)
	}
	o.untouched(mark)
}

func timestamps(t *probe.T) {
	o := &own{t: t, lease: wire.Lease{ID: t.ID("lease_"), Epoch: 1}}
	ask := func(now, before string) answer {
		q := o.request(wire.Cleanup, nil)
		q.body = []byte(`{"now":"` + now + `","orphaned_before":"` + before + `"}`)
		return send(t, q)
	}
	const first = "1970-01-01T00:00:00.000Z"
	for _, before := range []string{first, "2000-02-29T23:59:59.999Z", "2024-02-29T00:00:00.000Z"} {
		failure := ask(string(sandbox.At(t.Now())), before).failure()
		t.Check("right", failure == nil, "an answer for "+before, failure)
	}
	for _, c := range []struct{ id, now string }{
		{"form", "2026-11-30T20:00:00Z"},
		{"form", "2026-11-30T20:00:00.00Z"},
		{"form", "2026-11-30T20:00:00.0000Z"},
		{"form", "2026-11-30T20:00:00,000Z"},
		{"form", "2026-11-30T20:00:00.000z"},
		{"form", "2026-11-30T20:00:00.000+00:00"},
		{"form", "2026-11-30 20:00:00.000Z"},
		{"form", " 2026-11-30T20:00:00.000Z"},
		{"form", "2026-11-30T8:00:00.000Z"},
		{"form", "2026-11-3\uff10T20:00:00.000Z"},
		{"form", ""},
		{"day", "2026-02-30T20:00:00.000Z"},
		{"day", "2023-02-29T20:00:00.000Z"},
		{"day", "1900-02-29T20:00:00.000Z"},
		{"day", "2026-13-30T20:00:00.000Z"},
		{"day", "2026-11-30T24:00:00.000Z"},
		{"day", "2026-12-31T23:59:60.000Z"},
		{"year", "1969-12-31T23:59:59.999Z"},
		{"year", "0000-01-01T00:00:00.000Z"},
		{"year", "10000-01-01T00:00:00.000Z"},
	} {
		refused(t, c.id, ask(c.now, first), wire.TagMalformed)
	}
}

func text(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	for _, c := range []struct{ id, word string }{
		{"bytes", "caf\xe9" + t.Nonce() + "\xff\xfe"},
		{"characters", t.Nonce() + "\u2028\x7f\U0001f600\u00e9"},
	} {
		command := probe.Command(`printf %s "$1"`)
		command.Arguments = append(command.Arguments, "sh", c.word)
		_, out, err := settled(send(t, o.request(wire.Execute, wire.ExecuteCall{InstanceID: o.id, Command: command})))
		// Not every machine can pass on what is no text. One that says so by name
		// has altered nothing.
		if !utf8.ValidString(c.word) && errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonStartFailed}) {
			t.Check(c.id, true, "", nil)
			t.Observe("arguments that are not UTF-8 are refused")
			continue
		}
		t.Need("execute", err)
		t.Check(c.id, string(out) == c.word, c.word, string(out))
	}
}
