package client

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/server"
)

// serve puts the real server of p on a socket of its own.
func serve(t testing.TB, p sandbox.Provider) Options {
	t.Helper()
	s, err := server.New(server.Options{Provider: p, Authenticate: server.Anybody, Log: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, s, s)
}

func listen(t testing.TB, s *server.Server, handler http.Handler) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: handler}
	go h.Serve(l)
	t.Cleanup(func() {
		h.Close()
		s.Close(t.Context())
	})
	return Options{Base: "unix:" + path}
}

func connect(t testing.TB, o Options) *Client {
	t.Helper()
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// buffering holds every response back until it is whole, as some proxies do.
type buffering struct{ http.Handler }

func (b buffering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	held := &held{ResponseWriter: w}
	b.Handler.ServeHTTP(held, r)
	w.Write(held.body.Bytes())
}

type held struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (h *held) Write(b []byte) (int, error)      { return h.body.Write(b) }
func (h *held) FlushError() error                { return nil }
func (h *held) SetReadDeadline(time.Time) error  { return nil }
func (h *held) SetWriteDeadline(time.Time) error { return nil }

// Behind such a proxy a process of the real server is polled, and is as quick.
func TestPollingTheRealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for two silent heartbeats")
	}
	s, err := server.New(server.Options{Provider: memory.New(memory.Options{Seed: "poll"}), Authenticate: server.Anybody})
	if err != nil {
		t.Fatal(err)
	}
	o := listen(t, s, buffering{s})
	o.Heartbeat = time.Second
	c := connect(t, o)
	p, err := c.OpenProcess(t.Context(), activated(t, c), procID, sandbox.ProcessRequest{Executable: "cat", WorkingDirectory: "/"})
	if err != nil {
		t.Fatal(err)
	}
	line := []byte("hello\n")
	var took []time.Duration
	for range 50 {
		began := time.Now()
		if _, err := p.Input().Write(line); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(p.Output(), got); err != nil || !bytes.Equal(got, line) {
			t.Fatalf("%q %v", got, err)
		}
		took = append(took, time.Since(began))
	}
	t.Logf("first after %s, p50 %s", took[0], slices.Sorted(slices.Values(took))[len(took)/2])
	if err := p.Input().Close(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(p.Output()); len(rest) != 0 || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || *exit.ExitCode != 0 {
		t.Error(exit, err)
	}
}
