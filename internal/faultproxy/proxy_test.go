package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/faultproxy"
)

// served is a server that echoes, the proxy before it, and a client of the
// proxy that delivers nothing twice by itself.
type served struct {
	*faultproxy.Proxy
	calls, broken atomic.Int64
	client        *http.Client
}

func serve(t *testing.T, script faultproxy.Script) *served {
	t.Helper()
	before := runtime.NumGoroutine()
	s := &served{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.Header().Set("Connection", "close")
			w.WriteHeader(413)
			io.WriteString(w, "no")
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.broken.Add(1)
			return
		}
		s.calls.Add(1)
		if r.URL.Path == "/chunked" {
			w.WriteHeader(200)
			for len(body) > 0 {
				n := min(1000, len(body))
				w.Write(body[:n])
				w.(http.Flusher).Flush()
				body = body[n:]
			}
			return
		}
		w.Write(body)
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Proxy = faultproxy.Listen(l, faultproxy.Options{Script: script, Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", h.Listener.Addr().String())
	}})
	s.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		h.Close()
		for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(end) {
				buf := make([]byte, 1<<20)
				t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
			}
		}
	})
	return s
}

func (s *served) post(path string, body []byte) (int, []byte, error) {
	r, err := s.client.Post("http://"+s.Addr().String()+path, "text/plain", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	return r.StatusCode, got, err
}

func TestPassesWhatNoScriptNames(t *testing.T) {
	s := serve(t, func(faultproxy.Exchange) faultproxy.Fault { return faultproxy.Fault{} })
	for n := range 50 {
		for _, path := range []string{"/plain", "/chunked"} {
			body := bytes.Repeat([]byte(fmt.Sprint(n)), n*n*7)
			if status, got, err := s.post(path, body); status != 200 || err != nil || !bytes.Equal(got, body) {
				t.Fatal(path, n, status, len(got), err)
			}
		}
	}
	if len(s.Faults()) != 0 || s.Exchanges() != 100 {
		t.Error(s.Faults(), s.Exchanges())
	}
}

func TestEachFault(t *testing.T) {
	body := bytes.Repeat([]byte("abcdefgh"), 1000)
	for _, c := range []struct {
		fault   faultproxy.Fault
		status  int   // of the faulty exchange, 0 where it fails
		whole   bool  // its body comes whole
		calls   int64 // that reach the server
		partial int64 // requests that reach it broken
	}{
		{fault: faultproxy.Fault{Kind: faultproxy.Refuse}},
		{fault: faultproxy.Fault{Kind: faultproxy.CutRequest, After: 1000}, partial: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.CutResponse}, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.CutResponse, After: 500}, status: 200, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.CutResponse, After: 1 << 20}, status: 200, whole: true, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Lose}, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Untyped}, status: 502, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Double}, status: 200, whole: true, calls: 2},
		{fault: faultproxy.Fault{Kind: faultproxy.Echo}, status: 200, whole: true, calls: 2},
		{fault: faultproxy.Fault{Kind: faultproxy.HalfClose}, status: 200, whole: true, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Garbage}, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Stall, After: 500}, status: 200, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Drip, After: 100}, status: 200, whole: true, calls: 1},
		{fault: faultproxy.Fault{Kind: faultproxy.Stale}, status: 200, whole: true, calls: 1},
	} {
		for _, path := range []string{"/plain", "/chunked"} {
			t.Run(fmt.Sprint(c.fault.Kind, c.fault.After, path), func(t *testing.T) {
				s := serve(t, faultproxy.First(path, c.fault))
				s.client.Timeout = 300 * time.Millisecond // ends what stalls
				status, got, err := s.post(path, body)
				if status != c.status || (err == nil && bytes.Equal(got, body)) != c.whole {
					t.Errorf("status %d, %d bytes, %v", status, len(got), err)
				}
				s.client.Timeout = 0
				want := map[faultproxy.Kind]int{c.fault.Kind: 1}
				if c.fault.After > 1<<19 {
					want = map[faultproxy.Kind]int{}
				}
				for end := time.Now().Add(5 * time.Second); s.calls.Load() != c.calls || s.broken.Load() != c.partial || !reflect.DeepEqual(s.Faults(), want); runtime.Gosched() {
					if time.Now().After(end) {
						t.Fatalf("%d calls, %d broken, %v", s.calls.Load(), s.broken.Load(), s.Faults())
					}
				}
				// What comes after is not touched, on a connection that the proxy has not
				// just closed.
				s.client.CloseIdleConnections()
				if status, got, err := s.post(path, body); status != 200 || err != nil || !bytes.Equal(got, body) {
					t.Errorf("then %d, %d bytes, %v", status, len(got), err)
				}
			})
		}
	}
}

func TestCutsAtEveryByte(t *testing.T) {
	for after := int64(0); ; after++ {
		s := serve(t, faultproxy.On("/chunked", faultproxy.Fault{Kind: faultproxy.CutResponse, After: after}))
		_, got, err := s.post("/chunked", []byte("hello"))
		if err == nil {
			if string(got) != "hello" || after < 100 {
				t.Errorf("%q after %d", got, after)
			}
			return
		}
		if !strings.HasPrefix("hello", string(got)) {
			t.Errorf("%q after %d", got, after)
		}
	}
}

// A server may refuse a request that it does not read; its answer comes through.
func TestAnEarlyAnswerComesThrough(t *testing.T) {
	s := serve(t, func(faultproxy.Exchange) faultproxy.Fault { return faultproxy.Fault{} })
	status, got, err := s.post("/refused", make([]byte, 16<<20))
	if status != 413 || string(got) != "no" || err != nil {
		t.Error(status, got, err)
	}
}

func TestSeededRepeats(t *testing.T) {
	script := func(seed uint64) (all []faultproxy.Fault) {
		s := faultproxy.Seeded(seed, 0.5, 1000, faultproxy.CutRequest, faultproxy.Lose)
		for n := range 200 {
			all = append(all, s(faultproxy.Exchange{N: 9 * n, Path: "/x", Nth: n}))
		}
		return all
	}
	if !reflect.DeepEqual(script(1), script(1)) || reflect.DeepEqual(script(1), script(2)) {
		t.Error("the seed does not decide")
	}
	count := 0
	for _, f := range script(1) {
		if f.Kind != faultproxy.Pass {
			count++
		}
		if f.After > 1000 {
			t.Error(f)
		}
	}
	if count < 60 || count > 140 {
		t.Errorf("%d of 200", count)
	}
}

func TestCutEndsWhatIsUnderWay(t *testing.T) {
	s := serve(t, faultproxy.On("/plain", faultproxy.Fault{Kind: faultproxy.Stall}))
	failed := make(chan error)
	go func() {
		_, _, err := s.post("/plain", []byte("x"))
		failed <- err
	}()
	for s.Faults()[faultproxy.Stall] == 0 {
		runtime.Gosched()
	}
	s.Cut()
	if err := <-failed; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
