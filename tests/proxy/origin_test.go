package proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
)

const token = "0123456789abcdef0123456789abcdef"

var lease = wire.Lease{ID: "lease", Epoch: 1}

// origin is a real server over the memory provider, which counts what arrives.
type origin struct {
	*server.Server
	address string

	mu         sync.Mutex
	follow     int     // attachments
	poll       int     // attachments that ask for what there is
	cursors    []int64 // of attachments
	deliveries map[string]int
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.deliveries[r.URL.Path]++
	o.mu.Unlock()
	if r.URL.Path == wire.ProcessStream.Path() {
		body, _ := io.ReadAll(io.LimitReader(r.Body, wire.MaxRequestBytes))
		if m, err := wire.Decode[wire.StreamRequest](body); err == nil {
			o.mu.Lock()
			if m.WaitMS > 0 {
				o.poll++
			} else {
				o.follow++
			}
			o.cursors = append(o.cursors, m.Cursor)
			o.mu.Unlock()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	o.Server.ServeHTTP(w, r)
}

func (o *origin) attachments() (follow, poll int, last int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.cursors); n > 0 {
		last = o.cursors[n-1]
	}
	return o.follow, o.poll, last
}

func serve(t *testing.T) *origin {
	t.Helper()
	s, err := server.New(server.Options{Provider: memory.New(memory.Options{Seed: "proxy"}), Tokens: []string{token}, Log: func(err error) { t.Log("server:", err) }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{Server: s, address: l.Addr().String(), deliveries: map[string]int{}}
	h := &http.Server{Handler: o, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 3 * time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		h.Close()
		<-done
	})
	return o
}

const image = "registry.example/base@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// mount is where an instance keeps files.
const mount = "/mnt/files"

// active makes an instance that runs.
func active(t *testing.T, c *client.Client) sandbox.InstanceID {
	t.Helper()
	id := provisioned(t, c)
	if _, err := c.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// provisioned makes one that does not run yet.
func provisioned(t *testing.T, c *client.Client) sandbox.InstanceID {
	t.Helper()
	h, err := c.Provision(t.Context(), sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: lease.ID, LeaseEpoch: lease.Epoch,
		Target: memory.DefaultTarget,
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 256 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionDurable,
		},
		Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts:    []sandbox.Mount{{MountPath: mount, Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject}},
		ExpiresAt: sandbox.At(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)), // of the memory provider's own day
	})
	if err != nil {
		t.Fatal(err)
	}
	return h.Value.InstanceID
}

func process(script string) sandbox.ProcessRequest {
	return sandbox.ProcessRequest{Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{}}
}

func open(t *testing.T, c *client.Client, id sandbox.InstanceID, script string) sandbox.Process {
	t.Helper()
	p, err := c.OpenProcess(t.Context(), id, string(wire.NewProcessID()), process(script))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
