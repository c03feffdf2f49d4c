package wire

import (
	"strings"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/wire"
)

func framesRefused(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce()
	ask := func(body string) answer {
		q := o.request(wire.Execute, nil)
		q.body = []byte(body)
		return send(t, q)
	}
	good := string(whole(wire.TypeCall, o.called("true")))
	half := len(good) / 2
	for _, right := range []string{good, good + string(whole(wire.TypeData, "a")) + string(whole(wire.TypeData, "b"))} {
		a := ask(right)
		t.Control("right", a.failure() == nil, a.failure())
	}
	run := o.called(`echo ran >"$HOME"/` + mark)
	call := string(whole(wire.TypeCall, run))
	long := strings.Repeat("x", wire.MaxFrameBytes+1)
	for _, c := range []struct{ id, body string }{
		{"length", string(frame(wire.TypeCall, 0xffffffff, run))},
		{"length", call + string(whole(wire.TypeData, long))},
		{"type", call + string(whole(0x05, "x"))},
		{"type", call + string(whole(wire.TypePing, ""))},
		{"type", call + string(whole(wire.TypeResult+0x7f, "{}"))},
		{"order", string(whole(wire.TypeData, "x")) + call},
		{"order", call + string(whole(wire.TypeData, "x")) + call},
		{"no-call", ""},
		{"no-call", string(whole(wire.TypeData, run))},
		{"cut", call + string(frame(wire.TypeData, 10, "x"))},
		{"cut", call + string(frame(wire.TypeData, 10, "x")[:3])},
		{"cut", good[:half]},
	} {
		refused(t, c.id, ask(c.body), wire.TagMalformed)
	}
	o.untouched(mark)
}
