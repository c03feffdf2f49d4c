package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// A06: each shape, with its query and either credential, arrives at the gateway
// with the headers of the list and no other, and is answered.
func TestForwards(t *testing.T) {
	type seen struct {
		line   string
		header http.Header
		body   string
	}
	got := make(chan seen, 1)
	r := begin(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		got <- seen{q.Method + " " + q.RequestURI + " " + q.Host, q.Header, string(body)}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Request-Id", "req_1")
		w.Header().Set("Anthropic-Organization-Id", "org")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "answer")
	}, nil)
	n := 1
	for _, s := range route.Shapes() {
		for _, query := range []string{"", s.Query} {
			target, body, sent := s.Path, "", ""
			if query != "" {
				target += "?" + query
			}
			if s.Method == "POST" {
				body = `{"model":"m"}`
				sent = "content-type: application/json\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n6;x=y\r\n" + body[:6] + "\r\n7\r\n" + body[6:] + "\r\n0\r\n\r\n"
			} else {
				sent = "\r\n"
			}
			c := r.dial()
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nhOST: %s\r\nAuthorization: Bearer %s\r\nanthropic-version: 2023-06-01\r\n"+
				"Accept-Encoding: gzip\r\nCookie: x\r\nX-Forwarded-For: 1.2.3.4\r\nOpenAI-Organization: o\r\nConnection: upgrade\r\nUpgrade: websocket\r\n%s", s.Method, target, host, r.token, sent)
			in := bufio.NewReader(c)
			if s.Method == "POST" {
				if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
					t.Fatalf("%q, %v", line, err)
				}
				_, _ = in.ReadString('\n')
			}
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil || string(text) != "answer" || response.StatusCode != http.StatusTeapot || response.Header.Get("Request-Id") != "req_1" ||
				response.Header.Get("Set-Cookie")+response.Header.Get("Anthropic-Organization-Id") != "" || !response.Close {
				t.Errorf("%v: %d %v %q, %v", s, response.StatusCode, response.Header, text, err)
			}
			g := <-got
			if g.line != s.Method+" "+target+" gateway" || g.body != body {
				t.Errorf("%q, %q", g.line, g.body)
			}
			want := http.Header{"Authorization": {"Bearer " + r.token}, "Anthropic-Version": {"2023-06-01"}, "Connection": {"close"}}
			if s.Method == "POST" {
				want["Content-Type"] = []string{"application/json"}
			}
			if fmt.Sprint(g.header) != fmt.Sprint(want) {
				t.Errorf("%v", g.header)
			}
			n++
			l := r.log.lines(t, n)[n-1]
			if l.Kind != KindRequest || l.Shape != s.String() || l.Status != http.StatusTeapot || l.End != EndDone || l.UpBytes != int64(len(body)) || l.DownBytes != 6 {
				t.Errorf("%+v", l)
			}
		}
	}
	first := r.log.lines(t, 1)[0]
	if first.Kind != KindStart || !strings.HasPrefix(first.Config, "sha256:") || first.Listen != "tcp "+r.addr || fmt.Sprint(first.Notes) != "[note]" {
		t.Errorf("%+v", first)
	}
}

