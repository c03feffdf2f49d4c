package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// fragile breaks after so many bytes, either way.
type fragile struct {
	net.Conn
	left *atomic.Int64
	cuts *atomic.Int64
}

var errCut = errors.New("cut")

func (f fragile) spend(n int) bool {
	if left := f.left.Add(-int64(n)); left < 0 {
		if left+int64(n) >= 0 {
			f.cuts.Add(1)
		}
		f.Conn.Close()
		return false
	}
	return true
}

func (f fragile) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if !f.spend(n) {
		return 0, errCut
	}
	return n, err
}

func (f fragile) Write(b []byte) (int, error) {
	if left := f.left.Load(); left < int64(len(b)) && left > 0 {
		f.Conn.Write(b[:left]) // half of it arrives
	}
	if !f.spend(len(b)) {
		return 0, errCut
	}
	return f.Conn.Write(b)
}

// cutting dials the socket of o with connections that break at random.
func cutting(o Options, between int64, cuts *atomic.Int64) seam {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	return seam{random: func() float64 { return 0 }, dial: func(ctx context.Context) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(o.Base, "unix:"))
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		left := &atomic.Int64{}
		left.Store(4096 + random.Int64N(2*between))
		return fragile{c, left, cuts}, nil
	}}
}

func activated(t testing.TB, c *Client) sandbox.InstanceID {
	t.Helper()
	r := request()
	r.ExpiresAt = sandbox.At(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)) // of the memory provider's own day
	h, err := c.Provision(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	return h.Value.InstanceID
}

