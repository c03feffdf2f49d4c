package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
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

// advance moves the time and runs what is due, also what that makes due.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
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
	c.mu.Unlock()
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

// lines waits until there are n of them.
func (l *logged) lines(t *testing.T, n int) []Line {
	t.Helper()
	late := time.After(patience)
	for {
		l.mu.Lock()
		text, wrote := l.text.String(), l.wrote
		l.mu.Unlock()
		if strings.Count(text, "\n") >= n {
			var out []Line
			for d := json.NewDecoder(strings.NewReader(text)); ; {
				var line Line
				if err := d.Decode(&line); err == io.EOF {
					return out
				} else if err != nil {
					t.Fatal(err)
				}
				out = append(out, line)
			}
		}
		select {
		case <-wrote:
		case <-late:
			t.Fatalf("expected %d lines, got %s", n, text)
		}
	}
}

// relaying is a relay in front of a gateway that a test makes up.
type relaying struct {
	*testing.T
	token string
	addr  string
	log   *logged
	clock *fakeClock
	stop  func() error
}

const host = "relay.test:3129"

func goodConfig(token string) Config {
	return Config{
		V: 1, Instance: "ins_1", Hosts: []string{host}, Gateway: "127.0.0.1:1",
		TokenDigest: sandbox.Digest(route.TokenDigest(token)),
		ExpiresAt:   sandbox.At(newClock().now.Add(time.Hour)),
	}
}

func begin(t *testing.T, gateway http.HandlerFunc, change func(*Config)) *relaying {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway")
	g, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: gateway}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(g) }()
	t.Cleanup(func() { server.Close(); <-served })
	return beginAt(t, "unix:"+file, change)
}

func beginAt(t *testing.T, gateway string, change func(*Config)) *relaying {
	t.Helper()
	r := &relaying{T: t, token: route.NewToken(), log: &logged{wrote: make(chan struct{})}, clock: newClock()}
	config := goodConfig(r.token)
	config.Gateway = gateway
	if change != nil {
		change(&config)
	}
	made, err := New(Options{Config: config, Log: r.log, Clock: r.clock, Notes: []string{"note"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- made.Serve(ctx, l) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			t.Error("the relay does not end")
			return nil
		}
	})
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func (r *relaying) dial() net.Conn {
	r.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// say sends bytes and reads the answer; its body is read to the end.
func (r *relaying) say(text string) (*http.Response, string, error) {
	r.Helper()
	c := r.dial()
	if _, err := io.WriteString(c, text); err != nil {
		r.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// post is the text of a good request.
func (r *relaying) post(path, body string, headers ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nX-Api-Key: " + r.token + "\r\n" +
		"Content-Type: application/json\r\nContent-Length: " + itoa(len(body)) + "\r\n" +
		strings.Join(append(headers, ""), "\r\n") + "\r\n" + body
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		code = leftBehind()
	}
	os.Exit(code)
}

// leftBehind is 1 where a test left sockets open. The peers of what a test closed
// last notice it a moment later.
func leftBehind() int {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 500 {
		entries, _ := os.ReadDir("/proc/self/fd")
		sockets := 0
		for _, e := range entries {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "socket:") {
				sockets++
			}
		}
		if sockets == 0 {
			return 0
		}
		<-look.C
	}
	os.Stderr.WriteString("sockets are left behind\n")
	return 1
}
