package wire

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	images "github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/sandbox"
)

// remote is a provider behind a wire, and an instance of it that runs.
type remote struct {
	*link
	*served
	id sandbox.InstanceID
}

// across runs a test over the wire against a provider without a machine, and
// against one with real processes in real machines.
func across(t *testing.T, window int, test func(t *testing.T, r remote)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		settled(t)
		s := serveWindow(t, memory.New(memory.Options{Seed: "across"}), window)
		begin(t, s, provision("s"), test)
	})
	t.Run("runc", func(t *testing.T) {
		if _, err := exec.LookPath("runc"); err != nil || os.Geteuid() != 0 {
			t.Skip("needs root and runc")
		}
		p, q := machines(t)
		begin(t, serveWindow(t, p, window), q, test)
	})
}

func begin(t *testing.T, s *served, q sandbox.ProvisionRequest, test func(t *testing.T, r remote)) {
	t.Helper()
	l := s.connect(clean, nil)
	h, err := l.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	id := h.Value.InstanceID
	t.Cleanup(func() {
		if err := l.Destroy(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	if _, err := l.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	test(t, remote{l, s, id})
}

// machines is the native provider on the host's runc, served as the product
// serves it, and a request that it takes.
func machines(t *testing.T) (sandbox.Provider, sandbox.ProvisionRequest) {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o711); err != nil { // machines run under ids of their own and pass through
			t.Fatal(err)
		}
	}
	store, err := images.Open(filepath.Join(dir, "images"), images.Options{IDBase: native.IDBase})
	if err != nil {
		t.Fatal(err)
	}
	imported, err := store.Import(t.Context(), imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := all.Open(all.NativeRunc, all.Options{Dir: dir, Images: store, Served: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	q := provision("s")
	q.Target, q.Platform = opened.Envelope.Target(), opened.Envelope.Platforms[0]
	q.RootImage = "busybox@" + imported.Digest
	q.Profile.BaseImage, q.Profile.RetentionMode = q.RootImage, sandbox.RetentionEphemeralZDR
	q.Profile.ResourceLimits = sandbox.Resources{CPUMillis: 2000, MemoryBytes: 256 << 20, DiskBytes: 64 << 20, MaxProcesses: 64, MaxDurationSeconds: 600}
	q.ExpiresAt = sandbox.At(time.Now().Add(time.Hour))
	return opened.Provider, q
}

// spawn starts a live process.
func (r remote) spawn(t *testing.T, request sandbox.ProcessRequest) sandbox.Process {
	t.Helper()
	p, err := r.OpenProcess(t.Context(), r.id, newProcessID(), request)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
