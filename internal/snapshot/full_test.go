package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
	"github.com/checkfu/checkfu/sandbox"
)

// TestAFullDisk: no part of a snapshot stays, and what was kept before is whole.
func TestAFullDisk(t *testing.T) {
	treetest.NeedsRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	defer treetest.Unmount(t, dir)
	c := noon()
	s := open(t, filepath.Join(dir, "store"), c)
	kept := capture(t, s, c.in(time.Hour))
	want := restored(t, s, kept)
	before := left(t, s.dir)

	large := t.TempDir()
	if err := os.WriteFile(large+"/f", bytes.Repeat([]byte{1}, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]func() error{
		"capture of an image": func() error {
			_, err := s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormImage, Path: large + "/f"})
			return err
		},
		"capture of a tree": func() error {
			_, err := s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormTree, Path: large})
			return err
		},
		"clone": func() error {
			if err := os.WriteFile(dir+"/filler", bytes.Repeat([]byte{1}, 3<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			defer os.Remove(dir + "/filler")
			_, err := s.Clone(t.Context(), kept, "other")
			return err
		},
		"restore": func() error {
			if err := os.WriteFile(dir+"/filler", bytes.Repeat([]byte{1}, 3<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			defer os.Remove(dir + "/filler")
			h, err := s.Hold(t.Context(), kept)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			err = h.Restore(t.Context(), dir+"/restored")
			if _, serr := os.Lstat(dir + "/restored"); !errors.Is(serr, os.ErrNotExist) {
				t.Error("a part of it was restored")
			}
			return err
		},
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			var e *Error
			if err := call(); !errors.Is(err, unix.ENOSPC) || !errors.As(err, &e) {
				t.Errorf("got %v", err)
			}
			if got := left(t, s.dir); len(got) != len(before) {
				t.Errorf("left: %v", got)
			}
			if !bytes.Equal(restored(t, s, kept), want) {
				t.Error("what was kept has other bytes")
			}
		})
	}
	if _, err := s.Sweep(t.Context(), c.in(2*time.Hour), c.in(0), []sandbox.SnapshotID{}); err != nil {
		t.Error(err) // a full disk is no reason not to make room
	}
}

// TestCapture_NotAcknowledgedIsNotThere: a snapshot that is in its place and cannot be
// forced to the disk goes in one step, as it came.
func TestCapture_NotAcknowledgedIsNotThere(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	c, steps := noon(), []string{}
	s, err := Open(t.TempDir(), Options{Now: c.now, Step: func(step string) {
		if steps = append(steps, step); step == "capture: renamed" { // nothing can be opened any more
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormImage, Path: image(t)})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("acknowledged %+v, %v", ref, err)
	}
	if names, err := os.ReadDir(s.path("snapshots")); err != nil || len(names) != 0 {
		t.Errorf("there: %v, %v", names, err)
	}
	if last := steps[len(steps)-1]; last != "destroy: renamed" {
		t.Errorf("the last step is %q", last)
	}
	if _, err := s.Sweep(t.Context(), c.in(0), c.in(0), nil); err != nil {
		t.Error(err)
	}
	if got := left(t, s.dir); got != nil {
		t.Errorf("left: %v", got)
	}
}
