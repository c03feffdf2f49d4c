package gateway

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

const (
	anthropicStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n"
	anthropicDelta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"usage\\\":{\\\"output_tokens\\\":99}\"}}\n\n"
	anthropicUsage = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n"
	anthropicStop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	chatDelta      = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n"
	chatUsage      = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n"
	chatDone       = "data: [DONE]\n\n"
	responseDelta  = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n"
	responseDone   = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[{\"usage\":{\"output_tokens\":99}}],\"usage\":{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":15}}}\n\n"
)

// said are the counts of each of these streams.
var said = Usage{Requests: 1, InputTokens: 30, CachedTokens: 5, OutputTokens: 15}

func tokens(u Usage) Usage { u.UpBytes, u.DownBytes = 0, 0; return u }

// Events of both APIs pass one by one, unchanged but for the one that we asked
// for ourselves, and are counted.
func TestStreams(t *testing.T) {
	for what, c := range map[string]struct {
		path, body, sent string // what the upstream must get
		events           []string
		dropped          string
		said             Usage
	}{
		"messages": {"/v1/messages", `{"model":"m","stream":true}`, "",
			[]string{anthropicStart, anthropicDelta, anthropicUsage, anthropicStop}, "", Usage{Requests: 1, InputTokens: 30, CachedTokens: 5, OutputTokens: 15}},
		"chat, usage asked for": {"/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, "",
			[]string{chatDelta, chatUsage, chatDone}, "", said},
		"chat, usage not asked for": {"/v1/chat/completions", `{ "model" : "m" , "stream":true}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
			[]string{chatDelta, chatUsage, chatDone}, chatUsage, said},
		"chat, usage refused": {"/v1/chat/completions", `{"stream_options":{"include_usage":false,"x":1},"model":"m","stream":true}`, `{"stream_options":{"include_usage":true,"x":1},"model":"m","stream":true}`,
			[]string{chatDelta, chatUsage, chatDone}, chatUsage, said},
		"responses": {"/v1/responses", `{"model":"m","stream":true}`, "",
			[]string{responseDelta, responseDone}, "", said},
	} {
		t.Run(what, func(t *testing.T) {
			step := make(chan struct{})
			s := begin(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if c.sent == "" {
					c.sent = c.body
				}
				if string(body) != c.sent {
					t.Errorf("%s", body)
				}
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				for _, e := range c.events {
					_, _ = io.WriteString(w, e)
					_ = http.NewResponseController(w).Flush()
					if e != c.dropped {
						<-step
					}
				}
			}, nil)
			response, err := plain.RoundTrip(s.request("POST", c.path, c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			in := bufio.NewReader(response.Body)
			for _, e := range c.events {
				if e == c.dropped {
					continue
				}
				got := make([]byte, len(e))
				if _, err := io.ReadFull(in, got); err != nil || string(got) != e {
					t.Fatalf("%q, %v", got, err)
				}
				step <- struct{}{} // the next is sent only now
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
			if l := s.log.line(t, 1); tokens(l.Usage) != c.said || l.Cut {
				t.Errorf("%+v", l)
			}
		})
	}
}

// A stream that breaks off between two events says so in an event; in the middle
// of one it only breaks. Either way no client takes it for whole, and what was
// not told is estimated.
func TestCut(t *testing.T) {
	for what, c := range map[string]struct {
		path, sent string
		event      bool
		said       Usage
	}{
		"between": {"/v1/messages", anthropicStart + strings.Repeat(anthropicDelta, 4), true, Usage{Requests: 1, InputTokens: 30, CachedTokens: 5, Estimated: 1}},
		"inside":  {"/v1/messages", anthropicStart + anthropicDelta[:40], false, Usage{Requests: 1, InputTokens: 30, CachedTokens: 5, Estimated: 1}},
		"chat":    {"/v1/chat/completions", chatDelta, true, Usage{Requests: 1, Estimated: 1, InputTokens: -1}},
		"told":    {"/v1/messages", anthropicStart + anthropicUsage, true, said},
	} {
		t.Run(what, func(t *testing.T) {
			s := begin(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, c.sent)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}, nil)
			status, _, body, err := s.ask(s.request("POST", c.path, `{"model":"m","stream":true}`))
			if err == nil || status != 200 || !strings.HasPrefix(body, c.sent) {
				t.Errorf("%d %q, %v", status, body, err)
			}
			if got := strings.Contains(body, "event: error\ndata: {\"type\":\"error\""); got != c.event {
				t.Errorf("%q", body)
			}
			l := s.log.line(t, 1)
			want := c.said
			if want.Estimated > 0 {
				want.OutputTokens = l.Usage.DownBytes / 4
			}
			if want.InputTokens < 0 {
				want.InputTokens = l.Usage.UpBytes / 4
			}
			if tokens(l.Usage) != want || !l.Cut || l.Reason != route.ReasonUpstream || want.OutputTokens == 0 {
				t.Errorf("%+v", l)
			}
		})
	}
}

// Whatever ends a request ends the upstream's work too, and is told apart.
func TestEnds(t *testing.T) {
	begun, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	upstream := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, anthropicStart)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}
	for what, c := range map[string]struct {
		do     func(*standing, *http.Response)
		reason route.Reason
	}{
		"the client goes":  {func(_ *standing, r *http.Response) { r.Body.Close() }, ""},
		"the lease ends":   {func(s *standing, _ *http.Response) { s.clock.advance(2 * time.Hour) }, route.ReasonLease},
		"it is revoked":    {func(s *standing, _ *http.Response) { _ = s.leases.Revoke("lea_1", 1); s.clock.advance(leaseTime) }, route.ReasonLease},
		"another epoch":    {func(s *standing, _ *http.Response) { s.newer(); s.clock.advance(leaseTime) }, route.ReasonLease},
		"nothing moves":    {func(s *standing, _ *http.Response) { s.clock.advance(time.Minute) }, route.ReasonLate},
		"the gateway ends": {func(s *standing, _ *http.Response) { go func() { _ = s.stop() }() }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := begin(t, upstream, func(o *Options, _ *Lease) { o.Limits.Idle = time.Minute })
			response, err := plain.RoundTrip(s.request("POST", "/v1/messages", `{"model":"m","stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			<-begun
			if _, err := io.ReadFull(response.Body, make([]byte, len(anthropicStart))); err != nil {
				t.Fatal(err)
			}
			c.do(s, response)
			<-ended
			rest, err := io.ReadAll(response.Body)
			if err == nil || c.reason != "" && !strings.Contains(string(rest), `"code":"`+string(c.reason)+`"`) {
				t.Errorf("%q, %v", rest, err)
			}
			if l := s.log.line(t, 1); !l.Cut || l.Reason != c.reason || l.Usage.Estimated != 1 || l.Usage.InputTokens != 30 {
				t.Errorf("%+v", l)
			}
			if s.used("run_1").Requests != 1 {
				t.Error("it was not counted")
			}
		})
	}
}

