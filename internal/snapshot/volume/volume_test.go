package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
)

// needs skips by name what this host cannot do.
func needs(t *testing.T) {
	t.Helper()
	treetest.NeedsRoot(t)
	if err := probed(); errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

var probed = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	return errors.Join(Probe(context.Background(), dir), os.Remove(dir))
})

// mounted makes an image and mounts it until the test ends; the loop device is
// gone then.
func mounted(t *testing.T, bytes, inodes int64) (image string, v *Volume) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	if err := Create(t.Context(), image, bytes, inodes); err != nil {
		t.Fatal(err)
	}
	return image, mount(t, image)
}

func mount(t *testing.T, image string) *Volume {
	t.Helper()
	v, err := Mount(image, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmounted(t, v, image) })
	return v
}

// unmounted ends a mount and sees its device go.
func unmounted(t *testing.T, v *Volume, image string) {
	t.Helper()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	treetest.Unmount(t, v.at)
	none(t, image)
}

func freeze(t *testing.T, v *Volume) *Frozen {
	t.Helper()
	f, err := v.Freeze(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Thaw() })
	return f
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
	image, v := mounted(t, 64<<20, 4096)
	treetest.Build(t, v.at)
	want := treetest.Walk(t, v.at)
	frozen := freeze(t, v)
	body, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(other, body, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if was, err := frozen.Thaw(); err != nil || was != want {
			t.Fatalf("frozen: %v, want %v, %v", was, want, err)
		}
	}
	to := mount(t, other).at
	if diff := cmp.Diff(want, treetest.Walk(t, to)); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(to+"/outputs/plain", []byte("written"), 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, treetest.Walk(t, v.at)); diff != "" {
		t.Errorf("a write to the copy changed the other: %s", diff)
	}
}

// TestItsSizeHolds: bytes and files, and no more of either.
func TestItsSizeHolds(t *testing.T) {
	needs(t)
	_, v := mounted(t, 8<<20, 256)
	at := v.at
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
	_, v := mounted(t, 8<<20, 64)
	at := v.at
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mounted with flags %x", st.Flags)
	}
	if names, err := os.ReadDir(at); err != nil || len(names) != 1 || names[0].Name() != "lost+found" {
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
		"an image that is none":   func() error { _, err := Mount(dir+"/there", t.TempDir()); return err },
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
	_, v := mounted(t, 8<<20, 64)
	at := v.at
	if err := os.Mkdir(at+"/below", 0o700); err != nil {
		t.Fatal(err)
	}
	memory := t.TempDir()
	if err := unix.Mount("none", memory, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(memory, 0)
	for _, dir := range []string{t.TempDir(), memory, at + "/below", at + "/none"} {
		if f, err := open(dir); err == nil {
			f.Close()
			t.Errorf("%s could be frozen", dir)
		}
		if frozen, err := Thaw(dir); err != nil || frozen {
			t.Errorf("%s: %v, %v", dir, frozen, err)
		}
	}
}
