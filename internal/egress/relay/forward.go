package relay

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// forward leads a request to the gateway and its answer back. It completes l.
// Errors: *route.Refusal where nothing was answered yet and somebody may still
// listen; every other end is in l.
func (s *session) forward(leased context.Context, req request, l *Line) error {
	ctx, cancel := context.WithCancelCause(leased)
	defer cancel(nil)
	// Past the lease not even a write that is on its way goes on. First the reason,
	// and then the connection: a workload that went looks the same.
	defer context.AfterFunc(leased, func() { cancel(context.Cause(leased)); s.conn.Close() })()
	idle := newIdle(s.relay.clock, s.relay.cfg.idle, func() { cancel(errIdle) })
	defer idle.end()

	b := newBody(s.conn, s.in, req.length, s.relay.cfg.body, func(int) { idle.moved() })
	defer b.Close()
	end := b.watch(func() { cancel(errClient) })
	defer end()
	if req.fields["expect"] != "" && req.length != 0 {
		_ = s.conn.SetWriteDeadline(time.Now().Add(replyTime))
		if _, err := io.WriteString(s.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			l.End = EndClient
			return nil
		}
	}

	response, err := s.relay.gateway.RoundTrip(req.outgoing(ctx, b))
	l.UpBytes, _ = b.outcome()
	if err != nil {
		_, refusal := b.outcome()
		switch {
		case refusal != nil:
			return refusal
		case context.Cause(ctx) == errIdle:
			return &route.Refusal{Status: 504, Reason: route.ReasonGateway, Message: "the model gateway is silent"}
		case ctx.Err() != nil:
			l.End = endOf(ctx)
			return nil
		}
		return gatewayFailed("the model gateway gives no answer")
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 300 && response.StatusCode < 400 {
		// A redirect would lead elsewhere, an upgrade out of HTTP.
		return gatewayFailed("the model gateway gives an answer that is not carried out")
	}
	l.Status = int64(response.StatusCode)
	l.End, l.DownBytes = s.answer(ctx, response, idle)
	l.UpBytes, _ = b.outcome()
	if l.End == EndDone && !b.isWhole() {
		_ = b.Close()
		s.linger() // the gateway answered before it had the whole request
	}
	return nil
}

func gatewayFailed(message string) error {
	return &route.Refusal{Status: 502, Reason: route.ReasonGateway, Message: message}
}

// outgoing is the request as the gateway gets it: the shape's own path, the
// headers of the list, and a body in our framing.
func (r request) outgoing(ctx context.Context, b *body) *http.Request {
	out := &http.Request{
		Method: r.shape.Method,
		URL:    &url.URL{Scheme: "http", Host: "gateway", Path: r.shape.Path},
		Header: http.Header{"User-Agent": {""}}, // none
		Body:   b, ContentLength: r.length,
	}
	if len(r.target) != len(r.shape.Path) {
		out.URL.RawQuery = r.shape.Query
	}
	if r.length == 0 {
		out.Body = http.NoBody
	}
	for name, value := range r.fields {
		if route.RequestHeader(name) {
			out.Header.Set(name, value)
		}
	}
	return out.WithContext(ctx)
}

// answer writes an answer, each piece as it comes.
func (s *session) answer(ctx context.Context, response *http.Response, idle *idle) (End, int64) {
	// A piece is read into the middle, and framed where it lies.
	const before, after = 8, 2
	buffer := make([]byte, before+pieceBytes+after)
	total, sized := int64(0), response.ContentLength >= 0
	if !s.write(s.answerHead(response)) {
		return clientOr(ctx), 0
	}
	for {
		n, err := response.Body.Read(buffer[before : before+pieceBytes])
		idle.moved()
		total += int64(n)
		if n > 0 {
			piece := buffer[before : before+n]
			if !sized {
				size := strconv.AppendInt(nil, int64(n), 16)
				start := before - len(size) - 2
				copy(buffer[start:before], append(size, "\r\n"...))
				piece = append(buffer[start:before+n], "\r\n"...)
			}
			if !s.write(piece) {
				return clientOr(ctx), total
			}
		}
		switch {
		case err == io.EOF && !sized && !s.write([]byte("0\r\n\r\n")):
			return clientOr(ctx), total
		case err == io.EOF:
			return EndDone, total
		case err != nil && ctx.Err() != nil:
			return endOf(ctx), total
		case err != nil:
			return EndGateway, total
		}
	}
}

// answerHead is the status, the headers of the list and the framing.
func (s *session) answerHead(response *http.Response) []byte {
	text := "HTTP/1.1 " + strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode) + "\r\n"
	for name, values := range response.Header {
		if lower := strings.ToLower(name); route.ResponseHeader(lower) && len(values) == 1 && route.HeaderValue(values[0]) {
			text += lower + ": " + values[0] + "\r\n"
		}
	}
	if response.ContentLength >= 0 {
		text += "content-length: " + strconv.FormatInt(response.ContentLength, 10) + "\r\n"
	} else {
		text += "transfer-encoding: chunked\r\n"
	}
	return []byte(text + "connection: close\r\n\r\n")
}

// write writes a piece within replyTime and reports whether it could.
func (s *session) write(piece []byte) bool {
	_ = s.conn.SetWriteDeadline(time.Now().Add(replyTime))
	_, err := s.conn.Write(piece)
	return err == nil
}

// endOf is the end that a context's cause is.
func endOf(ctx context.Context) End {
	switch context.Cause(ctx) {
	case errClient:
		return EndClient
	case errIdle:
		return EndIdle
	case errExpired:
		return EndExpired
	}
	return EndStopped
}

// clientOr is the end of an answer that the workload does not take: that it is
// gone, unless it was we who closed the connection.
func clientOr(ctx context.Context) End {
	if ctx.Err() != nil {
		return endOf(ctx)
	}
	return EndClient
}

// idle calls a function when nothing has moved for a time.
type idle struct {
	clock Clock
	after time.Duration
	call  func()

	mu   sync.Mutex
	last time.Time
	stop func() bool // nil once it ended
}

func newIdle(clock Clock, after time.Duration, call func()) *idle {
	i := &idle{clock: clock, after: after, call: call, last: clock.Now()}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stop = clock.AfterFunc(after, i.look)
	return i
}

func (i *idle) moved() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = i.clock.Now()
}

func (i *idle) look() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop == nil {
		return
	}
	if left := i.after - i.clock.Now().Sub(i.last); left > 0 {
		i.stop = i.clock.AfterFunc(left, i.look)
		return
	}
	i.call()
}

func (i *idle) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stop()
	i.stop = nil
}
