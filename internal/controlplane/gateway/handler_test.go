package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// Each shape arrives at its fixed upstream with the key in the token's place and
// nothing else of the workload's but the headers of the list.
func TestForwards(t *testing.T) {
	type seen struct {
		line   string
		header http.Header
		body   string
	}
	got := make(chan seen, 1)
	s := begin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method + " " + r.RequestURI, r.Header, string(body)}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Anthropic-Organization-Id", "org")
		w.Header().Set("Request-Id", "req_1")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"usage":{"input_tokens":7,"output_tokens":3}}`)
	}, nil)
	want := Usage{}
	for i, c := range []struct {
		method, path, at string
		style            route.Style
		metered          bool
	}{
		{"POST", "/v1/messages", "/anthropic/v1/messages", route.Anthropic, true},
		{"POST", "/v1/messages?beta=true", "/anthropic/v1/messages?beta=true", route.Anthropic, true},
		{"POST", "/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens", route.Anthropic, false},
		{"POST", "/v1/chat/completions", "/openai/v1/chat/completions", route.OpenAI, true},
		{"POST", "/v1/responses", "/openai/v1/responses", route.OpenAI, true},
		{"GET", "/v1/models", "/openai/v1/models", route.OpenAI, false},
		{"GET", "/v1/models", "/anthropic/v1/models", route.Anthropic, false},
	} {
		body := `{"model":"m","x":"y"}`
		if c.method == "GET" {
			body = ""
		}
		r := s.request(c.method, c.path, body)
		if c.style == route.Anthropic {
			r.Header.Set("Anthropic-Version", "2023-06-01")
		}
		for _, h := range []string{"Cookie", "X-Forwarded-For", "Openai-Organization", "Idempotency-Key", "Accept-Encoding"} {
			r.Header.Set(h, "workload")
		}
		status, header, text, err := s.ask(r)
		if err != nil || status != 200 || !strings.HasPrefix(text, `{"usage"`) || header.Get("Request-Id") != "req_1" ||
			header.Get("Set-Cookie")+header.Get("Anthropic-Organization-Id") != "" {
			t.Errorf("%s: %d %v %q, %v", c.path, status, header, text, err)
		}
		g := <-got
		k := g.header.Get("X-Api-Key")
		if c.style == route.OpenAI {
			k = strings.TrimPrefix(g.header.Get("Authorization"), "Bearer ")
		}
		if g.line != c.method+" "+c.at || g.body != body || k != secretKey {
			t.Errorf("%s: %+v", c.path, g)
		}
		if all := fmt.Sprint(g.header); strings.Contains(all, s.token) || strings.Contains(all, "workload") || strings.Count(all, secretKey) != 1 {
			t.Errorf("%s: %v", c.path, g.header)
		}
		l := s.log.line(t, i+1)
		one := Usage{Requests: 1, UpBytes: int64(len(body)), DownBytes: int64(len(text))}
		if c.metered {
			one.InputTokens, one.OutputTokens = 7, 3
		}
		if l.Usage != one || l.RunID != "run_1" || l.LeaseEpoch != 1 || l.Style != c.style || l.Status != 200 || body != "" && l.Model != "m" {
			t.Errorf("%s: %+v", c.path, l)
		}
		want.add(one)
	}
	if s.used("run_1") != want {
		t.Errorf("%+v", s.used("run_1"))
	}
	for _, secret := range []string{secretKey, s.token, "workload"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

// A13: whoever has no live lease gets 401, and nothing of it goes upstream.
func TestUnauthorized(t *testing.T) {
	s := begin(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	stale := s.token
	next := s.lease
	next.LeaseEpoch = 2
	fresh, err := s.leases.Grant(next)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := s.leases.Grant(Lease{RunID: "run_2", LeaseID: "lea_2", LeaseEpoch: 1, ExpiresAt: s.clock.now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.leases.Revoke("lea_2", 1); err != nil {
		t.Fatal(err)
	}
	late, err := s.leases.Grant(Lease{RunID: "run_3", LeaseID: "lea_3", LeaseEpoch: 1, ExpiresAt: s.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		set    func(http.Header)
		reason route.Reason
	}{
		"a stale epoch":      {func(h http.Header) { h.Set("X-Api-Key", stale) }, route.ReasonLease},
		"a revoked lease":    {func(h http.Header) { h.Set("X-Api-Key", gone) }, route.ReasonLease},
		"a lease that ended": {func(h http.Header) { h.Set("X-Api-Key", late) }, route.ReasonExpired},
		"nobody's token":     {func(h http.Header) { h.Set("X-Api-Key", route.NewToken()) }, route.ReasonLease},
		"no token":           {func(h http.Header) { h.Del("X-Api-Key") }, route.ReasonToken},
		"a provider's key":   {func(h http.Header) { h.Set("X-Api-Key", secretKey) }, route.ReasonToken},
		"two that differ":    {func(h http.Header) { h.Set("X-Api-Key", fresh); h.Set("Authorization", "Bearer "+stale) }, route.ReasonToken},
		"the digest":         {func(h http.Header) { h.Set("X-Api-Key", route.TokenDigest(fresh)) }, route.ReasonToken},
	} {
		r := s.request("POST", "/v1/messages", `{"model":"m"}`)
		c.set(r.Header)
		status, header, body, err := s.ask(r)
		if err != nil || status != 401 || code(body) != c.reason || header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %q, %v", what, status, body, err)
		}
	}
	if u := s.used("run_1"); u != (Usage{}) {
		t.Errorf("%+v", u)
	}
	if _, err := s.leases.Grant(s.lease); err == nil {
		t.Error("an old epoch was granted again")
	}
}

// What is wrong with a request is said before anything goes upstream.
func TestRefuses(t *testing.T) {
	s := begin(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, func(o *Options, l *Lease) {
		o.Limits.BodyBytes = 1000
		l.Models = []string{"small"}
		o.Upstreams = o.Upstreams[:1]
	})
	for what, c := range map[string]struct {
		method, path, body string
		status             int
		reason             route.Reason
	}{
		"another path":       {"POST", "/v1/files", "{}", 404, route.ReasonPath},
		"escaped":            {"POST", "/v1/%6dessages", "{}", 404, route.ReasonPath},
		"a query":            {"GET", "/v1/models?limit=1", "", 404, route.ReasonPath},
		"another method":     {"DELETE", "/v1/messages", "", 405, route.ReasonMethod},
		"another model":      {"POST", "/v1/messages", `{"model":"large"}`, 403, route.ReasonModel},
		"no model":           {"POST", "/v1/messages", `{}`, 403, route.ReasonModel},
		"two models":         {"POST", "/v1/messages", `{"model":"small","model":"large"}`, 400, route.ReasonBody},
		"escaped twin":       {"POST", "/v1/messages", `{"model":"small","mod\u0065l":"large"}`, 400, route.ReasonBody},
		"another case":       {"POST", "/v1/messages", `{"model":"small","Model":"large"}`, 400, route.ReasonBody},
		"a model of numbers": {"POST", "/v1/messages", `{"model":1}`, 400, route.ReasonBody},
		"no object":          {"POST", "/v1/messages", `["model"]`, 400, route.ReasonBody},
		"no JSON":            {"POST", "/v1/messages", `model=small`, 400, route.ReasonBody},
		"half of it":         {"POST", "/v1/messages", `{"model":"small"`, 400, route.ReasonBody},
		"two of them":        {"POST", "/v1/messages", `{"model":"small"}{"model":"large"}`, 400, route.ReasonBody},
		"nothing":            {"POST", "/v1/messages", "", 400, route.ReasonBody},
		"too much":           {"POST", "/v1/messages", strings.Repeat(" ", 1001), 413, route.ReasonTooLarge},
		"no upstream":        {"POST", "/v1/responses", `{"model":"small"}`, 404, route.ReasonNoRoute},
	} {
		status, _, body, err := s.ask(s.request(c.method, c.path, c.body))
		if err != nil || status != c.status || code(body) != c.reason {
			t.Errorf("%s: %d %q, %v", what, status, body, err)
		}
	}
	r := s.request("POST", "/v1/messages", strings.Repeat(" ", 1001))
	r.ContentLength = -1
	if status, _, body, err := s.ask(r); err != nil || status != 413 {
		t.Errorf("%d %q, %v", status, body, err)
	}
	r = s.request("POST", "/v1/messages", `{"model":"small"}`)
	r.Header.Add("Anthropic-Version", "2024")
	if status, _, body, err := s.ask(r); err != nil || status != 400 || code(body) != route.ReasonHeaders {
		t.Errorf("%d %q, %v", status, body, err)
	}
	r = s.request("POST", "/v1/messages", `{"model":"small"}`)
	r.Header.Set("Content-Encoding", "gzip")
	if status, _, body, err := s.ask(r); err != nil || status != 415 {
		t.Errorf("%d %q, %v", status, body, err)
	}
	if len(s.gateway.ledger.runs) != 0 || s.gateway.ledger.held != 0 || s.gateway.ledger.running != 0 {
		t.Errorf("%+v", &s.gateway.ledger)
	}
}

// Ceilings refuse once they are reached, and what runs counts.
func TestCeilings(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := begin(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-goOn
		fmt.Fprint(w, `{"usage":{"input_tokens":10,"output_tokens":10}}`)
	}, func(_ *Options, l *Lease) { l.Ceiling = Ceiling{Requests: 3, OutputTokens: 20, AtOnce: 1} })
	done := make(chan int)
	ask := func() {
		status, _, _, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`))
		if err != nil {
			t.Error(err)
		}
		done <- status
	}
	refused := func(reason route.Reason) {
		t.Helper()
		status, _, body, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`))
		if err != nil || status != 429 || code(body) != reason {
			t.Errorf("%d %q, %v", status, body, err)
		}
	}
	for i := range 2 {
		go ask()
		<-begun
		refused(route.ReasonLimit)
		goOn <- struct{}{}
		if status := <-done; status != 200 {
			t.Error(status)
		}
		s.log.line(t, 2*i+2) // the client has its answer before the place is free
	}
	refused(route.ReasonCeiling) // of output tokens
	if u := s.used("run_1"); u.OutputTokens != 20 || u.Requests != 2 {
		t.Errorf("%+v", u)
	}
	if len(s.gateway.ledger.runs) != 0 {
		t.Errorf("what has no request under way is not kept: %+v", s.gateway.ledger.runs)
	}
}

// Failures of the upstream are told in the form of the APIs; nothing of its
// refusal of the key, and nothing that is no JSON, is passed on.
func TestUpstreamFails(t *testing.T) {
	quota := `{"type":"error","error":{"type":"rate_limit_error","message":"quota"}}`
	for what, c := range map[string]struct {
		upstream http.HandlerFunc
		status   int
		reason   route.Reason
		body     string
	}{
		"a limit": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
			fmt.Fprint(w, quota)
		}, 429, "", quota},
		"a refused key": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":{"message":"Incorrect API key: `+secretKey+`"}}`)
		}, 502, route.ReasonKey, ""},
		"a forbidden account": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secretKey, http.StatusForbidden) }, 502, route.ReasonKey, ""},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(503)
			fmt.Fprint(w, "<html>")
		}, 503, route.ReasonUpstream, ""},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.test/", http.StatusFound)
		}, 502, route.ReasonUpstream, ""},
		"an encoding": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "x")
		}, 502, route.ReasonUpstream, ""},
		"a broken encoding": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "not gzip, but long enough")
		}, 502, route.ReasonUpstream, ""},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, route.ReasonUpstream, ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := begin(t, c.upstream, nil)
			status, header, body, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`))
			if err != nil || status != c.status || code(body) != c.reason || c.body != "" && body != c.body || header.Get("Location") != "" {
				t.Errorf("%d %q, %v", status, body, err)
			}
			if (what == "a limit" || what == "a page") != (header.Get("Retry-After") == "7") {
				t.Errorf("%v", header)
			}
			l := s.log.line(t, 1)
			if strings.Contains(body, secretKey) || l.Usage.Requests != 1 || l.Usage.OutputTokens != 0 {
				t.Errorf("%q, %+v", body, l)
			}
		})
	}
	// Nobody who can speak for the upstream's name is believed without its certificate.
	s := begin(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, func(o *Options, _ *Lease) { o.RootCAs = nil })
	if status, _, body, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`)); err != nil || status != 502 || code(body) != route.ReasonUpstream {
		t.Errorf("%d %q, %v", status, body, err)
	}
}

// A gateway that cannot write down what is used serves nothing.
func TestLogFails(t *testing.T) {
	s := begin(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, nil)
	s.log.line(t, 0)
	s.log.mu.Lock()
	s.log.fail = errNoSpace
	s.log.mu.Unlock()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/v1/nothing", nil)
	s.gateway.ServeHTTP(w, r)
	if w.Code != 503 {
		t.Error(w.Code)
	}
	if err := s.stop(); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Error(err)
	}
	w = httptest.NewRecorder()
	s.gateway.ServeHTTP(w, s.request("GET", "/v1/models", ""))
	if w.Code != 503 {
		t.Error(w.Code)
	}
}
