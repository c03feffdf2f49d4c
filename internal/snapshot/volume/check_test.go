package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
)

// TestCheck_WhatWasOpenWithoutAName is in the copy of an image, and nobody can reach
// it there.
func TestCheck_WhatWasOpenWithoutAName(t *testing.T) {
	needs(t)
	image, v := mounted(t, 32<<20, 256)
	treetest.Build(t, v.at)
	want := treetest.Walk(t, v.at)
	before := free(t, v.at)
	f, err := os.Create(v.at + "/open")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), os.Remove(f.Name()), os.Mkdir(v.at+"/dir", 0o700)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(v.at + "/dir")
	if err == nil {
		defer dir.Close()
		err = os.Remove(dir.Name())
	}
	if err != nil {
		t.Fatal(err)
	}
	frozen := freeze(t, v)
	other := filepath.Join(t.TempDir(), "image")
	if body, err := os.ReadFile(image); err != nil || os.WriteFile(other, body, 0o600) != nil {
		t.Fatal(err)
	}
	if _, err := frozen.Thaw(); err != nil {
		t.Fatal(err)
	}
	if out, err := fsck(other); err == nil {
		t.Fatalf("the copy is clean already: %s", out)
	}
	if err := Check(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if out, err := fsck(other); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	v = mount(t, other)
	if got := free(t, v.at); got != before {
		t.Errorf("%d blocks are free, %d were", got, before)
	}
	got := treetest.Walk(t, v.at)
	delete(want, ".") // in which names came and went
	delete(got, ".")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCheck_SharedAttributes: files with the same large attributes, as a workload may
// set and a package with file capabilities may bring, of which one is open without a
// name. The kernel would have them share a block, whose count is then wrong in the
// copy, and no copy could be restored: that is the control, a mount of another's.
func TestCheck_SharedAttributes(t *testing.T) {
	needs(t)
	value := bytes.Repeat([]byte("large"), 560)
	// copied leaves such files in a mounted image, and returns a copy of it.
	copied := func(t *testing.T, image, at string) string {
		for _, name := range []string{"/a", "/b", "/c"} {
			if err := errors.Join(os.WriteFile(at+name, []byte("x"), 0o600), unix.Setxattr(at+name, "user.big", value, 0)); err != nil {
				t.Fatal(err)
			}
		}
		open, err := os.Open(at + "/b")
		if err := errors.Join(err, os.Remove(at+"/b"), synced(t, at)); err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		other := filepath.Join(t.TempDir(), "image")
		body, err := os.ReadFile(image)
		if err := errors.Join(err, os.WriteFile(other, body, 0o600)); err != nil {
			t.Fatal(err)
		}
		return other
	}

	image, v := mounted(t, 32<<20, 256)
	other := copied(t, image, v.at)
	if err := Check(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if out, err := fsck(other); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	v = mount(t, other)
	for _, name := range []string{"/a", "/c"} {
		got := make([]byte, len(value))
		if _, err := unix.Getxattr(v.at+name, "user.big", got); err != nil || !bytes.Equal(got, value) {
			t.Errorf("%s: %v", name, err)
		}
	}

	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := Create(t.Context(), image, 32<<20, 256); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer unix.Unmount(at, 0)
	if err := Check(t.Context(), copied(t, image, at)); err == nil {
		t.Error("the kernel shares no block of attributes, so nothing was shown")
	}
}

func free(t *testing.T, at string) uint64 {
	t.Helper()
	if err := synced(t, at); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		t.Fatal(err)
	}
	return st.Bfree
}

// fsck says what e2fsck finds, and changes nothing.
func fsck(image string) (string, error) {
	path, err := find(checker)
	if err != nil {
		return "", err
	}
	out, err := exec.Command(path, "-f", "-n", image).CombinedOutput()
	return string(out), err
}

func TestCheck_Refusals(t *testing.T) {
	needs(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := Create(t.Context(), image, 8<<20, 64); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Check(gone, image); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gave up: %v", err)
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	super, err := readSuper(f)
	if err != nil {
		t.Fatal(err)
	}
	d, err := super.group(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	// What cannot be put right in passing: the root is no directory any more.
	_, err = f.WriteAt(make([]byte, blockBytes), d.at(0x8)*blockBytes)
	if err := errors.Join(err, Check(t.Context(), image)); err == nil || !strings.Contains(err.Error(), checker) {
		t.Errorf("a filesystem without a root: %v", err)
	}
	_, err = f.WriteAt(make([]byte, blockBytes), blockBytes)
	if err := errors.Join(err, Check(t.Context(), image)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a filesystem without its groups: %v", err)
	}
	other := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(other, []byte("no filesystem"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), other); err != nil {
		t.Error(err)
	}
	if err := Check(t.Context(), other+"-none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestSuper_KnowsOfItsFaults as the kernel notes them in the image.
func TestSuper_KnowsOfItsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		state, faults byte
		sound         bool
	}{
		"mounted":             {0, 0, true},
		"unmounted":           {1, 0, true},
		"found damaged":       {2, 0, false},
		"damaged once":        {1, 1, false},
		"damaged, and so on":  {3, 7, false},
		"orphans, recovering": {4, 0, true},
	} {
		s, _, _ := sealed()
		s[0x3a], s[0x194] = c.state, c.faults
		read, err := readSuper(parts(s, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := read.sound(); (err == nil) != c.sound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readSuper(strings.NewReader("")); !errors.Is(err, errNoFilesystem) {
		t.Error(err)
	}
	if _, err := readSuper(failing{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, io.ErrClosedPipe }
