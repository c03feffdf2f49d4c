package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// operated serves the control of a gateway.
func operated(t *testing.T, upstream http.HandlerFunc) (*standing, Operator) {
	t.Helper()
	s := begin(t, upstream, nil)
	path := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- (&Control{Gateway: s.gateway, Store: s.leases, Address: "unix:/run/gateway"}).Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the control does not end")
		}
	})
	return s, Operator{path}
}

// A lease from its grant to its end, as an operator asks for it: its token is good
// in between, and what it used is counted.
func TestControl(t *testing.T) {
	s, o := operated(t, scripted)
	asked := Asked{RunID: "run_9", LeaseID: "lea_9", LeaseEpoch: 1, ExpiresAt: sandbox.At(s.clock.now.Add(time.Hour)), Models: []string{"m"}}
	g, err := o.Lease(t.Context(), asked)
	if err != nil || g.Gateway != "unix:/run/gateway" {
		t.Fatalf("%+v, %v", g, err)
	}
	s.token = g.Token
	ask := func(want int) {
		t.Helper()
		if status, _, body, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`)); err != nil || status != want {
			t.Errorf("%d %q, %v", status, body, err)
		}
	}
	ask(200)
	s.log.line(t, 1)
	st, err := o.Status(t.Context())
	if err != nil || fmt.Sprint(st.Upstreams) != "[anthropic openai]" || len(st.Leases) != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	if l := st.Leases[1]; l.RunID != "run_9" || !l.Live || l.Used.Requests != 1 || l.ExpiresAt != asked.ExpiresAt {
		t.Errorf("%+v", l)
	}
	for range 2 { // the second finds it ended
		e, err := o.End(t.Context(), Ending{"lea_9", 1})
		if err != nil || !e.Settled || e.Used.Requests != 1 || e.Used.OutputTokens == 0 {
			t.Errorf("%+v, %v", e, err)
		}
		ask(401)
	}
	if st, err := o.Status(t.Context()); err != nil || st.Leases[1].Live || strings.Contains(fmt.Sprint(st), route.TokenPrefix) {
		t.Errorf("%+v, %v", st, err)
	}
}

// An end does not wait for the next look at leases: what streams is cut, and
// counted before the answer.
func TestControlEndsWhatRuns(t *testing.T) {
	s, o := operated(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, anthropicStart)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	response, err := plain.RoundTrip(s.request("POST", "/v1/messages", `{"model":"m","stream":true}`))
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, len(anthropicStart))); err != nil {
		t.Fatal(err)
	}
	e, err := o.End(t.Context(), Ending{"lea_1", 1}) // the fake clock stands
	if err != nil || !e.Settled || e.Used.Requests != 1 || e.Used.Estimated != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if rest, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("it came to its end: %q", rest)
	}
}

// Every refusal says which rule and nothing of the rest; none of it is found on
// the address where requests come.
func TestControlRefuses(t *testing.T) {
	s, o := operated(t, scripted)
	later := sandbox.At(s.clock.now.Add(time.Hour))
	for what, c := range map[string]struct {
		asked  Asked
		status int
		said   string
	}{
		"no run":    {Asked{LeaseID: "l", LeaseEpoch: 1, ExpiresAt: later}, 400, "run_id"},
		"no time":   {Asked{RunID: "r", LeaseID: "l", LeaseEpoch: 1, ExpiresAt: "tomorrow"}, 400, "tomorrow"},
		"a fence":   {Asked{RunID: "run_1", LeaseID: "lea_1", LeaseEpoch: 1, ExpiresAt: later}, 409, "expected an epoch of at least 2, got 1"},
		"a run's":   {Asked{RunID: "run_2", LeaseID: "lea_1", LeaseEpoch: 2, ExpiresAt: later}, 400, "run_id"},
		"a ceiling": {Asked{RunID: "r", LeaseID: "l", LeaseEpoch: 1, ExpiresAt: later, Ceiling: Ceiling{AtOnce: -1}}, 400, "ceiling"},
	} {
		_, err := o.Lease(t.Context(), c.asked)
		if e, ok := errors.AsType[*ControlError](err); !ok || e.Status != c.status || !strings.Contains(e.Error(), c.said) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := o.End(t.Context(), Ending{"nobody's", 1}); err == nil || !strings.Contains(err.Error(), "no live lease") {
		t.Error(err)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/lease", ""}, {"POST", "/status", "{}"}, {"GET", "/status?x", ""}, {"GET", "/", ""}, {"DELETE", "/end", ""},
		{"POST", "/end", `{"lease_id":"a","lease_id":"b"}`}, {"POST", "/end", `{"lease":"a"}`}, {"POST", "/end", `{"lease_id":"a"}`}, {"POST", "/lease", `[]`}, {"POST", "/end", strings.Repeat(" ", maxControlBytes+1)},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://gateway"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
		}}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 400 && response.StatusCode != 404 {
			t.Errorf("%s %s: %s", c.method, c.path, response.Status)
		}
	}
	for _, path := range []string{pathLease, pathEnd, pathStatus} {
		method := "POST"
		if path == pathStatus {
			method = "GET"
		}
		if status, _, body, err := s.ask(s.request(method, path, `{}`)); err != nil || status != 404 {
			t.Errorf("%s where requests come: %d %q, %v", path, status, body, err)
		}
	}
	if _, err := (Operator{filepath.Join(t.TempDir(), "none")}).Status(t.Context()); err == nil {
		t.Error("nobody answered")
	}
}

// A listener whose other side answers nonsense, or nothing, is an error in time.
func TestOperatorHearsNonsense(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{"/lease": `{"token":"x"}`, "/end": `<html>`, "/status": `{"error":"a"}`}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, answers[r.URL.Path])
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	o := Operator{path}
	_, leaseErr := o.Lease(t.Context(), Asked{})
	_, endErr := o.End(t.Context(), Ending{"l", 1})
	_, statusErr := o.Status(t.Context())
	for _, err := range []error{leaseErr, endErr, statusErr} {
		if _, ok := errors.AsType[*ControlError](err); !ok {
			t.Errorf("%v", err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Status(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Whatever is asked, the answer is one of the statuses, in canonical JSON, and a
// lease is granted only to who asked for one in full.
func FuzzControl(f *testing.F) {
	f.Add("POST", "/lease", `{"run_id":"r","lease_id":"l","lease_epoch":1,"expires_at":"2030-01-01T00:00:00.000Z"}`)
	f.Add("POST", "/end", `{"lease_id":"l","lease_epoch":1}`)
	f.Add("GET", "/status", ``)
	f.Add("POST", "/lease", `{"run_id":"r","lease_id":"l","lease_epoch":1,"expires_at":"2030-01-01T00:00:00.000Z","models":["m"],"ceiling":{"at_once":1}}`)
	s := openStore(f, f.TempDir(), nil)
	k := key(f)
	g, err := New(Options{Upstreams: []Upstream{{route.OpenAI, "https://a.test"}}, Keys: map[route.Style]Key{route.OpenAI: k}, Leases: s, Counts: s, Log: io.Discard})
	if err != nil {
		f.Fatal(err)
	}
	c := &Control{Gateway: g, Store: s, Address: "127.0.0.1:1"}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Method, r.RequestURI = method, path
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		var granted Grant
		if method == "POST" && path == "/lease" && w.Code == 200 {
			if err := canonical.Decode(w.Body.Bytes(), &granted); err != nil || !strings.HasPrefix(granted.Token, route.TokenPrefix) {
				t.Errorf("%q: %s, %v", body, w.Body, err)
			}
			return
		}
		if strings.Contains(w.Body.String(), route.TokenPrefix) && !strings.Contains(body, route.TokenPrefix) {
			t.Errorf("%s %s %q: a token in %s", method, path, body, w.Body)
		}
		switch w.Code {
		case 200, 400, 404, 409:
		default:
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}
