package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// patience is the outer bound of every wait in a test.
const patience = 30 * time.Second

// fakeClock is a clock that a test moves.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[int]timer
	next   int
}

type timer struct {
	at time.Time
	f  func()
}

func newClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), timers: map[int]timer{}}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id := c.next
	c.timers[id] = timer{c.now.Add(d), f}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.timers[id]
		delete(c.timers, id)
		return ok
	}
}

// advance moves the time and runs what is due.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for again := true; again; {
		again = false
		for id, t := range c.timers {
			if !t.at.After(c.now) {
				delete(c.timers, id)
				c.mu.Unlock()
				t.f()
				c.mu.Lock()
				again = true
				break
			}
		}
	}
}

// logged is a log that can be waited for.
type logged struct {
	mu    sync.Mutex
	text  bytes.Buffer
	fail  error
	wrote chan struct{}
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return 0, l.fail
	}
	l.text.Write(p)
	close(l.wrote)
	l.wrote = make(chan struct{})
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// line waits for the nth one, the first of which is 0.
func (l *logged) line(t *testing.T, n int) Line {
	t.Helper()
	late := time.After(patience)
	for {
		l.mu.Lock()
		text, wrote := l.text.String(), l.wrote
		l.mu.Unlock()
		if lines := strings.Split(text, "\n"); len(lines) > n+1 {
			var line Line
			if err := json.Unmarshal([]byte(lines[n]), &line); err != nil {
				t.Fatal(err)
			}
			return line
		}
		select {
		case <-wrote:
		case <-late:
			t.Fatalf("expected line %d, got %s", n, text)
		}
	}
}

const secretKey = "sk-provider-key-that-nobody-may-see"

// standing is a gateway in front of an upstream that a test makes up.
type standing struct {
	*testing.T
	gateway *Gateway
	leases  *Store
	clock   *fakeClock
	log     *logged
	url     string
	lease   Lease
	token   string
	stop    func() error
}

func key(t testing.TB) Key {
	k, err := ReadKey(strings.NewReader(secretKey+"\n"), "test")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// begin serves a gateway for both styles; behind TLS, which it verifies.
func begin(t *testing.T, upstream http.HandlerFunc, change func(*Options, *Lease)) *standing {
	t.Helper()
	u := httptest.NewUnstartedServer(upstream)
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	s := &standing{T: t, clock: newClock(), log: &logged{wrote: make(chan struct{})}}
	s.leases = openStore(t, t.TempDir(), s.clock)
	s.lease = Lease{RunID: "run_1", LeaseID: "lea_1", LeaseEpoch: 1, ExpiresAt: s.clock.now.Add(time.Hour)}
	o := Options{
		Upstreams: []Upstream{{route.Anthropic, u.URL + "/anthropic/"}, {route.OpenAI, u.URL + "/openai"}},
		Keys:      map[route.Style]Key{route.Anthropic: key(t), route.OpenAI: key(t)},
		Leases:    s.leases, Counts: s.leases, Log: s.log, Clock: s.clock,
		RootCAs: u.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
	}
	if change != nil {
		change(&o, &s.lease)
	}
	var err error
	if s.gateway, err = New(o); err != nil {
		t.Fatal(err)
	}
	if s.token, err = s.leases.Grant(s.lease); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.gateway.Serve(ctx, l) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			t.Error("the gateway does not end")
			return nil
		}
	})
	t.Cleanup(func() { _ = s.stop() })
	return s
}

var plain = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// request makes one of the run, for the style of its path.
func (s *standing) request(method, path, body string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if body == "" {
		r.Body = nil
	}
	if strings.HasPrefix(path, "/v1/messages") {
		r.Header.Set("X-Api-Key", s.token)
		r.Header.Set("Anthropic-Version", "2023-06-01")
	} else {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	return r
}

// ask sends a request and reads the answer.
func (s *standing) ask(r *http.Request) (status int, header http.Header, body string, err error) {
	s.Helper()
	response, err := plain.RoundTrip(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(text), err
}

// code is the reason in a refusal of ours, or "".
func code(body string) route.Reason {
	var b struct{ Error struct{ Code route.Reason } }
	if json.Unmarshal([]byte(body), &b) != nil {
		return ""
	}
	return b.Error.Code
}

func TestMain(m *testing.M) {
	if child := os.Getenv("CHECKFU_TEST_CHILD"); child != "" {
		os.Exit(runChild(child))
	}
	os.Exit(m.Run())
}

// openStore opens one that the test's end closes.
func openStore(t testing.TB, dir string, clock Clock) *Store {
	t.Helper()
	s, err := OpenStore(dir, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// used is what a run has used up to now.
func (s *standing) used(runID string) Usage {
	s.Helper()
	u, err := s.leases.Used(runID)
	if err != nil {
		s.Error(err)
	}
	return u
}

var errNoSpace = errors.New("no space")
