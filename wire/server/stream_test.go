package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// live is a process as a test's Runner sees it.
type live struct {
	*fixture
	instance sandbox.InstanceID
	id       wire.ProcessID
	opened   wire.Opened
}

func (f *fixture) spawn(instance sandbox.InstanceID, argv ...string) *live {
	f.Helper()
	l := &live{fixture: f, instance: instance, id: wire.NewProcessID()}
	l.opened = ok[wire.Opened](f, f.call(wire.OpenProcess, "", l.request(argv...)))
	return l
}

func (l *live) request(argv ...string) wire.OpenProcessRequest {
	return wire.OpenProcessRequest{InstanceID: l.instance, ProcessID: l.id, Process: sandbox.ProcessRequest{
		Executable: argv[0], Arguments: append([]string{}, argv[1:]...), WorkingDirectory: "/", Environment: map[string]string{},
	}}
}

// stream is one attachment.
type stream struct {
	*live
	resp   *http.Response
	r      *wire.Reader
	cancel context.CancelFunc
}

func (l *live) open(cursor, waitMS int64) *stream {
	l.Helper()
	return l.ask(wire.StreamRequest{
		InstanceID: l.instance, ProcessID: l.id, AttachID: wire.NewAttachID(), Cursor: cursor, WaitMS: waitMS, HeartbeatMS: 1000,
	})
}

// ask sends one request for a stream.
func (l *live) ask(m wire.StreamRequest) *stream {
	l.Helper()
	body, err := wire.Encode(m)
	l.must(err)
	ctx, cancel := context.WithCancel(l.Context())
	l.Cleanup(cancel)
	resp, err := l.http.Do(l.fixture.request(ctx, wire.ProcessStream, "", bytes.NewReader(body), int64(len(body))))
	l.must(err)
	l.Cleanup(func() { resp.Body.Close() })
	return &stream{l, resp, wire.NewReader(resp.Body), cancel}
}

// attach opens a stream that must be accepted.
func (l *live) attach(cursor int64) *stream {
	l.Helper()
	s := l.open(cursor, 0)
	if s.resp.StatusCode != 200 {
		body, _ := io.ReadAll(s.resp.Body)
		l.Fatalf("attach: status %d, %s", s.resp.StatusCode, body)
	}
	if f := s.next(); f.Type != wire.TypeOpen {
		l.Fatalf("first frame %x", f.Type)
	}
	return s
}

// refused is what came in place of a stream.
func (s *stream) refused() response {
	s.Helper()
	body, err := io.ReadAll(s.resp.Body)
	s.must(err)
	return response{s.resp.StatusCode, s.resp.Header, body}
}

// next is the next frame that is not a ping.
func (s *stream) next() wire.Frame {
	s.Helper()
	for {
		f, err := s.r.Next()
		if err != nil {
			s.Fatalf("frame: %v", err)
		}
		if f.Type != wire.TypePing {
			return f
		}
	}
}

// rest is everything until the stream ends, by kind.
type rest struct {
	out, err []byte
	outEnd   *wire.OutEnd
	errEnd   *wire.ErrEnd
	exit     *wire.Exit
	detach   *wire.Detach
	low      *wire.Truncated
	failure  error
	order    []wire.Type
	end      error // nil, or what broke the stream
}

// drain reads to the end. at is the offset that the next byte must have.
func (s *stream) drain(at int64) (got rest) {
	s.Helper()
	errAt := int64(0)
	for {
		f, err := s.r.Next()
		if err != nil {
			if err != io.EOF {
				got.end = err
			}
			return got
		}
		got.order = append(got.order, f.Type)
		switch f.Type {
		case wire.TypeOpen:
			s.Fatal("a second open frame")
		case wire.TypeOut:
			offset, data, err := f.Output()
			s.must(err)
			if offset != at {
				s.Fatalf("output at %d, want %d", offset, at)
			}
			at += int64(len(data))
			got.out = append(got.out, data...)
		case wire.TypeErr:
			offset, data, err := f.Output()
			s.must(err)
			if offset < errAt {
				s.Fatalf("error at %d twice", offset)
			}
			errAt = offset + int64(len(data))
			got.err = append(got.err, data...)
		case wire.TypeOutEnd:
			got.outEnd = decode[wire.OutEnd](s, f)
		case wire.TypeErrEnd:
			got.errEnd = decode[wire.ErrEnd](s, f)
		case wire.TypeExit:
			got.exit = decode[wire.Exit](s, f)
		case wire.TypeDetach:
			got.detach = decode[wire.Detach](s, f)
		case wire.TypeTruncated:
			got.low = decode[wire.Truncated](s, f)
		case wire.TypeError:
			got.failure, err = wire.DecodeError(f.Payload)
			s.must(err)
		}
	}
}

func decode[M wire.Message](s *stream, f wire.Frame) *M {
	s.Helper()
	m, err := wire.Decode[M](f.Payload)
	s.must(err)
	return &m
}

