package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// line is one connection on which a probe writes what it likes.
type line struct {
	net.Conn
	in *bufio.Reader
}

// dial opens a line, which goes with the probe.
func dial(t *probe.T) line {
	c, err := t.Target().Wire.Dial(t.Context())
	t.Need("connected", err)
	t.Defer(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return line{c, bufio.NewReader(c)}
}

// written is q as bytes.
func written(t *probe.T, q request) []byte {
	r, err := q.http(t.Target().Wire)
	t.Need("encoded", err)
	var b bytes.Buffer
	t.Need("encoded", r.Write(&b))
	return b.Bytes()
}

// answer reads the next answer.
// Errors: io.EOF where there is none; what the network said.
func (l line) answer() (answer, error) {
	if _, err := l.in.Peek(1); err != nil {
		return answer{}, err
	}
	r, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if r.Close {
		r.Header.Set("Connection", "close")
	}
	return answer{r.StatusCode, r.Header, body}, err
}

// early is how long a provider has to refuse a request by its head alone. One
// that reads some of the body first is as right, and is given it after that.
const early = 20 * time.Millisecond

// overlong announces a body that is far too long and sends one byte more than
// what is allowed.
func overlong(t *probe.T, e wire.Endpoint, l wire.Lease) answer {
	traits, _ := e.Traits()
	q := request{endpoint: e, lease: l, body: []byte("{}"), change: func(r *http.Request) { r.ContentLength = 1 << 30 }}
	r, err := q.http(t.Target().Wire)
	t.Need("encoded", err)
	var head bytes.Buffer
	r.Body, r.GetBody = io.NopCloser(strings.NewReader("")), nil
	_ = r.Write(&head) // which says that there is no body, after the head
	c := dial(t)
	_, err = c.Write(head.Bytes())
	t.Need("sent", err)
	_ = c.SetReadDeadline(time.Now().Add(early))
	_, err = c.in.Peek(1)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = c.Write(bytes.Repeat([]byte(" "), int(traits.RequestBytes)+1)) // it may stop reading where it likes
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	a, err := c.answer()
	t.Need("an-answer", err)
	return a
}

func limits(t *probe.T) {
	l := wire.Lease{ID: t.ID("lease_"), Epoch: 1}
	all := []wire.Endpoint{wire.Destroy, wire.Execute}
	if t.Has(report.OpenProcess) {
		all = append(all, wire.ProcessInput)
	}
	for _, e := range all {
		a := overlong(t, e, l)
		if refused(t, string(e), a, wire.TagPayloadTooLarge) {
			_, got := refusedBy(a)
			traits, _ := e.Traits()
			t.Check(string(e), got.MaximumBytes == traits.RequestBytes, strconv.FormatInt(traits.RequestBytes, 10), got.MaximumBytes)
		}
	}
}

func dribbles(t *probe.T) {
	describe := request{endpoint: wire.Capabilities, message: wire.Empty{}}
	whole := written(t, describe)
	head, body := dial(t), dial(t)
	_, err := head.Write(whole[:10])
	t.Need("sent", err)
	_, err = body.Write(whole[:len(whole)-1])
	t.Need("sent", err)
	for range 8 { // by one of them it has the beginning of the others
		a := send(t, describe)
		t.Check("others", a.failure() == nil, "an answer to whoever sent a whole request", a.failure())
	}
	for _, rest := range []struct {
		line
		sent int
	}{{head, 10}, {body, len(whole) - 1}} {
		_, err = rest.Write(whole[rest.sent:])
		t.Need("sent", err)
		a, err := rest.answer()
		t.Need("an-answer", err)
		t.Check("itself", a.failure() == nil, "an answer once the request was whole", a.failure())
	}
}

func oneConnection(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	describe := request{endpoint: wire.Capabilities, message: wire.Empty{}}
	nobody := o.request(wire.Destroy, wire.InstanceRequest{InstanceID: sandbox.InstanceID(t.ID("none-"))})
	last := func(q request) request {
		q.change = func(r *http.Request) { r.Close = true }
		return q
	}
	described := func(a answer) bool {
		_, err := wire.Decode[wire.CapabilitiesResponse](a.body)
		return a.failure() == nil && err == nil
	}
	empty := func(a answer) bool { // a 202 is as right
		return a.status == http.StatusAccepted || a.failure() == nil && string(bytes.TrimSpace(a.body)) == "{}"
	}
	unknown := func(a answer) bool { return errors.Is(a.failure(), &wire.Error{Tag: wire.TagMemberUnknown}) }

	// A provider may close behind any answer. What it does not close, it serves
	// in order.
	inner := written(t, o.request(wire.Destroy, wire.InstanceRequest{InstanceID: o.id}))
	for _, c := range []struct {
		id    string
		sent  []request
		wants []func(answer) bool
	}{
		{"in-order", []request{describe, nobody, last(describe)}, []func(answer) bool{described, empty, described}},
		{"body-is-no-request", []request{{endpoint: wire.Endpoint(t.Nonce()), lease: o.lease, body: inner}, last(describe)}, []func(answer) bool{unknown, described}},
	} {
		l := dial(t)
		for _, q := range c.sent {
			if _, err := l.Write(written(t, q)); err != nil {
				break // it closed behind an answer, which is there to be read
			}
		}
		closed := false
		for n := 0; ; n++ {
			a, err := l.answer()
			if n > 0 && err != nil { // an end, also one that took what was sent behind
				break
			}
			t.Need("an-answer", err)
			if !t.Check(c.id, !closed && n < len(c.wants) && c.wants[n](a), "the answers to "+strconv.Itoa(len(c.wants))+" requests, in their order", string(a.body)) {
				break
			}
			closed = closed || a.header.Get("Connection") == "close"
		}
	}
	_, _, err := settled(send(t, o.execute("true")))
	t.Check("no-effect", err == nil, "a machine that nobody destroyed", err)
}
