// Package wire shows that nothing is lost silently between a Runner and its
// provider: the client and the server of the wire with a network between them
// that breaks by script, and a server that is killed.
package wire

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		os.Exit(serveUntilKilled(dir))
	}
	os.Exit(m.Run())
}

// settled fails the test where it leaves a goroutine or a descriptor behind. It
// is to be called first, so that it looks last.
func settled(t *testing.T) {
	t.Helper()
	before, files := runtime.NumGoroutine(), descriptors(t)
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			g, open := runtime.NumGoroutine(), descriptors(t)
			if g <= before && open <= files {
				return
			}
			if time.Now().After(end) {
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after; %d descriptors before, %d after\n%s",
					before, g, files, open, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	// Directories that are open, and what the runtime waits with, are nobody's
	// leak.
	return len(slices.DeleteFunc(list, func(e os.DirEntry) bool {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		return err != nil || strings.HasPrefix(to, "anon_inode:") || strings.HasSuffix(to, "/fd")
	}))
}

// socketDir is a directory whose name is short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// served is the server of one provider.
type served struct {
	*testing.T
	dir    string
	socket string
	links  int
	stall  time.Duration // of links made from now on
}

// serve puts p behind a server on a socket.
func serve(t *testing.T, p sandbox.Provider) *served {
	t.Helper()
	return serveWindow(t, p, 0)
}

// serveWindow likewise, with an output window of so many bytes; 0 is the usual
// one.
func serveWindow(t *testing.T, p sandbox.Provider, window int) *served {
	t.Helper()
	o := server.Options{Provider: p, Authenticate: server.Anybody, Log: func(err error) { t.Log("server:", err) }, OutputWindow: window}
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	dir := socketDir(t)
	v := &served{T: t, dir: dir, socket: filepath.Join(dir, "server"), stall: briefly}
	l, err := net.Listen("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: s}
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Serve(l) }()
	t.Cleanup(func() {
		h.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		<-done
	})
	return v
}

// lease is that of every request here, where a test says nothing else.
var lease = wire.Lease{ID: "lease", Epoch: 1}

// link is a client with a proxy between it and its server.
type link struct {
	*client.Client
	proxy *faultproxy.Proxy
}

// connect makes a link that breaks by script. Dial is not spared.
func (s *served) connect(script faultproxy.Script, change func(*client.Options)) *link {
	s.Helper()
	s.links++
	l, close, err := dialStalling(s.stall, s.socket, filepath.Join(s.dir, "proxy"), s.links, script, change)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(close)
	return l
}

// briefly is how long a link stalls where a test says nothing else.
const briefly = 20 * time.Millisecond

// dial makes the n-th link to a socket. The caller has to close it.
func dial(socket, name string, n int, script faultproxy.Script, change func(*client.Options)) (_ *link, close func(), err error) {
	return dialStalling(briefly, socket, name, n, script, change)
}

func dialStalling(stall time.Duration, socket, name string, n int, script faultproxy.Script, change func(*client.Options)) (_ *link, close func(), err error) {
	path := name + itoa(n)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, err
	}
	p := faultproxy.Listen(listener, faultproxy.Options{Script: script, Stall: stall, Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}})
	o := client.Options{Base: "unix:" + path, Lease: lease, Heartbeat: time.Second, Deadline: time.Minute}
	if change != nil {
		change(&o)
	}
	c, err := client.Dial(context.Background(), o)
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	return &link{c, p}, func() { c.Close(); p.Close() }, nil
}

func clean(faultproxy.Exchange) faultproxy.Fault { return faultproxy.Fault{} }

const image = "registry.example/base@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// epoch is when the clock of the memory provider stands still.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func provision(session string) sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: session, RunID: "r", AttemptID: "a", LeaseID: lease.ID, LeaseEpoch: lease.Epoch,
		Target: memory.DefaultTarget,
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 256 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionDurable,
		},
		Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts:    []sandbox.Mount{{MountPath: "/mnt/rw", Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject}},
		ExpiresAt: sandbox.At(epoch.AddDate(100, 0, 0)), // the server's clock is the machine's
	}
}

// active makes an instance that runs.
func active(ctx context.Context, p sandbox.Provider, session string) (sandbox.InstanceID, error) {
	h, err := p.Provision(ctx, provision(session))
	if err != nil {
		return "", err
	}
	_, err = p.Activate(ctx, h.Value.InstanceID)
	return h.Value.InstanceID, err
}

func command(script string) sandbox.Command {
	return sandbox.Command{
		Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{},
		TimeoutSeconds: 10, OutputLimitBytes: sandbox.MaxOutputBytes,
	}
}

func process(script string) sandbox.ProcessRequest {
	return sandbox.ProcessRequest{Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{}}
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one only marked
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
