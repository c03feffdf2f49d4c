package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// session is one connection of a client and the one to the server behind it.
type session struct {
	p      *Proxy
	client net.Conn

	mu     sync.Mutex
	server net.Conn // nil where there is none
	gone   bool
}

// hangUp closes the connection to the server for good.
func (s *session) hangUp() {
	s.mu.Lock()
	c := s.server
	s.server, s.gone = nil, true
	s.mu.Unlock()
	if c != nil {
		s.p.drop(c)
	}
}

// backend is the connection to the server.
func (s *session) backend() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && !s.gone {
		if c, ok := s.p.dial(); ok {
			s.server = c
		}
	}
	return s.server
}

var (
	errCut = errors.New("cut by script")
	bad    = []byte("HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<h1>502</h1>\n")
)

// exchange passes one request and its response, and says whether the connection
// can take another.
func (s *session) exchange(r request, f Fault) bool {
	p := s.p
	if f.Kind == Refuse {
		p.did(f.Kind)
		return false
	}
	server := s.backend()
	if server == nil {
		return false
	}
	switch f.Kind {
	case CutRequest:
		if f.After < int64(len(r.raw)) {
			_, _ = server.Write(r.raw[:f.After])
			p.did(f.Kind)
			return false
		}
		f = Fault{}
	case Double:
		p.did(f.Kind)
		p.work.Go(func() { p.again(r) })
	}
	sent := make(chan error, 1)
	if f.Kind == HalfClose { // before any answer
		sent <- s.send(server, r, f)
	} else {
		p.work.Go(func() { sent <- s.send(server, r, f) })
	}
	out, limit := s.to(f)
	more, err := relay(out, server) // which may come before the request was taken whole
	if more {
		more = finished(sent)
	}
	switch {
	case f.Kind == Lose || f.Kind == Untyped:
		p.did(f.Kind)
		if f.Kind == Untyped {
			_, _ = s.client.Write(bad)
		}
		return false
	case limit != nil && limit.done:
		s.after(f)
		return false
	case f.Kind == Drip:
		p.did(f.Kind)
	case f.Kind == Echo && err == nil:
		p.did(f.Kind)
		p.again(r)
	case f.Kind == Stale && err == nil:
		p.did(f.Kind)
		return false
	}
	return more && err == nil && f.Kind != HalfClose
}

// finished says whether the request was taken whole. Its writer may be a little
// later than the answer; one that still writes has nobody who takes the rest.
func finished(sent <-chan error) bool {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case err := <-sent:
		return err == nil
	case <-t.C:
		return false
	}
}

// send gives the request to the server.
func (s *session) send(server net.Conn, r request, f Fault) error {
	_, err := server.Write(r.raw)
	if c, ok := server.(interface{ CloseWrite() error }); ok && err == nil && f.Kind == HalfClose {
		s.p.did(f.Kind)
		err = c.CloseWrite()
	}
	return err
}

// to is where the response of a fault goes; limit is set where it ends early.
func (s *session) to(f Fault) (out io.Writer, limit *limited) {
	switch f.Kind {
	case CutResponse, Garbage, Stall:
		limit = &limited{w: s.client, left: f.After}
		return limit, limit
	case Lose, Untyped:
		if f.After == 0 {
			return io.Discard, nil
		}
		limit = &limited{w: io.Discard, left: f.After}
		return limit, limit
	case Drip:
		return &drip{s.p, s.client, f.After}, nil
	}
	return s.client, nil
}

// after is what follows the part of a response that passed.
func (s *session) after(f Fault) {
	s.p.did(f.Kind)
	switch f.Kind {
	case Garbage:
		_, _ = s.client.Write(bytes.Repeat([]byte{0xff, '\r', '\n', 0x00}, 64))
	case Stall:
		var over <-chan time.Time
		if s.p.o.Stall > 0 {
			t := time.NewTimer(s.p.o.Stall)
			defer t.Stop()
			over = t.C
		}
		gone := make(chan struct{})
		s.p.work.Go(func() { // reads the server's end, which hangUp closes when the client leaves
			defer close(gone)
			if c := s.backend(); c != nil {
				_, _ = io.Copy(io.Discard, c)
			}
		})
		select {
		case <-over:
		case <-gone:
		case <-s.p.ctx.Done():
		}
	}
}

