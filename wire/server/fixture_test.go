package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

const token = "0123456789abcdef0123456789abcdef"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const image = "registry.example/base@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func provisionRequest() wire.ProvisionRequest {
	return wire.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "l", LeaseEpoch: 1,
		Target: memory.DefaultTarget,
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 256 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionDurable,
		},
		Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts:    []sandbox.Mount{{MountPath: "/mnt/rw", Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject}},
		ExpiresAt: sandbox.At(start.Add(time.Hour)),
	}
}

// fixture is a server over a provider on a real listener, and a caller that
// speaks raw requests.
type fixture struct {
	*testing.T
	provider sandbox.Provider
	memory   *memory.Provider
	s        *Server
	base     string
	http     *http.Client
	lease    wire.Lease
	wait     time.Duration
	stop     func()
}

// newFixture starts a server. change may be nil. The test fails where anything
// is left.
func newFixture(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	before := runtime.NumGoroutine()
	m := memory.New(memory.Options{Seed: "test", Clock: memory.NewManual(start), Programs: programs})
	o := Options{Provider: m, Tokens: []string{token}, Clock: newThenClock(), Log: func(err error) { t.Logf("server: %v", err) }}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, s, nil) }()
	f := &fixture{
		T: t, provider: o.Provider, memory: m, s: s, base: "http://" + l.Addr().String(),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, lease: wire.Lease{ID: "l", Epoch: 1}, wait: 20 * time.Second,
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		f.http.CloseIdleConnections()
	})
	t.Cleanup(func() {
		f.stop()
		for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
	return f
}

// thenClock runs as the system's does, from start on, where the memory
// provider's stands.
type thenClock struct {
	systemClock
	began time.Time
}

func newThenClock() thenClock { return thenClock{began: time.Now()} }

func (c thenClock) Now() time.Time { return start.Add(time.Since(c.began)) }

// response is what came back.
type response struct {
	status int
	header http.Header
	body   []byte
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// request makes a raw request. An op of "" mints one where the endpoint takes
// one.
func (f *fixture) request(ctx context.Context, e wire.Endpoint, op wire.OperationID, body io.Reader, size int64) *http.Request {
	f.Helper()
	t, _ := e.Traits()
	if op == "" {
		op = wire.NewOperationID()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.base+e.Path(), body)
	f.must(err)
	r.ContentLength = size
	wire.RequestHeader{Token: token, Lease: f.lease, Operation: op, Wait: f.wait}.Set(r.Header, e)
	r.Header.Set("Content-Type", wire.MediaJSON)
	if t.FramedRequest {
		r.Header.Set("Content-Type", wire.MediaFrames)
	}
	return r
}

func (f *fixture) do(r *http.Request) response {
	f.Helper()
	got, err := f.http.Do(r)
	f.must(err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	f.must(err)
	if _, err := wire.ParseResponseHeader(got.Header); err != nil {
		f.Errorf("response header: %v", err)
	}
	return response{got.StatusCode, got.Header, body}
}

// call sends a message, and data where the endpoint is framed.
func (f *fixture) call(e wire.Endpoint, op wire.OperationID, m wire.Message, data ...byte) response {
	f.Helper()
	t, _ := e.Traits()
	if t.FramedRequest {
		b, err := wire.NewBody(m, data)
		f.must(err)
		return f.do(f.request(f.Context(), e, op, b.Reader(), b.Size()))
	}
	body, err := wire.Encode(m)
	f.must(err)
	return f.do(f.request(f.Context(), e, op, bytes.NewReader(body), int64(len(body))))
}

// ok decodes a JSON answer.
func ok[M wire.Message](f *fixture, r response) M {
	f.Helper()
	if r.status != 200 {
		f.Fatalf("status %d: %s", r.status, r.body)
	}
	m, err := wire.Decode[M](r.body)
	f.must(err)
	return m
}

// failure decodes an error body.
func (f *fixture) failure(r response) error {
	f.Helper()
	failure, err := wire.DecodeError(r.body)
	if err != nil {
		f.Fatalf("no error body: status %d, %s", r.status, r.body)
	}
	if r.status != wire.Status(failure) {
		f.Errorf("status %d of %v", r.status, failure)
	}
	return failure
}

// want fails unless r is the failure want.
func (f *fixture) want(r response, want error) {
	f.Helper()
	if got := f.failure(r); !errors.Is(got, want) {
		f.Fatalf("failure %v, want %v", got, want)
	}
}

func (f *fixture) wantTag(r response, tag wire.Tag) *wire.Error {
	f.Helper()
	f.want(r, &wire.Error{Tag: tag})
	var e *wire.Error
	errors.As(f.failure(r), &e)
	return e
}

func (f *fixture) provision(op wire.OperationID) wire.InstanceHandoff {
	f.Helper()
	r := provisionRequest()
	r.LeaseID, r.LeaseEpoch = f.lease.ID, f.lease.Epoch
	return ok[wire.InstanceHandoff](f, f.call(wire.Provision, op, r))
}

func (f *fixture) activate(id sandbox.InstanceID) {
	f.Helper()
	ok[wire.InstanceHandoff](f, f.call(wire.Activate, "", wire.InstanceRequest{InstanceID: id}))
}

func (f *fixture) active() sandbox.InstanceID {
	f.Helper()
	id := f.provision("").Value.InstanceID
	f.activate(id)
	return id
}

func command(script string) sandbox.Command {
	return sandbox.Command{
		Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/",
		Environment: map[string]string{}, TimeoutSeconds: 10, OutputLimitBytes: sandbox.MaxOutputBytes,
	}
}

// frames reads a framed body to its end.
func (f *fixture) frames(body []byte) (all []wire.Frame) {
	f.Helper()
	r := wire.NewReader(bytes.NewReader(body))
	for {
		fr, err := r.Next()
		if err == io.EOF {
			return all
		}
		f.must(err)
		all = append(all, wire.Frame{Type: fr.Type, Payload: bytes.Clone(fr.Payload)})
	}
}

// output joins the payloads of out or err frames.
func (f *fixture) output(frames []wire.Frame, t wire.Type) (all []byte) {
	f.Helper()
	for _, fr := range frames {
		if fr.Type == t {
			at, data, err := fr.Output()
			f.must(err)
			if at != int64(len(all)) {
				f.Fatalf("frame at %d, want %d", at, len(all))
			}
			all = append(all, data...)
		}
	}
	return all
}

// dial opens a raw connection to the server.
func (f *fixture) dial() net.Conn {
	f.Helper()
	c, err := net.Dial("tcp", f.base[len("http://"):])
	f.must(err)
	f.Cleanup(func() { c.Close() })
	return c
}

var programs = map[string]memory.Program{}

func digestOf(data []byte) sandbox.Digest { return sandbox.Digest(canonical.Digest(data)) }
