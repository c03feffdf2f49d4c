package gateway

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// unanswered is the refusal for a request that got no answer.
func (x *exchange) unanswered(ctx context.Context, err error) error {
	if refusal, ok := errors.AsType[*route.Refusal](context.Cause(ctx)); ok {
		return refusal
	}
	if ctx.Err() != nil {
		return errClient
	}
	if ue, ok := err.(interface{ Timeout() bool }); ok && ue.Timeout() {
		return &route.Refusal{Status: 504, Reason: route.ReasonLate, Message: "the upstream does not answer in time"}
	}
	// What went wrong may name addresses; the workload has no use for them.
	return &route.Refusal{Status: 502, Reason: route.ReasonUpstream, Message: "the upstream of " + string(x.style) + " cannot be reached"}
}

// readable judges an answer's head, and answers its body as it is to be read.
// Errors: *route.Refusal in the place of an answer that is not passed on.
func (x *exchange) readable(response *http.Response) (io.Reader, error) {
	status := response.StatusCode
	refuse := func(to int, reason route.Reason, message string) (io.Reader, error) {
		x.line.Upstream = int64(status)
		if after := response.Header.Get("Retry-After"); after != "" && route.HeaderValue(after) {
			x.w.Header().Set("Retry-After", after)
		}
		return nil, &route.Refusal{Status: to, Reason: reason, Message: message}
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		// Its text may repeat a part of the key, or name the account.
		return refuse(http.StatusBadGateway, route.ReasonKey, "the upstream of "+string(x.style)+" answers "+strconv.Itoa(status)+" to the gateway's key")
	case status < 200, status >= 300 && status < 400:
		return refuse(http.StatusBadGateway, route.ReasonUpstream, "the upstream of "+string(x.style)+" answers "+strconv.Itoa(status)+", which is not carried out")
	case status >= 400 && mediaType(response.Header) != "application/json":
		return refuse(status, route.ReasonUpstream, "the upstream of "+string(x.style)+" answers "+strconv.Itoa(status))
	}
	switch encoding := strings.ToLower(response.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return response.Body, nil
	case "gzip":
		plain, err := gzip.NewReader(response.Body)
		if err != nil {
			return refuse(http.StatusBadGateway, route.ReasonUpstream, "the upstream of "+string(x.style)+" answers in a broken encoding")
		}
		response.ContentLength = -1
		return plain, nil
	}
	return refuse(http.StatusBadGateway, route.ReasonUpstream, "the upstream of "+string(x.style)+" answers in an encoding that nobody asked for")
}

// pass passes an answer on, each piece as it comes.
// Errors: why it ended early.
func (x *exchange) pass(ctx context.Context, response *http.Response, answer io.Reader, m *meter, strip bool) error {
	for name, values := range response.Header {
		if route.ResponseHeader(strings.ToLower(name)) && len(values) == 1 && route.HeaderValue(values[0]) {
			x.w.Header()[name] = values
		}
	}
	// A stream may lose an event, or gain the one of an error.
	if response.ContentLength >= 0 && m.events == nil {
		x.w.Header().Set("Content-Length", strconv.FormatInt(response.ContentLength, 10))
	}
	x.w.WriteHeader(response.StatusCode)
	x.began, x.line.Status = true, int64(response.StatusCode)
	var s stripper
	for piece := make([]byte, pieceBytes); ; {
		n, err := answer.Read(piece)
		x.watch.move()
		_, _ = m.Write(piece[:n])
		out := piece[:n]
		if strip {
			out = s.pass(out)
			if err == io.EOF {
				out = append(out, s.rest()...)
			}
		}
		if n > 0 || len(out) > 0 {
			if err := x.write(out); err != nil {
				return errors.Join(errClient, err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return x.broken(ctx, m)
		}
	}
}

var errClient = errors.New("the client is gone")

// broken ends an answer that the upstream, or the lease, broke off. In a stream
// of events the reason is an event, which the SDKs of both APIs raise.
func (x *exchange) broken(ctx context.Context, m *meter) error {
	refusal, ok := errors.AsType[*route.Refusal](context.Cause(ctx))
	switch {
	case ok:
	case ctx.Err() != nil:
		return errClient
	default:
		refusal = &route.Refusal{Status: 502, Reason: route.ReasonUpstream, Message: "the upstream of " + string(x.style) + " broke off its answer"}
	}
	if m.events != nil && m.events.between {
		_ = x.write([]byte("event: error\ndata: " + string(refusal.Body()) + "\n\n"))
	}
	return refusal
}

// write writes a piece within replyTime, and lets it go at once.
func (x *exchange) write(piece []byte) error {
	x.line.Usage.DownBytes += int64(len(piece))
	_ = x.conn.SetWriteDeadline(time.Now().Add(replyTime))
	if _, err := x.w.Write(piece); err != nil {
		return err
	}
	return x.conn.Flush()
}