// again delivers a request once more, on a connection of its own, and takes the
// answer.
func (p *Proxy) again(r request) {
	c, ok := p.dial()
	if !ok {
		return
	}
	defer p.drop(c)
	if _, err := c.Write(r.raw); err == nil {
		_, _ = relay(io.Discard, c)
	}
}

// limited passes so many bytes and no more.
type limited struct {
	w    io.Writer
	left int64
	done bool
}

func (l *limited) Write(b []byte) (int, error) {
	if int64(len(b)) <= l.left {
		l.left -= int64(len(b))
		return l.w.Write(b)
	}
	n, err := l.w.Write(b[:l.left])
	l.left, l.done = 0, true
	if err == nil {
		err = errCut
	}
	return n, err
}

// drip passes the first bytes one by one.
type drip struct {
	p    *Proxy
	w    io.Writer
	left int64
}

func (d *drip) Write(b []byte) (n int, err error) {
	for n < len(b) && d.left > 0 && err == nil {
		t := time.NewTimer(d.p.o.Pause)
		select {
		case <-t.C:
		case <-d.p.ctx.Done():
			t.Stop()
			return n, d.p.ctx.Err()
		}
		piece := min(7, len(b)-n)
		var m int
		m, err = d.w.Write(b[n : n+piece])
		n += m
		d.left -= int64(m)
	}
	if err != nil || n == len(b) {
		return n, err
	}
	m, err := d.w.Write(b[n:])
	return n + m, err
}

// maxHead bounds a head; both ends have the same bound or less.
const maxHead = 1 << 20

var errMessage = errors.New("no message of HTTP/1.1")

// request is one request as it came.
type request struct {
	path string
	raw  []byte
}

func readRequest(in *bufio.Reader) (request, error) {
	head, err := readHead(in)
	if err != nil {
		return request{}, err
	}
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	words := bytes.Split(line, []byte(" "))
	if len(words) != 3 {
		return request{}, errMessage
	}
	size := max(length(head), 0)
	raw := make([]byte, int64(len(head))+size)
	copy(raw, head)
	_, err = io.ReadFull(in, raw[len(head):])
	return request{string(words[1]), raw}, err
}

func readHead(in *bufio.Reader) (head []byte, err error) {
	for {
		line, err := in.ReadSlice('\n')
		head = append(head, line...)
		if err != nil {
			return head, err
		}
		if len(head) > maxHead {
			return nil, errMessage
		}
		if len(line) == 2 {
			return head, nil
		}
	}
}

// field is the value of one header line, nil where there is none.
func field(head []byte, name string) []byte {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if ok && bytes.EqualFold(key, []byte(name)) {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

// length is the announced length of a body, -1 where there is none.
func length(head []byte) int64 {
	n, err := strconv.ParseInt(string(field(head, "Content-Length")), 10, 62)
	if err != nil {
		return -1
	}
	return n
}

// flushing gives on what has come before it waits for more.
type flushing struct {
	r io.Reader
	w *bufio.Writer
}

func (f flushing) Read(b []byte) (int, error) {
	if err := f.w.Flush(); err != nil {
		return 0, err
	}
	return f.r.Read(b)
}

// relay passes one response as it comes, and says whether the connection goes
// on behind it.
func relay(to io.Writer, from io.Reader) (more bool, err error) {
	buffer := bufio.NewWriterSize(to, 64<<10)
	in := bufio.NewReaderSize(flushing{from, buffer}, 64<<10)
	defer func() {
		if ferr := buffer.Flush(); err == nil {
			err = ferr
		}
	}()
	// Not the buffer itself: it would read from its source by itself, and be
	// flushed in the middle of that.
	w := struct{ io.Writer }{buffer}
	head, err := readHead(in)
	if _, werr := w.Write(head); err != nil || werr != nil {
		return false, errors.Join(err, werr)
	}
	more = !bytes.EqualFold(field(head, "Connection"), []byte("close"))
	size := length(head)
	switch {
	case field(head, "Transfer-Encoding") != nil:
		return more, chunks(w, in)
	case size >= 0:
		_, err = io.CopyN(w, in, size)
		return more, err
	}
	_, err = io.Copy(w, in)
	return false, err
}

// chunks passes a chunked body.
func chunks(w io.Writer, in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		if _, werr := w.Write(line); err != nil || werr != nil {
			return errors.Join(err, werr)
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return errMessage
		}
		if _, err := io.CopyN(w, in, size+2); err != nil || size == 0 {
			return err
		}
	}
}