// A07 and A13: what is not one of the five, not for the relay's own name or not
// of its own run, never reaches the gateway; nothing of it is in the log.
func TestRefuses(t *testing.T) {
	r := begin(t, func(http.ResponseWriter, *http.Request) { t.Error("the gateway was asked") }, func(c *Config) { c.Limits.BodyBytes = 100 })
	good := r.post("/v1/messages", "{}")
	other := route.NewToken()
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in %q", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	const path, length = "POST /v1/messages HTTP/1.1", "Content-Length: 2"
	n := 1
	for what, c := range map[string]struct {
		text   string
		status int
		reason route.Reason
	}{
		"another path":            {swap(path, "POST /v1/secretpath HTTP/1.1"), 404, "path"},
		"dots":                    {swap(path, "POST /v1/../v1/messages HTTP/1.1"), 404, "path"},
		"escaped":                 {swap(path, "POST /v1/%6dessages HTTP/1.1"), 404, "path"},
		"a query":                 {swap(path, "POST /v1/messages?secretpath HTTP/1.1"), 404, "path"},
		"absolute form":           {swap(path, "POST http://"+host+"/v1/messages HTTP/1.1"), 404, "path"},
		"another method":          {swap(path, "PUT /v1/messages HTTP/1.1"), 405, "method"},
		"lower case":              {swap(path, "post /v1/messages HTTP/1.1"), 405, "method"},
		"CONNECT":                 {swap(path, "CONNECT secretpath.test:443 HTTP/1.1"), 405, "method"},
		"OPTIONS":                 {swap(path, "OPTIONS * HTTP/1.1"), 405, "method"},
		"HTTP/1.0":                {swap(path, "POST /v1/messages HTTP/1.0"), 400, "malformed"},
		"HTTP/2":                  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed"},
		"two spaces":              {swap(path, "POST  /v1/messages HTTP/1.1"), 400, "malformed"},
		"TLS":                     {"\x16\x03\x01\x00\x05hello\r\n\r\n", 400, "malformed"},
		"bare LF":                 {strings.ReplaceAll(good, "\r\n", "\n"), 400, "malformed"},
		"one bare LF":             {swap("\r\nX-Api-Key", "\nX-Api-Key"), 400, "malformed"},
		"bare CR":                 {swap("\r\nX-Api-Key", "\rX-Api-Key"), 400, "malformed"},
		"NUL":                     {swap(host, host+"\x00"), 400, "malformed"},
		"folded":                  {swap("X-Api-Key", "X: a\r\n b\r\nX-Api-Key"), 400, "malformed"},
		"space before colon":      {swap("X-Api-Key:", "X-Api-Key :"), 400, "malformed"},
		"no colon":                {swap("X-Api-Key:", "X-Api-Key"), 400, "malformed"},
		"not ASCII":               {swap("application/json", "é"), 400, "malformed"},
		"empty line first":        {"\r\n" + good, 400, "malformed"},
		"another host":            {swap(host, "secrethost.test"), 404, "host"},
		"upper case host":         {swap(host, "RELAY.test:3129"), 404, "host"},
		"no host":                 {swap("Host: "+host+"\r\n", ""), 404, "host"},
		"two hosts":               {swap("Host", "Host: "+host+"\r\nHost"), 400, "headers"},
		"two tokens":              {swap("X-Api-Key", "x-api-key: "+r.token+"\r\nX-Api-Key"), 400, "headers"},
		"two lengths":             {swap("Content-Length", "Content-Length: 2\r\ncontent-length"), 400, "headers"},
		"length and chunked":      {swap(length, length+"\r\nTransfer-Encoding: chunked"), 400, "body"},
		"a list of codings":       {swap(length, "Transfer-Encoding: gzip, chunked"), 400, "body"},
		"identity":                {swap(length, "Transfer-Encoding: identity"), 400, "body"},
		"a signed length":         {swap(length, "Content-Length: +2"), 400, "body"},
		"leading zero":            {swap(length, "Content-Length: 02"), 400, "body"},
		"two in one":              {swap(length, "Content-Length: 2, 2"), 400, "body"},
		"no length":               {swap(length+"\r\n", ""), 411, "body"},
		"compressed":              {swap(length, length+"\r\nContent-Encoding: gzip"), 415, "body"},
		"too long":                {swap(length, "Content-Length: 101"), 413, "too_large"},
		"longer than any":         {swap(length, "Content-Length: 99999999999999999999"), 400, "body"},
		"another run's token":     {swap(r.token, other), 401, "token"},
		"a provider's key":        {swap(r.token, "sk-ant-secrettoken"), 401, "token"},
		"no token":                {swap("X-Api-Key", "X-No-Key"), 401, "token"},
		"expect":                  {swap(length, length+"\r\nExpect: 200-ok"), 417, "headers"},
		"a long line":             {swap(length, length+"\r\nX: "+strings.Repeat("x", lineBytes)), 431, "headers"},
		"many headers":            {swap(length, length+strings.Repeat("\r\nX: x", 64)), 400, "headers"},
		"many headers, different": {swap(length, length+manyHeaders(64)), 431, "headers"},
		"a long head":             {swap(length, length+manyLong(6)), 431, "headers"},
		"GET with a body":         {"GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\nX-Api-Key: " + r.token + "\r\nContent-Length: 1\r\n\r\nx", 400, "body"},
	} {
		response, body, err := r.say(c.text)
		n++
		if err != nil || response.StatusCode != c.status || !strings.Contains(body, `"code":"`+string(c.reason)+`"`) {
			t.Errorf("%s: %v %q, %v", what, response, body, err)
			continue
		}
		if l := r.log.lines(t, n)[n-1]; l.Status != int64(c.status) || l.Reason != c.reason {
			t.Errorf("%s: %+v", what, l)
		}
	}
	for _, secret := range []string{"secret", r.token, other, route.TokenPrefix, "relay.test"} {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

func manyHeaders(n int) (s string) {
	for i := range n {
		s += fmt.Sprintf("\r\nX-%d: x", i)
	}
	return s
}

func manyLong(n int) (s string) {
	for i := range n {
		s += fmt.Sprintf("\r\nX-%d: %s", i, strings.Repeat("x", 3000))
	}
	return s
}

// What the bodies do wrong is found while they are forwarded.
func TestBodies(t *testing.T) {
	r := begin(t, func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err == nil {
			fmt.Fprint(w, "whole")
		}
	}, func(c *Config) { c.Limits.BodyBytes = 100 })
	chunks := func(text string) string {
		return strings.Replace(r.post("/v1/messages", ""), "Content-Length: 0", "Transfer-Encoding: chunked", 1) + text
	}
	for what, c := range map[string]struct {
		text   string
		status int
	}{
		"as long as may be": {chunks("64\r\n" + strings.Repeat("x", 100) + "\r\n0\r\n\r\n"), 200},
		"too long":          {chunks("65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n"), 413},
		"no chunk":          {chunks("xyz\r\n"), 400},
		"a bare LF":         {chunks("1\nx\r\n0\r\n\r\n"), 400},
		"sized":             {r.post("/v1/messages", strings.Repeat("x", 100)), 200},
		"empty":             {r.post("/v1/messages", ""), 200},
	} {
		response, body, err := r.say(c.text)
		if err != nil || response.StatusCode != c.status {
			t.Errorf("%s: %v %q, %v", what, response, body, err)
		}
	}
	// A second request behind the first is nobody's: it is not answered.
	c := r.dial()
	_, _ = io.WriteString(c, r.post("/v1/messages", "{}")+r.post("/v1/messages", "{}"))
	all, _ := io.ReadAll(c)
	if strings.Count(string(all), "HTTP/1.1 ") != 1 {
		t.Errorf("%q", all)
	}
}

// Server-sent events arrive one by one, and so does a body.
func TestStreams(t *testing.T) {
	const events = 5
	step := make(chan string)
	r := begin(t, func(w http.ResponseWriter, q *http.Request) {
		var piece [8]byte
		for range events {
			if _, err := io.ReadFull(q.Body, piece[:]); err != nil {
				t.Error(err)
			}
			step <- string(piece[:])
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range events {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-step
		}
	}, nil)
	c := r.dial()
	fmt.Fprintf(c, "POST /v1/responses HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", host, r.token, events*8)
	for i := range events {
		piece := fmt.Sprintf("piece %2d", i)
		_, _ = io.WriteString(c, piece)
		if got := <-step; got != piece {
			t.Errorf("%q", got)
		}
	}
	in := bufio.NewReader(c)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(response.Body)
	for i := range events {
		line, err := body.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = body.ReadString('\n')
		step <- ""
	}
	if _, err := body.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

// Each way in which an answer ends is told from the others, and only a whole
// answer looks whole.
func TestEnds(t *testing.T) {
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	gone := make(chan struct{}, 1)
	gateway := func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		fmt.Fprint(w, "begin")
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		select {
		case <-goOn:
			panic(http.ErrAbortHandler)
		case <-q.Context().Done():
			gone <- struct{}{}
		}
	}
	for what, c := range map[string]struct {
		do  func(*relaying, net.Conn)
		end End
	}{
		"the gateway breaks off": {func(*relaying, net.Conn) { goOn <- struct{}{} }, EndGateway},
		"the workload goes":      {func(_ *relaying, c net.Conn) { c.Close(); <-gone }, EndClient},
		"nothing moves":          {func(r *relaying, _ net.Conn) { r.clock.advance(601 * time.Second); <-gone }, EndIdle},
		"the lease ends":         {func(r *relaying, _ net.Conn) { r.clock.advance(time.Minute); <-gone }, EndExpired},
		"the relay ends": {func(r *relaying, _ net.Conn) {
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			<-gone
		}, EndStopped},
	} {
		t.Run(what, func(t *testing.T) {
			r := begin(t, gateway, func(l *Config) {
				l.Limits.IdleSeconds = MaxIdleSeconds
				switch what {
				case "nothing moves":
					l.Limits.IdleSeconds = 600
				case "the lease ends": // before the silence is too long
					l.ExpiresAt = sandbox.At(newClock().now.Add(time.Minute))
				}
			})
			conn := r.dial()
			_, _ = io.WriteString(conn, r.post("/v1/messages", "{}"))
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			<-begun
			c.do(r, conn)
			if text, err := io.ReadAll(response.Body); err == nil {
				t.Errorf("a whole answer: %q", text)
			}
			if l := r.log.lines(t, 2)[1]; l.End != c.end || l.Status != 200 || l.DownBytes != 5 {
				t.Errorf("%+v", l)
			}
		})
	}
}

// What the relay cannot carry is a refusal of its own.
func TestGatewayFails(t *testing.T) {
	hang := make(chan struct{})
	for what, c := range map[string]struct {
		gateway http.HandlerFunc
		status  int
	}{
		"redirects": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "http://10.0.0.1/", http.StatusFound)
		}, 502},
		"upgrades": {func(w http.ResponseWriter, q *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes")
			c.Close()
		}, 502},
		"is no HTTP": {func(w http.ResponseWriter, q *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(c, "220 smtp\r\n")
			c.Close()
		}, 502},
		"has a huge head": {func(w http.ResponseWriter, q *http.Request) { w.Header().Set("X", strings.Repeat("x", 64<<10)) }, 502},
		"is silent":       {func(_ http.ResponseWriter, q *http.Request) { hang <- struct{}{}; <-q.Context().Done() }, 504},
		"refuses early": {func(w http.ResponseWriter, q *http.Request) {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex()
			w.WriteHeader(http.StatusUnauthorized)
			_ = control.Flush()
			_, _ = io.Copy(io.Discard, q.Body)
		}, 401},
	} {
		t.Run(what, func(t *testing.T) {
			r := begin(t, c.gateway, nil)
			if what == "is silent" {
				go func() { <-hang; r.clock.advance(DefaultIdleSeconds * time.Second) }()
			}
			response, body, err := r.say(r.post("/v1/messages", strings.Repeat("x", 100<<10)))
			if err != nil || response.StatusCode != c.status || response.Header.Get("Location") != "" {
				t.Errorf("%v %q, %v", response, body, err)
			}
		})
	}
	r := beginAt(t, "unix:/nowhere/at/all", nil)
	if response, body, err := r.say(r.post("/v1/messages", "{}")); err != nil || response.StatusCode != 502 || !strings.Contains(body, "gateway_failed") {
		t.Errorf("%v %q, %v", response, body, err)
	}
}

