package server

import (
	"bytes"
	"context"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// call is one request on its way through the server. It belongs to its handler.
type call struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	endpoint wire.Endpoint
	traits   wire.Traits
	header   wire.RequestHeader

	whole  bool // the body was read to its end
	frames *wire.Reader
	sum    hash.Hash // over the body as it was read; nil where nobody asks
	digest sandbox.Digest
	opens  wire.ProcessID // of an open_process
}

// handler serves one endpoint. It writes the response itself, or returns the
// failure to be written.
type handler func(*call) error

// open checks everything that can be checked before the body is read.
func (s *Server) open(w http.ResponseWriter, r *http.Request) (*call, error) {
	c := &call{s: s, w: w, r: r}
	// A body has its time: a fixed part, and what its length takes at 64 KiB/s.
	limit := s.opt.Stall + time.Duration(min(max(r.ContentLength, 0), wire.MaxFramedRequestBytes)/(64<<10))*time.Second
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
	if err := s.access.check(r); err != nil {
		return c, err
	}
	endpoint, ok := wire.ParsePath(r.URL.EscapedPath())
	if !ok {
		return c, &wire.Error{Tag: wire.TagMemberUnknown}
	}
	c.endpoint = endpoint
	c.traits, _ = endpoint.Traits()
	malformed := func(pointer, expected string) error {
		return &wire.Error{Tag: wire.TagMalformed, Pointer: pointer, Message: "expected " + expected}
	}
	var err error
	if c.header, err = wire.ParseRequestHeader(r.Header, endpoint); err != nil {
		return c, err
	}
	bodiless := r.Method == http.MethodGet && endpoint == wire.Capabilities
	switch {
	case r.URL.RawQuery != "" || r.URL.ForceQuery:
		return c, malformed("query", "none")
	case r.Method != http.MethodPost && !bodiless:
		return c, malformed("method", "POST")
	case len(r.TransferEncoding) > 0 || r.ContentLength < 0:
		return c, malformed("content-length", "the length of the body")
	case r.ContentLength > c.traits.RequestBytes:
		return c, &wire.Error{Tag: wire.TagPayloadTooLarge, MaximumBytes: c.traits.RequestBytes}
	case bodiless && r.ContentLength > 0:
		return c, malformed("body", "none with GET")
	case bodiless:
		c.read()
		return c, nil
	}
	media := wire.MediaJSON
	if c.traits.FramedRequest {
		media = wire.MediaFrames
	}
	return c, wire.CheckMedia(r.Header, media)
}

// read is the end of the body: its time is given back to the connection.
func (c *call) read() {
	c.whole = true
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
}

// request reads and decodes a JSON request.
func request[M wire.Message](c *call) (M, error) {
	var body bytes.Buffer
	body.Grow(int(min(c.r.ContentLength, 64<<10)))
	if _, err := body.ReadFrom(io.LimitReader(c.r.Body, c.r.ContentLength)); err != nil {
		return *new(M), broken(err)
	}
	c.read()
	if int64(body.Len()) != c.r.ContentLength {
		return *new(M), broken(io.ErrUnexpectedEOF)
	}
	c.digest = wire.RequestDigest(body.Bytes())
	return wire.Decode[M](body.Bytes())
}

// frameCall reads the call of a framed request.
func frameCall[M wire.Message](c *call) (M, error) {
	in := io.Reader(c.r.Body)
	if c.sum != nil {
		in = io.TeeReader(in, c.sum)
	}
	c.frames = wire.NewReader(in)
	m, err := wire.ReadCall[M](c.frames)
	return m, framing(err)
}

// data reads the rest of a framed request, at most limit bytes.
func (c *call) data(expect, limit int64) ([]byte, error) { return c.digested(expect, limit, nil) }

// digested is data that goes by sum, too.
func (c *call) digested(expect, limit int64, sum *wire.Digester) ([]byte, error) {
	data, err := wire.ReadDataDigest(c.frames, expect, limit, sum)
	if err != nil {
		return nil, framing(err)
	}
	c.read()
	if c.sum != nil {
		c.digest = sandbox.Digest("sha256:" + hex.EncodeToString(c.sum.Sum(nil)))
	}
	return data, nil
}

// content reads the bytes that a call announced, and holds them to what it said:
// nothing of a file is seen before all of it was.
func (c *call) content(m wire.Message, path string, size int64, digest sandbox.Digest) ([]byte, error) {
	if size > sandbox.MaxFileBytes {
		return nil, sandbox.TooLarge(c.traits.Member, path, sandbox.MaxFileBytes)
	}
	sum := wire.NewDigester()
	data, err := c.digested(size, size, sum)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, &wire.Error{Tag: wire.TagMalformed, Pointer: "size", Message: "expected as many bytes of data"}
	}
	if sum.Digest() != digest {
		return nil, &wire.Error{Tag: wire.TagMalformed, Pointer: "digest", Message: "expected the digest of the data"}
	}
	// The call holds the digest of the data, so the call alone tells one request
	// from another.
	call, err := wire.Encode(m)
	c.digest = wire.RequestDigest(call)
	return data, err
}

// framing keeps what is wrong with a frame, and names any other failed read.
func framing(err error) error {
	switch err.(type) {
	case nil, *wire.FrameError, *wire.Error:
		return err
	}
	return broken(err)
}

// broken is a body that ended early or came too slowly. Nobody reads the answer,
// most likely.
func broken(err error) error {
	return &wire.Error{Tag: wire.TagMalformed, Pointer: "body", Message: "expected as many bytes as were announced", Err: err}
}

// reply sends a message.
func (c *call) reply(m wire.Message) error {
	a, err := said(m)
	if err == nil {
		c.s.send(c.w, a)
	}
	return err
}

// context is the context of a call that is not journaled: it ends with the
// caller, whose budget bounds it.
func (c *call) context() (context.Context, context.CancelFunc) {
	return bounded(c.r.Context(), c.header.Deadline)
}

// bounded is ctx with a budget; 0 is none.
func bounded(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	if budget == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, budget)
}

// wait is how long the call may be held.
func (c *call) wait() time.Duration { return min(c.header.Wait, c.s.opt.MaxWait) }
