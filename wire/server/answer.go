package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// answer is one whole response, as it is sent and as it is sent again.
type answer struct {
	status int
	framed bool
	body   []byte
}

// said makes the answer of a message.
func said(m wire.Message) (answer, error) {
	body, err := wire.Encode(m)
	return answer{status: http.StatusOK, body: body}, err
}

// refusal makes the answer of a failure of e. Whatever the vocabulary has no
// word for becomes provider_error here, and goes to the log.
func (s *Server) refusal(e wire.Endpoint, failure error) answer {
	failure = s.typed(e, failure)
	body, status, err := wire.EncodeError(failure)
	if err != nil {
		s.log(failure)
		t, _ := e.Traits()
		body, status, _ = wire.EncodeError(sandbox.Failed(t.Member, sandbox.ReasonProviderError, nil))
	}
	return answer{status: status, body: body}
}

// typed turns any failure into one that travels.
func (s *Server) typed(e wire.Endpoint, failure error) error {
	t, _ := e.Traits()
	if w := (*wire.Error)(nil); errors.As(failure, &w) {
		if w.Operation == "" {
			named := *w
			named.Operation = string(e)
			return &named
		}
		return w
	}
	if a := (*sandbox.Error)(nil); errors.As(failure, &a) {
		return a
	}
	if f := (*wire.FrameError)(nil); errors.As(failure, &f) {
		return &wire.Error{Tag: wire.TagMalformed, Operation: string(e), Pointer: "body", Message: f.Error()}
	}
	switch {
	case errors.Is(failure, context.DeadlineExceeded):
		return sandbox.Failed(t.Member, sandbox.ReasonTimedOut, failure)
	case errors.Is(failure, context.Canceled):
		return sandbox.Failed(t.Member, sandbox.ReasonIndeterminate, failure)
	}
	s.log(failure)
	return sandbox.Failed(t.Member, sandbox.ReasonProviderError, failure)
}

// framed builds a framed body in memory.
type framed struct {
	bytes.Buffer
	*wire.Writer
}

func newFramed(size int) *framed {
	f := &framed{}
	f.Grow(size)
	f.Writer = wire.NewWriter(&f.Buffer)
	return f
}

// outbox writes a response. Every write has to make progress within stall, so
// that a reader that stands still costs a goroutine no longer than that.
type outbox struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	until time.Time
}

func newOutbox(w http.ResponseWriter, stall time.Duration) *outbox {
	return &outbox{w: w, rc: http.NewResponseController(w), stall: stall}
}

// writeStep is how much is written under one deadline.
const writeStep = 1 << 20

func (o *outbox) Write(b []byte) (n int, err error) {
	for {
		if now := time.Now(); o.until.Sub(now) < o.stall/2 {
			o.until = now.Add(o.stall)
			_ = o.rc.SetWriteDeadline(o.until) // a writer that has none is a test's
		}
		step := b[:min(len(b), writeStep)]
		m, err := o.w.Write(step)
		n, b = n+m, b[m:]
		if err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// release takes the deadline off a connection that is used again.
func (o *outbox) release() { _ = o.rc.SetWriteDeadline(time.Time{}) }

// send writes a whole answer.
func (s *Server) send(w http.ResponseWriter, a answer) {
	s.header(w, a.framed)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	o := newOutbox(w, s.opt.Stall)
	if _, err := o.Write(a.body); err == nil {
		o.release()
	}
}

func (s *Server) header(w http.ResponseWriter, framed bool) {
	(wire.ResponseHeader{Capabilities: s.envelope.Load().digest, Boot: s.boot}).Set(w.Header(), framed)
}
