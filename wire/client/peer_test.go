package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

const (
	boot   = wire.BootID("bt_00000000000000000000000000000000")
	procID = "pr_11111111111111111111111111111111"
	image  = "registry.example/base@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// delivery is one request as it arrived at a peer.
type delivery struct {
	endpoint  wire.Endpoint
	n         int // which of this endpoint, from 1
	header    wire.RequestHeader
	body      []byte
	w         http.ResponseWriter
	r         *http.Request
	p         *peer
	arrivedAt time.Time
}

// peer is a server that misbehaves as told. It lives in memory; so a test of it
// may run in a bubble, where a day takes no time.
type peer struct {
	t       testing.TB
	info    wire.CapabilitiesResponse
	digest  sandbox.Digest
	answers map[wire.Endpoint]func(*delivery)

	mu    sync.Mutex
	calls []*delivery
	lines chan net.Conn
	down  chan struct{}
}

// envelope is what the peers of these tests say of themselves: all of it.
func envelope() wire.CapabilitiesResponse {
	p := memory.New(memory.Options{Seed: "peer"})
	c, _ := p.Capabilities(context.Background())
	return wire.CapabilitiesResponse{Capabilities: c, Wire: wire.Info{
		Revision: wire.Revision, Members: wire.Members(c, p.Optional()), AsyncOperations: true,
		Limits: wire.Limits{MaxWaitMS: wire.MaxWaitMS, OutputWindowBytes: wire.DefaultOutputWindowBytes, InputBufferBytes: wire.DefaultInputBufferBytes},
	}}
}

func newPeer(t testing.TB) *peer {
	p := &peer{t: t, info: envelope(), answers: map[wire.Endpoint]func(*delivery){}, lines: make(chan net.Conn), down: make(chan struct{})}
	data, err := canonical.Encode(p.info.Capabilities)
	if err != nil {
		t.Fatal(err)
	}
	p.digest = sandbox.Digest(canonical.Digest(data))
	p.on(wire.Capabilities, func(d *delivery) { d.reply(200, p.info) })
	p.on(wire.RollbackOperation, func(d *delivery) { d.reply(200, wire.Settled{Settled: true}) })
	p.on(wire.ProcessDestroy, func(d *delivery) { d.reply(200, wire.Empty{}) })
	return p
}

func (p *peer) on(e wire.Endpoint, answer func(*delivery)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[e] = answer
}

// ServeHTTP records a delivery and answers it.
func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, ok := wire.ParsePath(r.URL.Path)
	if !ok {
		p.t.Errorf("path %q", r.URL.Path)
	}
	h, err := wire.ParseRequestHeader(r.Header, e)
	if err != nil {
		p.t.Errorf("%s: %v", e, err)
	}
	body, _ := io.ReadAll(r.Body)
	d := &delivery{endpoint: e, n: 1, header: h, body: body, w: w, r: r, p: p, arrivedAt: time.Now()}
	p.mu.Lock()
	for _, c := range p.calls {
		if c.endpoint == e {
			d.n++
		}
	}
	p.calls = append(p.calls, d)
	answer := p.answers[e]
	p.mu.Unlock()
	if answer == nil {
		p.t.Errorf("%s was called", e)
		answer = func(d *delivery) { d.fail(&wire.Error{Tag: wire.TagMemberUnknown}) }
	}
	answer(d)
}

// of returns the deliveries to e.
func (p *peer) of(e wire.Endpoint) (list []*delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.calls {
		if d.endpoint == e {
			list = append(list, d)
		}
	}
	return list
}

func (d *delivery) head(framed bool) {
	wire.ResponseHeader{Capabilities: d.p.digest, Boot: boot}.Set(d.w.Header(), framed)
}

func (d *delivery) reply(status int, m wire.Message) {
	data, err := wire.Encode(m)
	if err != nil {
		d.p.t.Error(err)
	}
	d.json(status, string(data))
}

func (d *delivery) json(status int, body string) {
	d.head(false)
	d.w.WriteHeader(status)
	io.WriteString(d.w, body)
}

func (d *delivery) fail(failure error) {
	body, status, err := wire.EncodeError(failure)
	if err != nil {
		d.p.t.Error(err)
	}
	d.json(status, string(body))
}

// frames begins a framed response; the writer flushes each frame.
func (d *delivery) frames() *wire.Writer {
	d.head(true)
	d.w.WriteHeader(200)
	http.NewResponseController(d.w).Flush()
	return wire.NewWriter(flushing{d.w})
}

type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	http.NewResponseController(f.w).Flush()
	return n, err
}

// drop ends the connection without another byte.
func (d *delivery) drop() { panic(http.ErrAbortHandler) }

// raw answers with bytes of its own, and ends the connection.
func (d *delivery) raw(head string, body []byte) {
	c, _, err := http.NewResponseController(d.w).Hijack()
	if err != nil {
		d.p.t.Error(err)
		return
	}
	io.WriteString(c, head)
	c.Write(body)
	c.Close()
}

// hold answers never.
func (d *delivery) hold() { <-d.r.Context().Done() }

// Accept, Close and Addr make the peer a listener of its own lines.
func (p *peer) Accept() (net.Conn, error) {
	select {
	case c := <-p.lines:
		return c, nil
	case <-p.down:
		return nil, net.ErrClosed
	}
}

func (p *peer) Close() error   { close(p.down); return nil }
func (p *peer) Addr() net.Addr { return &net.UnixAddr{Name: "peer", Net: "unix"} }

func (p *peer) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.lines <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble runs test against a peer in a bubble: time moves when everybody waits,
// and whatever goroutine is left at the end is a failure.
func bubble(t *testing.T, o Options, test func(t *testing.T, p *peer, c *Client)) {
	t.Helper()
	bubbleWith(t, o, func(*peer) {}, test)
}

func bubbleWith(t *testing.T, o Options, prepare func(*peer), test func(t *testing.T, p *peer, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		prepare(p)
		s := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
		served := make(chan struct{})
		go func() { s.Serve(p); close(served) }()
		defer func() {
			s.Close()
			<-served
		}()
		o.Base = "http://127.0.0.1"
		c, err := dial(t.Context(), o, seam{dial: p.dial, random: func() float64 { return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, p, c)
	})
}

func request() sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "lease", LeaseEpoch: 7,
		Target: memory.DefaultTarget,
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 64 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionDurable,
		},
		Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts:    []sandbox.Mount{},
		ExpiresAt: sandbox.At(start.Add(time.Hour)),
	}
}

func instance(id sandbox.InstanceID) sandbox.Instance {
	return sandbox.InstanceOf(request(), id, sandbox.StateProvisioning, digestOf(nil))
}

func (d *delivery) provisioned(id sandbox.InstanceID) {
	d.reply(200, wire.InstanceHandoff{Value: instance(id), Rollback: wire.Rollback{OperationID: d.header.Operation}})
}

// failure sorts an error: "ok", "protocol FIELD", "KIND REASON-OR-ACTUAL", or
// "context".
func failure(err error) string {
	a, p := (*sandbox.Error)(nil), (*ProtocolError)(nil)
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &a):
		return string(a.Kind) + " " + a.Reason + a.Actual + a.ID
	case errors.As(err, &p):
		return "protocol " + p.Field
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return "context"
	}
	return err.Error()
}

func framed(fill func(w *wire.Writer)) []byte {
	var b bytes.Buffer
	fill(wire.NewWriter(&b))
	return b.Bytes()
}
