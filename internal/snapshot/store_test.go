package snapshot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/tree"
	"github.com/checkfu/checkfu/internal/snapshot/treetest"
	"github.com/checkfu/checkfu/sandbox"
)

func TestSnapshot_ComesBackAsItWas(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	source := image(t)
	want, _ := os.ReadFile(source)
	asked := reference(c.in(time.Hour))
	ref, err := s.Capture(t.Context(), asked, plan, Source{Form: FormImage, Path: source})
	if err != nil {
		t.Fatal(err)
	}
	asked.SnapshotID, asked.CreatedAt = ref.SnapshotID, c.in(0)
	if diff := cmp.Diff(asked, ref); diff != "" {
		t.Error(diff)
	}
	if err := ref.Validate(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(source); err != nil { // it depends on nothing
		t.Fatal(err)
	}
	s = open(t, s.dir, c) // as another process would find it
	if !bytes.Equal(restored(t, s, ref), want) {
		t.Error("other bytes came back")
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != ref.SnapshotID || !slices.Equal(all[0].Manifest.Mounts, plan) || all[0].UsedAt != c.in(0) || all[0].Bytes > 64<<10 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestSnapshot_TwentyCyclesOfATree goes through the store each time, and looks by
// a walk that shares nothing with it.
func TestSnapshot_TwentyCyclesOfATree(t *testing.T) {
	treetest.NeedsRoot(t)
	c := noon()
	s := open(t, t.TempDir(), c)
	dir := t.TempDir()
	treetest.Build(t, dir)
	want := treetest.Walk(t, dir)
	for range 20 {
		ref, err := s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormTree, Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Hold(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		dir = t.TempDir()
		err = h.Restore(t.Context(), dir)
		if err := errors.Join(err, h.Close(), s.Destroy(t.Context(), ref.SnapshotID)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, treetest.Walk(t, dir)); diff != "" {
		t.Error(diff)
	}
	if got := left(t, s.dir); got != nil {
		t.Errorf("left: %v", got)
	}
}

// TestCapture_WhatCannotBeKept leaves no part of a snapshot.
func TestCapture_WhatCannotBeKept(t *testing.T) {
	treetest.NeedsRoot(t)
	c := noon()
	s := open(t, t.TempDir(), c)
	device := t.TempDir()
	if err := errors.Join(os.WriteFile(device+"/a", []byte("a"), 0o644), unix.Mknod(device+"/null", unix.S_IFCHR|0o666, 0x103)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	cases := map[string]struct {
		ctx     context.Context
		expires sandbox.Timestamp
		src     Source
		want    error
	}{
		"a device node":             {t.Context(), c.in(time.Hour), Source{Form: FormTree, Path: device}, tree.ErrRefused},
		"a tree that is not there":  {t.Context(), c.in(time.Hour), Source{Form: FormTree, Path: device + "/no"}, os.ErrNotExist},
		"an image that is a link":   {t.Context(), c.in(time.Hour), Source{Form: FormImage, Path: link}, unix.ELOOP},
		"an image that is a device": {t.Context(), c.in(time.Hour), Source{Form: FormImage, Path: device + "/null"}, ErrUnsupported},
		"an unknown form":           {t.Context(), c.in(time.Hour), Source{Form: "tar", Path: device}, ErrUnsupported},
		"a deadline that is now":    {t.Context(), c.in(0), Source{Form: FormImage, Path: image(t)}, ErrExpired},
		"no deadline":               {t.Context(), "", Source{Form: FormImage, Path: image(t)}, ErrExpired},
		"a caller who gave up":      {cancelled, c.in(time.Hour), Source{Form: FormImage, Path: image(t)}, context.Canceled},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			ref, err := s.Capture(k.ctx, reference(k.expires), plan, k.src)
			if !errors.Is(err, k.want) || ref != (sandbox.Snapshot{}) {
				t.Errorf("got %+v, %v", ref, err)
			}
			if got := left(t, s.dir); got != nil {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func TestHold_RefusesWhatDisagrees(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := capture(t, s, c.in(time.Hour))
	cases := map[string]struct {
		change func(*sandbox.Snapshot)
		want   error
	}{
		"":                            {func(*sandbox.Snapshot) {}, nil},
		"snapshot.provider":           {func(r *sandbox.Snapshot) { r.Provider = "docker" }, ErrMismatch},
		"snapshot.placement":          {func(r *sandbox.Snapshot) { r.Placement = "remote" }, ErrMismatch},
		"snapshot.source_instance_id": {func(r *sandbox.Snapshot) { r.SourceInstanceID = "other" }, ErrMismatch},
		"snapshot.workspace_id":       {func(r *sandbox.Snapshot) { r.WorkspaceID = "other" }, ErrMismatch},
		"snapshot.session_id":         {func(r *sandbox.Snapshot) { r.SessionID = "other" }, ErrMismatch},
		"snapshot.profile_id":         {func(r *sandbox.Snapshot) { r.ProfileID = "other" }, ErrMismatch},
		"snapshot.profile_version":    {func(r *sandbox.Snapshot) { r.ProfileVersion++ }, ErrMismatch},
		"snapshot.profile_digest":     {func(r *sandbox.Snapshot) { r.ProfileDigest = "sha256:" }, ErrMismatch},
		"snapshot.created_at":         {func(r *sandbox.Snapshot) { r.CreatedAt = c.in(-time.Second) }, ErrMismatch},
		"snapshot.expires_at":         {func(r *sandbox.Snapshot) { r.ExpiresAt = c.in(2 * time.Hour) }, ErrMismatch},
		"another id":                  {func(r *sandbox.Snapshot) { r.SnapshotID = newID() }, ErrNotFound},
		"a path for an id":            {func(r *sandbox.Snapshot) { r.SnapshotID = "../snapshots/" + r.SnapshotID }, ErrNotFound},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			asked := ref
			k.change(&asked)
			h, err := s.Hold(t.Context(), asked)
			if k.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				h.Close()
				return
			}
			var e *Error
			if !errors.Is(err, k.want) || !errors.As(err, &e) || k.want == ErrMismatch && e.Field != name || h != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestExpiry holds at resume and at clone, to the millisecond, whatever the pin.
func TestExpiry(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := capture(t, s, c.in(time.Hour))
	c.pass(time.Hour - time.Millisecond)
	if h, err := s.Hold(t.Context(), ref); err != nil {
		t.Error(err)
	} else {
		h.Close()
	}
	if gone, err := s.Sweep(t.Context(), c.in(0), c.in(-48*time.Hour), nil); err != nil || len(gone) != 0 {
		t.Errorf("swept %v, %v", gone, err)
	}
	c.pass(time.Millisecond)
	if _, err := s.Hold(t.Context(), ref); !errors.Is(err, ErrExpired) {
		t.Errorf("hold: %v", err)
	}
	if _, err := s.Clone(t.Context(), ref, "other"); !errors.Is(err, ErrExpired) {
		t.Errorf("clone: %v", err)
	}
	gone, err := s.Sweep(t.Context(), c.in(0), c.in(-48*time.Hour), []sandbox.SnapshotID{ref.SnapshotID})
	if err != nil || !slices.Equal(gone, []sandbox.SnapshotID{ref.SnapshotID}) {
		t.Errorf("swept %v, %v", gone, err)
	}
	if got := left(t, s.dir); got != nil {
		t.Errorf("left: %v", got)
	}
}

// TestDamage: whatever changed on the disk is found before anybody sees a byte of
// it, and named.
func TestDamage(t *testing.T) {
	c := noon()
	flip := func(name string, at int64) func(dir string) error {
		return func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			b := make([]byte, 1)
			_, err = f.ReadAt(b, at)
			b[0] ^= 1
			_, werr := f.WriteAt(b, at)
			return errors.Join(err, werr, f.Close())
		}
	}
	cases := map[string]struct {
		damage func(dir string) error
		field  string
	}{
		"a bit":                 {flip("content", 2), "content bytes 0 to 1048576"},
		"a bit in the last one": {flip("content", 3<<20+17), "content bytes 3145728 to 3145748"},
		"a bit of a hole":       {flip("content", 1<<20+99), "content bytes 1048576 to 2097152"},
		"a chunk made zero": {func(d string) error {
			return unix.Fallocate(file(t, d+"/content"), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 2<<20, 1<<20)
		}, "content bytes 2097152 to 3145728"},
		"cut":        {func(d string) error { return os.Truncate(d+"/content", 3<<20) }, "content_bytes"},
		"longer":     {func(d string) error { return os.Truncate(d+"/content", 4<<20) }, "content_bytes"},
		"no content": {func(d string) error { return os.Remove(d + "/content") }, "content"},
		"content that is a link": {func(d string) error {
			return errors.Join(os.Remove(d+"/content"), os.Symlink("/etc/passwd", d+"/content"))
		}, "content"},
		"no manifest":       {func(d string) error { return os.Remove(d + "/manifest.json") }, "manifest"},
		"an empty manifest": {func(d string) error { return os.Truncate(d+"/manifest.json", 0) }, "manifest"},
		"a longer manifest": {func(d string) error { return os.Truncate(d+"/manifest.json", maxManifest+1) }, "manifest"},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), c)
			ref := capture(t, s, c.in(time.Hour))
			if err := k.damage(s.path("snapshots", string(ref.SnapshotID))); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(t.TempDir(), "restored")
			h, err := s.Hold(t.Context(), ref)
			if err == nil {
				err = h.Restore(t.Context(), to)
				h.Close()
			}
			var e *Error
			if name == "content that is a link" {
				if !errors.Is(err, unix.ELOOP) {
					t.Errorf("got %v", err)
				}
			} else if !errors.Is(err, ErrDamaged) || !errors.As(err, &e) || e.Field != k.field || e.ID != string(ref.SnapshotID) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
				t.Error("something of it was restored")
			}
			if err := s.Destroy(t.Context(), ref.SnapshotID); err != nil { // it can be removed all the same
				t.Error(err)
			}
			if got := left(t, s.dir); got != nil {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func file(t testing.TB, path string) int {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// TestDamage_OfATree: a damaged tree is not extracted at all.
func TestDamage_OfATree(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	from := t.TempDir()
	if err := os.WriteFile(from+"/f", []byte("some bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	ref, err := s.Capture(t.Context(), reference(c.in(time.Hour)), nil, Source{Form: FormTree, Path: from})
	if err != nil {
		t.Fatal(err)
	}
	content := s.path("snapshots", string(ref.SnapshotID), "content")
	body, _ := os.ReadFile(content)
	if err := os.WriteFile(content, bytes.Replace(body, []byte("some"), []byte("sane"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	to := t.TempDir()
	if err := h.Restore(t.Context(), to); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if names, _ := os.ReadDir(to); len(names) != 0 {
		t.Errorf("restored: %v", names)
	}
	if _, err := s.Clone(t.Context(), ref, "other"); err != nil && !errors.Is(err, ErrDamaged) {
		t.Errorf("clone: %v", err) // where blocks are shared it is found at its restore
	}
}

func TestOpen_RefusesAnotherDirectory(t *testing.T) {
	c := noon()
	mine := t.TempDir()
	if err := os.WriteFile(mine+"/mine", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	newer := t.TempDir()
	if err := os.WriteFile(newer+"/version", []byte("checkfu.snapshots.v2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, field := range map[string]string{mine: "directory", newer: "version"} {
		_, err := Open(dir, Options{Now: c.now})
		var e *Error
		if !errors.Is(err, ErrUnsupported) || !errors.As(err, &e) || e.Field != field {
			t.Errorf("got %v", err)
		}
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("%s now has %v", dir, names)
		}
	}
}
