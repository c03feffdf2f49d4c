package server

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// overHTTP2 serves a puppet process over TLS and HTTP/2.
func overHTTP2(t *testing.T) (*live, *puppet) {
	t.Helper()
	cert, _ := certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	h := &hooked{Provider: memory.New(memory.Options{Clock: memory.NewManual(start)})}
	made := puppets(h)
	s, err := New(Options{Provider: h, Tokens: []string{token}, Clock: newThenClock()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, s, &tls.Config{Certificates: []tls.Certificate{cert}}) }()
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test's own server
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		tr.CloseIdleConnections()
	})
	f := &fixture{T: t, provider: h, s: s, base: "https://" + l.Addr().String(), http: &http.Client{Transport: tr}, lease: wire.Lease{ID: "l", Epoch: 1}, wait: 20 * time.Second}
	process := f.spawn(f.active(), "x")
	return process, <-made
}

func TestTheStreamOverHTTP2(t *testing.T) {
	l, p := overHTTP2(t)
	s := l.attach(0)
	if s.resp.ProtoMajor != 2 || s.resp.TLS.Version != tls.VersionTLS13 {
		t.Errorf("%s, TLS %x", s.resp.Proto, s.resp.TLS.Version)
	}
	l.say(p, "one")
	if f := s.next(); f.Type != wire.TypeOut {
		t.Fatalf("%x", f.Type)
	}
	l.window(l.send(0, []byte("in"), true))
	if got := l.stdin(p, 2); got != "in" {
		t.Errorf("%q", got)
	}
	next := l.attach(0)
	if got := s.drain(3); got.detach == nil || got.detach.Reason != wire.DetachSuperseded {
		t.Errorf("%v %v", got.order, got.end)
	}
	p.close(0)
	next.complete(next.drain(0), 0)
}

func TestAStuckReaderOverHTTP2IsLetGoOf(t *testing.T) {
	l, p := overHTTP2(t)
	l.attach(0)
	go func() { _, _ = p.outW.Write(make([]byte, 7<<20)) }() // more than the flow control lets through
	l.taken(7 << 20)
	l.lease.Epoch = 2
	next := l.attach(7 << 20)
	for deadline := time.Now().Add(10 * time.Second); handlersOf("processStream") > 1; {
		if time.Now().After(deadline) {
			t.Fatal("the old reader is still served")
		}
	}
	p.close(0)
	next.complete(next.drain(7<<20), 0)
}

func TestCloseCancelsWhatDoesNotEnd(t *testing.T) {
	h, entered := &hooked{Provider: memory.New(memory.Options{Clock: memory.NewManual(start)})}, make(chan struct{})
	h.execute = func(ctx context.Context, _ sandbox.InstanceID, _ sandbox.Command) (sandbox.Settlement, error) {
		close(entered)
		<-ctx.Done()
		return sandbox.Settlement{}, ctx.Err()
	}
	f := newFixture(t, hook(h))
	id := f.active()
	f.wait = 0
	op := wire.NewOperationID()
	if r := f.call(wire.Execute, op, wire.ExecuteCall{InstanceID: id, Command: command("x")}); r.status != http.StatusAccepted {
		t.Fatalf("%d", r.status)
	}
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.s.Close(ctx); err == nil {
		t.Error("says that all had time to end")
	}
	if err := f.s.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := f.s.journal.result(f.s.journal.find(op)); err != nil {
		t.Error(err) // settled, as indeterminate
	}
	f.wantTag(f.call(wire.Capabilities, "", wire.Empty{}), wire.TagOverloaded)
}

// FuzzServeHTTP gives bodies of any kind to every endpoint: each is answered
// with a typed body, and nothing is allocated but by a whole provision.
func FuzzServeHTTP(f *testing.F) {
	for i := range wire.Endpoints() {
		f.Add(byte(i), []byte(`{"instance_id":"i"}`), "1")
		f.Add(byte(i), []byte("\x01\x00\x00\x00\x02{}\x02\x00\x00\x00\x01x"), "01")
	}
	m := memory.New(memory.Options{Clock: memory.NewManual(start)})
	s, err := New(Options{Provider: m, Authenticate: Anybody, Clock: newThenClock()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte, epoch string) {
		all := wire.Endpoints()
		e := all[int(which)%len(all)]
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, e.Path(), strings.NewReader(string(body)))
		traits, _ := e.Traits()
		wire.RequestHeader{Lease: wire.Lease{ID: "l"}, Operation: wire.NewOperationID()}.Set(r.Header, e)
		if traits.Lease {
			r.Header.Set(wire.HeaderLeaseEpoch, epoch)
		}
		r.Header.Set("Content-Type", wire.MediaJSON)
		if traits.FramedRequest {
			r.Header.Set("Content-Type", wire.MediaFrames)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 400 {
			if failure, err := wire.DecodeError(w.Body.Bytes()); err != nil || wire.Status(failure) != w.Code {
				t.Errorf("%d %s: %v", w.Code, w.Body.Bytes(), err)
			}
		}
		if left := m.Census(); len(left) != 0 && e != wire.Provision {
			t.Errorf("left %v", left)
		}
	})
}