// complete fails unless the stream came to its end with this exit.
func (s *stream) complete(got rest, code int64) {
	s.Helper()
	if got.outEnd == nil || got.errEnd == nil || got.exit == nil || got.end != nil || got.failure != nil {
		s.Fatalf("not complete: %+v", got)
	}
	if got.exit.ExitCode == nil || *got.exit.ExitCode != code {
		s.Fatalf("exit %+v, want %d", *got.exit, code)
	}
}

func (l *live) send(offset int64, data []byte, end bool) response {
	l.Helper()
	return l.call(wire.ProcessInput, "", wire.InputCall{InstanceID: l.instance, ProcessID: l.id, Offset: offset, End: end}, data...)
}

// feed sends all of data within the credit that it is given, then the end.
func (l *live) feed(data []byte) {
	l.Helper()
	w := wire.Window{InputCredit: l.opened.InputCredit}
	for at := int64(0); at < int64(len(data)); {
		n := min(int64(len(data))-at, w.InputCredit, wire.MaxInputBytes)
		r := l.send(at, data[at:at+n], false)
		if r.status == 429 {
			e := l.wantTag(r, wire.TagInputBufferFull)
			w = wire.Window{InputOffset: e.InputOffset, InputCredit: e.InputCredit}
			continue
		}
		w = ok[wire.Window](l.fixture, r)
		at = w.InputOffset
	}
	ok[wire.Window](l.fixture, l.send(int64(len(data)), nil, true))
}

func (l *live) exit() wire.Waited {
	l.Helper()
	return ok[wire.Waited](l.fixture, l.call(wire.ProcessWait, "", wire.WaitRequest{InstanceID: l.instance, ProcessID: l.id, WaitMS: 20_000}))
}

func (l *live) destroy() {
	l.Helper()
	ok[wire.Empty](l.fixture, l.call(wire.ProcessDestroy, "", wire.ProcessRequest{InstanceID: l.instance, ProcessID: l.id}))
}

func (l *live) running() bool {
	l.Helper()
	return ok[wire.Waited](l.fixture, l.call(wire.ProcessWait, "", wire.WaitRequest{InstanceID: l.instance, ProcessID: l.id})).Running
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func TestAProcessStreamsBothWays(t *testing.T) {
	f := newFixture(t, nil)
	l := f.spawn(f.active(), "sh", "-c", "cat; echo bad >&2; exit 3")
	s := l.attach(0)
	data := randomBytes(3 << 20)
	copy(data, "\x00\xff\r\n\xc3\x28") // W86: bytes are bytes
	done := make(chan rest, 1)
	go func() { done <- s.drain(0) }()
	l.feed(data)
	got := <-done
	s.complete(got, 3)
	if !bytes.Equal(got.out, data) || string(got.err) != "bad\n" {
		t.Errorf("%d bytes out, %q err", len(got.out), got.err)
	}
	if got.outEnd.Digest != digestOf(data) || got.outEnd.Offset != int64(len(data)) || got.outEnd.Forced {
		t.Errorf("%+v", *got.outEnd)
	}
}

func TestW49TwentyFourMiBThroughAHundredCuts(t *testing.T) {
	// A reader that is cut as often as this falls behind a flood: the window holds
	// all of it.
	f := newFixture(t, func(o *Options) { o.OutputWindow = 32 << 20 })
	l := f.spawn(f.active(), "cat")
	data := randomBytes(24 << 20)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		w := wire.Window{InputCredit: l.opened.InputCredit}
		for at := int64(0); at < int64(len(data)); {
			n := min(int64(len(data))-at, w.InputCredit, 1+int64(mathrand.IntN(wire.MaxInputBytes)))
			back := min(at, int64(mathrand.IntN(1000)))
			back = min(back, wire.MaxInputBytes-n)
			r := l.send(at-back, data[at-back:at+n], false) // what was taken comes again, as after a lost answer
			if r.status == 429 {
				e := l.wantTag(r, wire.TagInputBufferFull)
				w = wire.Window{InputOffset: e.InputOffset, InputCredit: e.InputCredit}
				continue
			}
			w = l.window(r)
			at = w.InputOffset
		}
		l.window(l.send(int64(len(data)), nil, true))
	}()
	var out []byte
	cuts := 0
	for ended := false; !ended; {
		s := l.attach(int64(len(out)))
		limit := len(out) + mathrand.IntN(len(data)/50)
		for {
			fr, err := s.r.Next()
			l.must(err)
			if fr.Type == wire.TypeOut {
				at, b, err := fr.Output()
				l.must(err)
				if at != int64(len(out)) {
					t.Fatalf("at %d, want %d", at, len(out))
				}
				out = append(out, b...)
				if len(out) > limit && cuts < 100 {
					cuts++
					break
				}
			}
			if fr.Type == wire.TypeOutEnd {
				end := decode[wire.OutEnd](s, fr)
				if end.Digest != digestOf(data) || end.Offset != int64(len(data)) {
					t.Errorf("%+v", end)
				}
				ended = true
				break
			}
		}
		s.cancel()
		s.resp.Body.Close()
	}
	<-fed
	if !bytes.Equal(out, data) || cuts < 40 {
		t.Errorf("%d bytes, %d cuts", len(out), cuts)
	}
}
