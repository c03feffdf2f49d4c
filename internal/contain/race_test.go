//go:build linux

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// swap exchanges two names as fast as the kernel can, as a hostile guest does,
// until the test ends or stop is called.
func swap(t *testing.T, a, b string) (stop func()) {
	t.Helper()
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	}()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			close(done)
			<-stopped
		}
	}
	t.Cleanup(stop)
	return stop
}

// swapTree makes dir/x, a directory that is swapped with a link to outside.
func swapTree(t *testing.T) (root *Root, dir, outside string, stop func()) {
	t.Helper()
	dir, outside = t.TempDir(), t.TempDir()
	write(t, dir+"/x/file", "inside")
	write(t, outside+"/file", "outside")
	must(t, os.Symlink(outside, dir+"/y"))
	return open(t, dir), dir, outside, swap(t, dir+"/x", dir+"/y")
}

// readChecked is the control: what programs do that compare paths.
func readChecked(dir, rel string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(dir, rel))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(real, dir+"/") {
		return nil, ErrOutsideRoot
	}
	return os.ReadFile(real)
}

func TestReadUnderSwapper(t *testing.T) {
	root, dir, _, _ := swapTree(t)
	reads := 100_000
	if testing.Short() {
		reads = 10_000
	}
	var inside, outside int
	for range reads {
		data, err := root.ReadFile(t.Context(), "x/file", 100)
		switch {
		case err == nil && string(data) == "inside":
			inside++
		case errors.Is(err, ErrOutsideRoot):
			outside++
		default:
			t.Fatalf("read %q, %v", data, err)
		}
	}
	if inside == 0 || outside == 0 {
		t.Errorf("the race was cold: %d reads inside, %d refused", inside, outside)
	}

	// Under the same swapper the control leaks, else this test shows nothing.
	leaks, tries := 0, 0
	for limit := time.Now().Add(time.Minute); leaks == 0 && time.Now().Before(limit); tries++ {
		if data, err := readChecked(dir, "x/file"); err == nil && string(data) == "outside" {
			leaks++
		}
	}
	if leaks == 0 {
		t.Fatalf("the race was too cold: the control did not leak in %d reads", tries)
	}
	t.Logf("%d reads inside, %d refused, 0 leaks; the control leaked after %d reads", inside, outside, tries)
}

func TestWriteUnderSwapper(t *testing.T) {
	root, dir, outside, stop := swapTree(t)
	var written, refusals int
	for n := 0; n < 200_000 && (n < 10_000 || written == 0 || refusals == 0); n++ {
		err := root.WriteFile(t.Context(), "x/new/file", []byte("data"), 0o644)
		switch {
		case err == nil:
			written++
		case errors.Is(err, ErrOutsideRoot):
			refusals++
		default:
			t.Fatal(err)
		}
		if err := root.Remove("x/file"); n%2 == 1 && err == nil {
			err = root.Symlink("anything", "x/file")
			if err != nil && !errors.Is(err, ErrOutsideRoot) && !errors.Is(err, ErrExists) {
				t.Fatal(err)
			}
		}
		if err := root.RemoveAll(t.Context(), "x/new"); err != nil && !errors.Is(err, ErrOutsideRoot) {
			t.Fatal(err)
		}
	}
	stop()
	if written == 0 || refusals == 0 {
		t.Errorf("the race was cold: %d written, %d refused", written, refusals)
	}
	names, err := os.ReadDir(outside)
	must(t, err)
	if data, err := os.ReadFile(outside + "/file"); len(names) != 1 || err != nil || string(data) != "outside" {
		t.Errorf("outside was touched: %v, %q, %v", names, data, err)
	}
	_ = dir
}

// RemoveAll of a tree whose inner directory turns into a link and back never
// empties what the link points to.
func TestRemoveAllUnderSwapper(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/victim/file", "outside")
	root := open(t, dir)
	for range 300 {
		write(t, dir+"/tree/x/a/file", "inside")
		must(t, os.Symlink(outside+"/victim", dir+"/tree/y"))
		stop := swap(t, dir+"/tree/x", dir+"/tree/y")
		err := root.RemoveAll(t.Context(), "tree")
		stop()
		if errors.Is(err, ErrChanged) { // honest under such a guest; a dead one cannot hold it up
			err = root.RemoveAll(t.Context(), "tree")
		}
		must(t, err)
		if data, err := os.ReadFile(outside + "/victim/file"); err != nil || string(data) != "outside" {
			t.Fatalf("outside was touched: %q, %v", data, err)
		}
	}
}

// A directory that moves to and fro between two others is in every listing
// that does not say "changed", once.
func TestListUnderMover(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/dir/secret", "x")
	write(t, dir+"/b/dir/.empty", "")
	for _, side := range []string{"/a", "/b"} { // something to walk, so that the race has room
		for n := range 50 {
			write(t, fmt.Sprintf("%s%s/other%d/file", dir, side, n), "x")
		}
	}
	root := open(t, dir)
	swap(t, dir+"/a/dir", dir+"/b/dir")
	var told, changed int
	for limit := time.Now().Add(time.Minute); (told < 100 || changed < 200) && time.Now().Before(limit); {
		list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 200, Digests: changed%2 == 0})
		if errors.Is(err, ErrChanged) {
			changed++
			continue
		}
		must(t, err)
		told++
		found := 0
		for _, entry := range list {
			if filepath.Base(entry.Path) == "secret" {
				found++
			}
		}
		if found != 1 || len(list) != 102 {
			t.Fatalf("secret is listed %d times among %d entries", found, len(list))
		}
	}
	t.Logf("%d told, %d changed", told, changed)
	if changed == 0 {
		t.Error("the race was cold")
	}
}