// Past the lease, requests are refused and the relay goes on refusing them.
func TestExpires(t *testing.T) {
	r := begin(t, func(http.ResponseWriter, *http.Request) { t.Error("the gateway was asked") }, nil)
	r.clock.advance(time.Hour)
	for range 2 {
		if response, body, err := r.say(r.post("/v1/messages", "{}")); err != nil || response.StatusCode != 401 || !strings.Contains(body, `"expired"`) {
			t.Errorf("%v %q, %v", response, body, err)
		}
	}
	late := goodConfig(r.token)
	if _, err := New(Options{Config: late, Log: r.log, Clock: r.clock}); err == nil {
		t.Error("a relay of a lease that is over")
	}
}

// One request more than fit is refused, and a place is free again after.
func TestPlaces(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	r := begin(t, func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		begun <- struct{}{}
		<-goOn
	}, func(c *Config) { c.Limits.Requests = 2 })
	done := make(chan int)
	ask := func() {
		response, _, err := r.say(r.post("/v1/messages", "{}"))
		if err != nil {
			t.Error(err)
			done <- 0
			return
		}
		done <- response.StatusCode
	}
	for range 2 {
		go ask()
		<-begun
	}
	go ask()
	if got := <-done; got != 429 {
		t.Error(got)
	}
	goOn <- struct{}{}
	if got := <-done; got != 200 {
		t.Error(got)
	}
	r.log.lines(t, 3)
	go ask()
	<-begun
	close(goOn)
	for range 2 {
		if got := <-done; got != 200 {
			t.Error(got)
		}
	}
}

// A flood of connections that say half a head ends itself: the oldest go, and who
// asks properly is served.
func TestHalfOpen(t *testing.T) {
	r := begin(t, func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }, nil)
	first := r.dial()
	_, _ = io.WriteString(first, "POST ")
	for range 2 * MaxHeads {
		_, _ = io.WriteString(r.dial(), "POST ")
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest is still there: %v", err)
	}
	if response, _, err := r.say(r.post("/v1/messages", "{}")); err != nil || response.StatusCode != 200 {
		t.Error(response, err)
	}
}

// A relay without a log serves nothing.
func TestLogFails(t *testing.T) {
	r := begin(t, func(w http.ResponseWriter, q *http.Request) {}, nil)
	r.log.lines(t, 1)
	r.log.mu.Lock()
	r.log.fail = errors.New("no space")
	r.log.mu.Unlock()
	_, _, _ = r.say(r.post("/v1/messages", "{}"))
	if _, ok := errors.AsType[*LogError](r.stop()); !ok {
		t.Errorf("%v", r.stop())
	}
	full := &logged{fail: errors.New("no space")}
	made, err := New(Options{Config: goodConfig(r.token), Log: full, Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*LogError](made.Serve(t.Context(), l)); !ok {
		t.Error("it served")
	}
}
