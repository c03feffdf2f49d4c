package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCrashLeftovers: what a killed process left in tmp is never used, and is
// removed; what a living one works in stays.
func TestCrashLeftovers(t *testing.T) {
	s := openStore(t, Options{})
	img, err := s.Import(t.Context(), craft(t, nil, layerOf(t, e{name: "f", body: "x"})).directory(t))
	if err != nil {
		t.Fatal(err)
	}
	// A child that stages, fills half of a tree, and kills itself.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestCrashingChild$")
	cmd.Env = append(os.Environ(), "IMAGE_TEST_CRASH="+s.dir, "IMAGE_TEST_DIGEST="+img.Digest)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the child lived: %s", out)
	}
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil || len(left) != 1 {
		t.Fatalf("the child left %v, %v", left, err)
	}
	alive, err := s.stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer alive.close()
	r, err := s.Rootfs(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if err := s.Verify(t.Context(), img.Digest); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.path("tmp", left[0].Name())); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what the crash left is still there")
	}
	if _, err := os.Stat(alive.dir); err != nil {
		t.Error("somebody's living work was swept:", err)
	}
}

func TestCrashingChild(t *testing.T) {
	dir := os.Getenv("IMAGE_TEST_CRASH")
	if dir == "" {
		t.Skip("the child of TestCrashLeftovers")
	}
	s, err := Open(dir, Options{Progress: func(p Progress) {
		if p.Stage == "unpack" {
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			select {}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Rootfs(t.Context(), os.Getenv("IMAGE_TEST_DIGEST"))
}

func TestCancelled(t *testing.T) {
	s := openStore(t, Options{})
	img, err := s.Import(t.Context(), craft(t, nil, layerOf(t, e{name: "f", body: "x"})).directory(t))
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, s.dir)
	ctx, cancel := context.WithCancel(t.Context())
	s.opt.Progress = func(Progress) { cancel() }
	if _, err := s.Rootfs(ctx, img.Digest); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// A held import lock is waited for no longer than the context allows.
	unlock, err := s.lock(t.Context(), "import.lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := s.Import(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
		t.Error(diff)
	}
}

func TestOpenRefusesOtherDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "x"), Options{IDBase: 1<<32 - 1}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, snapshot(t, dir)); diff != "" {
		t.Error(diff)
	}
}
