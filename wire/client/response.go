package client

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/wire"
)

// body is the body of a 200, bounded.
type body struct {
	endpoint wire.Endpoint
	r        io.Reader
	response *http.Response
}

// settle says what one response is: a 200 for read, a 202, a typed error, a
// violation, or nothing that a provider wrote.
//
// What a provider means stands in the body; a status alone may be any
// intermediary's.
func (c *Client) settle(r *http.Response, k call, e wire.Endpoint, read func(*body) error) error {
	t, _ := k.endpoint.Traits()
	if r.StatusCode >= 300 && r.StatusCode < 400 {
		return broken(e, "status", "an answer, never a redirect", strconv.Itoa(r.StatusCode))
	}
	h, err := wire.ParseResponseHeader(r.Header)
	if err != nil {
		if len(r.Header[wire.HeaderWire]) == 0 {
			if r.StatusCode == http.StatusRequestEntityTooLarge {
				return lost(&BodyRefused{Endpoint: e, Bytes: r.Request.ContentLength})
			}
			return lost(errors.New("status " + strconv.Itoa(r.StatusCode) + ", not from a provider"))
		}
		return violation(e, err)
	}
	if c.digest != "" && h.Capabilities != c.digest && !teardown(k.endpoint) {
		return broken(e, wire.HeaderCapabilities, string(c.digest), string(h.Capabilities))
	}
	switch {
	case r.StatusCode == http.StatusOK:
		media := wire.MediaJSON
		if t.FramedResponse {
			media = wire.MediaFrames
		}
		if err := wire.CheckMedia(r.Header, media); err != nil {
			return violation(e, err)
		}
		b := &body{endpoint: e, r: r.Body, response: r}
		if t.ResponseBytes > 0 {
			b.r = &limited{r: r.Body, left: t.ResponseBytes, endpoint: e}
		}
		return read(b)
	case r.StatusCode == http.StatusAccepted:
		return c.accepted(r, k, e)
	case r.StatusCode < 400:
		return broken(e, "status", "200, 202 or an error", strconv.Itoa(r.StatusCode))
	}
	return typed(r, e)
}

// teardown is never refused for what else the peer did: it is how this side
// gets out.
func teardown(e wire.Endpoint) bool {
	switch e {
	case wire.RollbackOperation, wire.Destroy, wire.DestroySnapshot, wire.ProcessDestroy, wire.AbortActiveWrite:
		return true
	}
	return false
}

func (c *Client) accepted(r *http.Response, k call, e wire.Endpoint) error {
	if k.id == "" || !c.info.AsyncOperations {
		return broken(e, "status", "200: nothing here runs on", "202")
	}
	if err := wire.CheckMedia(r.Header, wire.MediaJSON); err != nil {
		return violation(e, err)
	}
	b := &body{endpoint: e, r: &limited{r: r.Body, left: wire.MaxErrorBytes, endpoint: e}, response: r}
	running, err := decode[wire.Running](b)
	if err != nil {
		return err
	}
	if running.OperationID != k.id {
		return broken(e, "operation_id", string(k.id), string(running.OperationID))
	}
	return errRunning
}

// typed reads an error body. What is none was not written by a provider, or
// not to its end.
func typed(r *http.Response, e wire.Endpoint) error {
	untyped := lost(errors.New("status " + strconv.Itoa(r.StatusCode) + " without an error body"))
	if wire.CheckMedia(r.Header, wire.MediaJSON) != nil {
		return untyped
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxErrorBytes+1))
	if err != nil {
		return lost(err)
	}
	if _, err := wire.DecodeError(data); err != nil {
		return untyped
	}
	failure, err := said(e, data)
	if err != nil {
		return err
	}
	return refusal(failure)
}

// refusal is the one typed error that may be sent again: the provider did
// nothing yet.
func refusal(failure error) error {
	if w, ok := failure.(*wire.Error); ok && w.Retryable() {
		return &undelivered{cause: w, after: time.Duration(w.RetryAfterMS) * time.Millisecond}
	}
	return failure
}

// decode reads a JSON body to its end.
func decode[M wire.Message](b *body) (M, error) {
	var none M
	data, err := io.ReadAll(b.r)
	if err != nil {
		return none, fault(b.endpoint, err)
	}
	m, err := wire.Decode[M](data)
	if err != nil {
		if b.open() {
			return none, lost(io.ErrUnexpectedEOF)
		}
		return none, violation(b.endpoint, err)
	}
	return m, nil
}

// open says that nothing told where the body ends: HTTP/1.0 ends it with the
// connection, so that half of it looks like all of it.
func (b *body) open() bool {
	return b.response.ProtoMajor == 1 && b.response.ContentLength < 0 && len(b.response.TransferEncoding) == 0
}

// limited is a body that is cut, by name, one byte after its bound.
type limited struct {
	r        io.Reader
	left     int64
	endpoint wire.Endpoint
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, broken(l.endpoint, "body", "an end", "more than its bound")
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return n - 1, broken(l.endpoint, "body", "an end", "more than its bound")
	}
	return n, err
}

// frames reads a framed body: each frame goes to take until one is terminal.
// A result frame is terminal, and so is an error frame, which is refused in its
// own words. Nothing may follow.
func frames(b *body, take func(wire.Frame) (done bool, err error)) error {
	r := wire.NewReader(b.r)
	for {
		f, err := r.Next()
		if err != nil {
			return fault(b.endpoint, err)
		}
		if f.Type == wire.TypeError {
			failure, err := said(b.endpoint, f.Payload)
			if err != nil {
				return err
			}
			if err := b.end(r); err != nil {
				return err
			}
			return refusal(failure)
		}
		done, err := take(f)
		switch {
		case err != nil:
			return fault(b.endpoint, err)
		case done:
			return b.end(r)
		}
	}
}

// lastWords is how long a body may stay open behind its terminal frame.
const lastWords = 5 * time.Second

// end refuses anything behind a terminal frame. A peer that says nothing more
// and does not end is not waited for: everything is here.
func (b *body) end(r *wire.Reader) error {
	cut := time.AfterFunc(lastWords, func() { b.response.Body.Close() })
	defer cut.Stop()
	f, err := r.Next()
	frame, own := (*wire.FrameError)(nil), (*ProtocolError)(nil)
	switch {
	case err == nil:
		return broken(b.endpoint, "frame", "none after the terminal one", "type "+strconv.Itoa(int(f.Type)))
	case errors.As(err, &own):
		return own
	case errors.As(err, &frame):
		return violation(b.endpoint, err)
	}
	return nil
}

// unexpected is a frame that this response has not.
func unexpected(f wire.Frame) error {
	return &wire.FrameError{Reason: wire.UnexpectedFrame, Type: f.Type, Length: int64(len(f.Payload))}
}
