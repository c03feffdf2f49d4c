package relay

import (
	"bufio"
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// session is one connection, and so one request.
type session struct {
	relay *Relay
	conn  net.Conn
	in    *bufio.Reader
	waits *list.Element
}

// lineBytes bounds one line of a head, and is the memory of a connection at rest.
const lineBytes = 4 << 10

// request is what may be forwarded.
type request struct {
	head
	shape  route.Shape
	length int64 // or chunked
}

// run is the whole of a connection: a head, an answer, a line of the log.
func (s *session) run(ctx, leased context.Context) {
	defer s.conn.Close()
	defer s.leave()
	defer context.AfterFunc(ctx, func() { s.conn.Close() })()
	started := s.relay.clock.Now()
	s.in = bufio.NewReaderSize(s.conn, lineBytes)
	_ = s.conn.SetReadDeadline(time.Now().Add(headTime))
	if _, err := s.in.Peek(1); err != nil {
		return // nobody asked for anything
	}
	l := Line{Kind: KindRequest}
	req, err := s.read(&l)
	if err == nil && !s.take() {
		err = &route.Refusal{Status: 429, Reason: route.ReasonLimit, Message: "expected at most " + strconv.Itoa(s.relay.cfg.requests) + " requests at once"}
	}
	if err == nil {
		err = s.forward(leased, req, &l)
		s.give()
	}
	refusal, ok := errors.AsType[*route.Refusal](err)
	if ok {
		l.Reason, l.Status = refusal.Reason, 0
		if s.refuse(refusal) == nil {
			l.Status = int64(refusal.Status)
		}
	}
	l.Millis = max(0, s.relay.clock.Now().Sub(started).Milliseconds())
	// The line comes before the linger, or whoever has read the answer could look
	// for it in vain. The journal keeps its failure, and ends Serve by it.
	_ = s.relay.log.write(l)
	if ok {
		s.linger()
	}
}

// read reads the head and decides.
// Errors: *route.Refusal.
func (s *session) read(l *Line) (request, error) {
	h, err := readHead(s.in)
	if err != nil {
		if _, ok := errors.AsType[*route.Refusal](err); ok {
			return request{}, err
		}
		return request{}, &route.Refusal{Status: 408, Reason: route.ReasonTimeout, Message: "expected a whole head within " + headTime.String()}
	}
	shape, err := route.Match(h.method, h.target)
	if err != nil {
		return request{}, err
	}
	l.Shape = shape.String()
	if !s.relay.cfg.hosts[h.fields["host"]] {
		return request{}, &route.Refusal{Status: 404, Reason: route.ReasonHost, Message: "expected the relay's own name in Host"}
	}
	if err := s.relay.admit(h); err != nil {
		return request{}, err
	}
	length, err := h.bodyLength(s.relay.cfg.body)
	if err != nil {
		return request{}, err
	}
	if expect, ok := h.fields["expect"]; ok && expect != "100-continue" {
		return request{}, &route.Refusal{Status: 417, Reason: route.ReasonHeaders, Message: "expected 100-continue in expect"}
	}
	return request{h, shape, length}, nil
}

// admit checks the token, and the lease by our own clock.
// Errors: *route.Refusal 401. Another run's token is not told from an unknown one.
func (r *Relay) admit(h head) error {
	token, err := route.Credential(func(name string) []string {
		if v, ok := h.fields[name]; ok {
			return []string{v}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !route.SameDigest(route.TokenDigest(token), r.cfg.token) {
		return &route.Refusal{Status: 401, Reason: route.ReasonToken, Message: "expected the token of this run"}
	}
	if !r.clock.Now().Before(r.cfg.expires) {
		return expired()
	}
	return nil
}

func expired() error {
	return &route.Refusal{Status: 401, Reason: route.ReasonExpired, Message: "the lease of this run is over"}
}

// refuse answers a refusal.
func (s *session) refuse(r *route.Refusal) error {
	body := r.Body()
	text := "HTTP/1.1 " + strconv.Itoa(r.Status) + " " + http.StatusText(r.Status) + "\r\n" +
		"content-type: application/json\r\n" +
		"x-should-retry: " + strconv.FormatBool(r.Retry()) + "\r\n" +
		"content-length: " + strconv.Itoa(len(body)) + "\r\n" +
		"connection: close\r\n\r\n" + string(body)
	_ = s.conn.SetWriteDeadline(time.Now().Add(replyTime))
	_, err := io.WriteString(s.conn, text)
	return err
}

// linger takes what a refused workload still had under way; see lingerBytes.
func (s *session) linger() {
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, s.in, lingerBytes)
}