// 24 MiB through cat, both ways, through connections that break all the time:
// not a byte is lost or doubled.
func TestThroughCuts(t *testing.T) {
	o := serve(t, memory.New(memory.Options{Seed: "cuts"}))
	var cuts atomic.Int64
	c, err := dial(t.Context(), o, cutting(o, 200<<10, &cuts))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id := activated(t, c)
	p, err := c.OpenProcess(t.Context(), id, procID, sandbox.ProcessRequest{Executable: "cat", WorkingDirectory: "/"})
	if err != nil {
		t.Fatal(err)
	}
	size := 24 << 20
	if testing.Short() {
		size = 2 << 20
	}
	sent := make([]byte, size)
	chacha := rand.NewChaCha8([32]byte{1})
	chacha.Read(sent)
	// The window at the provider is no flow control: who sends faster than an
	// outage allows loses the process. So no more than 4 MiB are under way.
	const part = 256 << 10
	ahead := make(chan struct{}, 4<<20/part)
	var writer sync.WaitGroup
	writer.Go(func() {
		for rest := sent; len(rest) > 0; rest = rest[part:] {
			ahead <- struct{}{}
			if n, err := p.Input().Write(rest[:part]); n != part || err != nil {
				t.Error(n, err)
				return
			}
		}
		if err := p.Input().Close(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	got := make([]byte, size)
	for n := 0; err == nil && n < size; n += part {
		_, err = io.ReadFull(p.Output(), got[n:n+part])
		<-ahead
	}
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(p.Output())
		got = append(got, rest...)
	}
	writer.Wait()
	if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
		t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	for range 2 {
		if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
			t.Error(exit, err)
		}
	}
	t.Logf("%d cuts, %.0f MiB/s", cuts.Load(), float64(size>>20)/time.Since(began).Seconds())
	if int(cuts.Load()) < size>>19 {
		t.Errorf("%d cuts", cuts.Load())
	}
}

// Files and commands pass broken connections whole, and nothing is made twice.
func TestLifecyclesThroughCuts(t *testing.T) {
	p := memory.New(memory.Options{Seed: "lifecycles"})
	o := serve(t, p)
	var cuts atomic.Int64
	c, err := dial(t.Context(), o, cutting(o, 30<<10, &cuts))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<9)
	for range 60 {
		id := activated(t, c)
		path := sandbox.OutputPath + "/f"
		if err := c.WriteFile(t.Context(), id, sandbox.FileWrite{Path: path, Content: content}); err != nil {
			t.Fatal(err)
		}
		got, err := c.ReadFile(t.Context(), id, sandbox.FileRead{Path: path, AllowedRoot: sandbox.OutputPath, MaximumBytes: 1 << 20})
		if err != nil || !bytes.Equal(got, content) {
			t.Fatal(len(got), err)
		}
		s, err := c.Execute(t.Context(), id, sandbox.Command{
			Executable: "sh", Arguments: []string{"-c", "echo x >>" + path + "; cat"}, Environment: map[string]string{}, WorkingDirectory: "/",
			Stdin: content, TimeoutSeconds: 9, OutputLimitBytes: 1 << 20,
		})
		if err != nil || !bytes.Equal(s.Stdout, content) {
			t.Fatal(len(s.Stdout), err)
		}
		got, err = c.ReadFile(t.Context(), id, sandbox.FileRead{Path: path, AllowedRoot: sandbox.OutputPath, MaximumBytes: 1 << 20})
		if err != nil || string(got) != string(content)+"x\n" { // the command ran once
			t.Fatal(len(got), err)
		}
		if err := c.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if left := p.Census(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	t.Logf("%d cuts", cuts.Load())
}

// A Runner takes the client as a remote adapter: it drives it whole, and
// believes none of its own claims of enforcement.
func TestThroughTheRuntime(t *testing.T) {
	provider := memory.New(memory.Options{Seed: "runtime"})
	c := connect(t, serve(t, provider))
	r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: c, Remote: c.Remote()}}}.Attach(t.Context(), memory.DefaultTarget)
	if err != nil {
		t.Fatal(err)
	}
	q := request()
	q.ExpiresAt = sandbox.At(time.Now().Add(time.Hour))
	i, err := r.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Activate(t.Context(), i.InstanceID); err != nil {
		t.Fatal(err)
	}
	p, err := r.OpenProcess(t.Context(), i.InstanceID, sandbox.ProcessRequest{
		Executable: "sh", Arguments: []string{"-c", "cat; echo end >&2"}, Environment: map[string]string{}, WorkingDirectory: "/",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, axis := range sandbox.Axes() {
		if p.Evidence().Enforcement.On(axis) == sandbox.RunnerEnforced {
			t.Errorf("%s is runner_enforced", axis)
		}
	}
	io.WriteString(p.Input(), "hello")
	p.Input().Close()
	out, err := io.ReadAll(p.Output())
	if string(out) != "hello" || err != nil {
		t.Errorf("%q %v", out, err)
	}
	if errs, err := io.ReadAll(p.Error()); string(errs) != "end\n" || err != nil {
		t.Errorf("%q %v", errs, err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || *exit.ExitCode != 0 {
		t.Error(exit, err)
	}
	if err := r.Destroy(t.Context(), i.InstanceID); err != nil {
		t.Error(err)
	}
}

// An interrupted provision through the runtime leaves nothing at the other end.
func TestInterruptedThroughTheRuntime(t *testing.T) {
	provider := memory.New(memory.Options{Seed: "interrupt"})
	c := connect(t, serve(t, provider))
	for n := range 200 {
		r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: c, Remote: c.Remote()}}}.Attach(t.Context(), memory.DefaultTarget)
		if err != nil {
			t.Fatal(err)
		}
		q := request()
		q.ExpiresAt = sandbox.At(time.Now().Add(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*5*time.Microsecond)
		i, err := r.Provision(ctx, q)
		cancel()
		if err == nil {
			if err := r.Destroy(t.Context(), i.InstanceID); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if left := provider.Census(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Neither connections nor goroutines outlive a client, whatever it was doing.
func TestNothingOutlivesClose(t *testing.T) {
	o := serve(t, memory.New(memory.Options{Seed: "leak"}))
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	once := func() {
		c, err := Dial(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		id := activated(t, c)
		p, err := c.OpenProcess(t.Context(), id, string(wire.NewProcessID()), sandbox.ProcessRequest{Executable: "cat", WorkingDirectory: "/"})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.Input(), "x")
		io.ReadFull(p.Output(), make([]byte, 1))
		waited := make(chan struct{})
		go func() { p.Wait(context.Background()); close(waited) }()
		c.Close()
		<-waited
	}
	once()
	open := files()
	for range 20 {
		once()
	}
	// Sockets and the loops of net/http take a moment to see that they are
	// closed, and the server's ends likewise. Its live processes stay.
	left := func() (ours []string) {
		buf := make([]byte, 1<<20)
		for _, s := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(s, "wire/client.(*") && !strings.Contains(s, "testing.tRunner") || strings.Contains(s, "net/http.(*persistConn)") {
				ours = append(ours, s)
			}
		}
		return ours
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && (files() > open || len(left()) > 0); {
		runtime.Gosched()
	}
	if got := files(); got > open {
		t.Errorf("%d files, %d before", got, open)
	}
	for _, s := range left() {
		t.Errorf("left behind:\n%s", s)
	}
}
