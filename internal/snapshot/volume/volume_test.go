package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
)

// needs skips by name what this host cannot do.
func needs(t *testing.T) {
	t.Helper()
	treetest.NeedsRoot(t)
	if err := Probe(t.Context(), t.TempDir()); errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// mounted makes an image and mounts it until the test ends; the loop device is
// gone then.
func mounted(t *testing.T, bytes, inodes int64) (image, at string) {
	t.Helper()
	image, at = filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := Create(t.Context(), image, bytes, inodes); err != nil {
		t.Fatal(err)
	}
	mount(t, image, at)
	return image, at
}

func mount(t *testing.T, image, at string) {
	t.Helper()
	if err := Mount(image, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		treetest.Unmount(t, at)
		none(t, image)
	})
}

// none sees the last loop device of an image go.
func none(t *testing.T, image string) {
	t.Helper()
	treetest.Eventually(t, "no loop device of "+image, func() error {
		if n := devices(t, image); n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// devices counts the loop devices of an image.
func devices(t *testing.T, image string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if of, err := os.ReadFile(path); err == nil && string(bytes.TrimSpace(of)) == image {
			n++
		}
	}
	return n
}

// TestACopyOfTheImageIsACopyOfAll: all that a filesystem can hold, with the image
// copied while it is mounted and frozen.
func TestACopyOfTheImageIsACopyOfAll(t *testing.T) {
	needs(t)
	image, at := mounted(t, 64<<20, 4096)
	treetest.Build(t, at)
	want := treetest.Walk(t, at)
	if err := Freeze(at); err != nil {
		t.Fatal(err)
	}
	defer Thaw(at)
	body, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(other, body, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if frozen, err := Thaw(at); err != nil || frozen != want {
			t.Fatalf("frozen: %v, want %v, %v", frozen, want, err)
		}
	}
	to := t.TempDir()
	mount(t, other, to)
	if diff := cmp.Diff(want, treetest.Walk(t, to)); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(to+"/outputs/plain", []byte("written"), 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, treetest.Walk(t, at)); diff != "" {
		t.Errorf("a write to the copy changed the other: %s", diff)
	}
}

// TestItsSizeHolds: bytes and files, and no more of either.
func TestItsSizeHolds(t *testing.T) {
	needs(t)
	_, at := mounted(t, 8<<20, 256)
	if err := os.WriteFile(at+"/large", make([]byte, 9<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("9 MiB in 8: %v", err)
	}
	if err := os.Remove(at + "/large"); err != nil {
		t.Fatal(err)
	}
	made := 0
	for ; made < 1000; made++ {
		if err := os.WriteFile(at+"/"+strconv.Itoa(made), nil, 0o600); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
			break
		}
	}
	if made < 200 || made > 256 {
		t.Errorf("%d files of 256", made)
	}
}

// TestNothingInItRunsAsItsOwner: no special bits, no devices.
func TestNothingInItRunsAsItsOwner(t *testing.T) {
	needs(t)
	_, at := mounted(t, 8<<20, 64)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mounted with flags %x", st.Flags)
	}
	if names, err := os.ReadDir(at); err != nil || len(names) != 0 {
		t.Errorf("a new one has %v, %v", names, err)
	}
}

func TestCreateLeavesNothingOfAFailure(t *testing.T) {
	needs(t)
	dir := t.TempDir()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := os.WriteFile(dir+"/there", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, create := range map[string]func() error{
		"no room for the files":   func() error { return Create(t.Context(), dir+"/a", 1<<20, 1<<20) },
		"a caller who gave up":    func() error { return Create(cancelled, dir+"/b", 8<<20, 64) },
		"something that is there": func() error { return Create(t.Context(), dir+"/there", 8<<20, 64) },
		"an image that is none":   func() error { return Mount(dir+"/there", t.TempDir()) },
	} {
		if err := create(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
	none(t, dir+"/there")
}

// TestNothingButAnImageIsFrozen: not the host below a directory where none is
// mounted, nor any other filesystem.
func TestNothingButAnImageIsFrozen(t *testing.T) {
	needs(t)
	_, at := mounted(t, 8<<20, 64)
	if err := os.Mkdir(at+"/below", 0o700); err != nil {
		t.Fatal(err)
	}
	memory := t.TempDir()
	if err := unix.Mount("none", memory, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(memory, 0)
	for _, dir := range []string{t.TempDir(), memory, at + "/below", at + "/none"} {
		if err := Freeze(dir); err == nil {
			t.Errorf("%s was frozen", dir)
		}
		if frozen, err := Thaw(dir); err != nil || frozen {
			t.Errorf("%s: %v, %v", dir, frozen, err)
		}
	}
}