func (s *standing) newer() {
	l := s.lease
	l.LeaseEpoch++
	if _, err := s.leases.Grant(l); err != nil {
		s.Error(err)
	}
}

// A client that goes before there is an answer ends the upstream's work.
func TestGoneBeforeTheAnswer(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s := begin(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(begun)
		<-r.Context().Done()
		close(ended)
	}, nil)
	r := s.request("POST", "/v1/messages", `{"model":"m","x":"`+strings.Repeat("x", 400)+`"}`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, _, _, err := s.ask(r.WithContext(ctx)); err == nil {
		t.Error("an answer")
	}
	<-ended
	if l := s.log.line(t, 1); l.Usage.InputTokens < 100 || l.Usage.Estimated != 1 || l.Status != 0 {
		t.Errorf("%+v", l)
	}
}

// A stream that an upstream sends whole, with its length, has another one behind us.
func TestStreamOfKnownLength(t *testing.T) {
	s := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(chatDelta+chatUsage+chatDone)))
		_, _ = io.WriteString(w, chatDelta+chatUsage+chatDone)
	}, nil)
	status, _, body, err := s.ask(s.request("POST", "/v1/chat/completions", `{"model":"m","stream":true}`))
	if err != nil || status != 200 || body != chatDelta+chatDone {
		t.Errorf("%d %q, %v", status, body, err)
	}
}

// What comes compressed although we asked for none is read and passed on plain.
func TestGzip(t *testing.T) {
	s := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%v", r.Header)
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		z := gzip.NewWriter(w)
		for _, e := range []string{anthropicStart, anthropicUsage, anthropicStop} {
			_, _ = io.WriteString(z, e)
			_ = z.Flush()
		}
		z.Close()
	}, nil)
	status, header, body, err := s.ask(s.request("POST", "/v1/messages", `{"model":"m"}`))
	if err != nil || status != 200 || body != anthropicStart+anthropicUsage+anthropicStop || header.Get("Content-Encoding") != "" {
		t.Errorf("%d %v %q, %v", status, header, body, err)
	}
	if l := s.log.line(t, 1); tokens(l.Usage) != said {
		t.Errorf("%+v", l)
	}
}

// An answer of any length is counted in the memory of a piece.
func TestHuge(t *testing.T) {
	const size = 8 << 20
	s := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"content":"`)
		piece := strings.Repeat(`x`, 1<<20)
		for range size >> 20 {
			_, _ = io.WriteString(w, piece)
		}
		_, _ = io.WriteString(w, `","usage":{"input_tokens":1,"output_tokens":2}}`)
	}, nil)
	response, err := plain.RoundTrip(s.request("POST", "/v1/messages", `{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n < size {
		t.Errorf("%d, %v", n, err)
	}
	if l := s.log.line(t, 1); l.Usage.OutputTokens != 2 || l.Usage.InputTokens != 1 || l.Usage.DownBytes < size {
		t.Errorf("%+v", l)
	}
}

// An upstream's long event is no reason to hold it back.
func TestStripper(t *testing.T) {
	long := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 3*mostHeld) + "\"}}]}\n\n"
	fake := "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n"
	crlf := strings.ReplaceAll(chatUsage, "\n", "\r\n")
	in := chatDelta + chatUsage + long + fake + crlf + ": comment\n\n" + chatUsage + chatDone + "data: half"
	want := chatDelta + long + fake + ": comment\n\n" + chatDone + "data: half"
	for _, size := range []int{1, 2, 3, 7, 100, 5000, len(in)} {
		var s stripper
		var out strings.Builder
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			out.Write(s.pass([]byte(rest[:n])))
			rest = rest[n:]
			if len(s.held) > mostHeld+size {
				t.Fatalf("%d bytes are held", len(s.held))
			}
		}
		out.Write(s.rest())
		if out.String() != want {
			t.Errorf("in pieces of %d: %d bytes, want %d", size, out.Len(), len(want))
		}
	}
}
