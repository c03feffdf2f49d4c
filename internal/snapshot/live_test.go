package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// liveFiles are the files of a checkpoint: small, with a hole, and empty.
var liveFiles = map[string][]byte{
	"a.img": []byte("state"),
	"b.img": append(append([]byte("pages"), make([]byte, 3<<20)...), "end"...),
	"c.img": {},
}

func liveSource(t testing.TB) *LiveSource {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, body := range liveFiles {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &LiveSource{Identity: "of this build", Dir: dir}
}

func captureLive(t testing.TB, s *Store, expires sandbox.Timestamp) sandbox.Snapshot {
	t.Helper()
	src := liveSource(t)
	ref, err := s.Capture(t.Context(), reference(expires), plan, Source{Form: FormImage, Path: image(t), Live: src})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(src.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is still where it was: %v", err)
	}
	return ref
}

// verified is the checkpoint of a snapshot, compared with what was captured.
func verified(t testing.TB, s *Store, ref sandbox.Snapshot) error {
	t.Helper()
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		return err
	}
	defer h.Close()
	dir, err := h.VerifyLive(t.Context())
	if err != nil {
		return err
	}
	if h.Manifest.Live.Identity != "of this build" {
		t.Errorf("identity %q", h.Manifest.Live.Identity)
	}
	for name, want := range liveFiles {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	return nil
}

func TestLive_KeptClonedAndRemoved(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := captureLive(t, s, c.in(time.Hour))
	if err := verified(t, s, ref); err != nil {
		t.Fatal(err)
	}
	clone, err := s.Clone(t.Context(), ref, "other")
	if err != nil {
		t.Fatal(err)
	}
	plain := capture(t, s, c.in(time.Hour))
	if err := verified(t, s, plain); !errors.Is(err, ErrNotFound) {
		t.Errorf("of files alone: %v", err)
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	size := map[sandbox.SnapshotID]int64{}
	for _, k := range list {
		size[k.ID] = k.Bytes
	}
	if size[ref.SnapshotID] <= size[plain.SnapshotID] || size[clone.SnapshotID] != size[ref.SnapshotID] {
		t.Errorf("the checkpoint is not counted: %v", size)
	}
	if err := s.Destroy(t.Context(), ref.SnapshotID); err != nil {
		t.Fatal(err)
	}
	if err := verified(t, s, clone); err != nil {
		t.Errorf("a clone without its source: %v", err)
	}
	c.pass(2 * time.Hour)
	if _, err := s.Sweep(t.Context(), c.in(0), c.in(-24*time.Hour), nil); err != nil {
		t.Fatal(err)
	}
	if names := left(t, s.dir); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}

func TestLive_DamageIsFound(t *testing.T) {
	for _, d := range []struct {
		name   string
		do     func(dir string) error
		naming string
	}{
		{"a changed byte", func(dir string) error { return overwrite(filepath.Join(dir, "a.img"), 0, "X") }, "live a.img"},
		{"a byte in a hole", func(dir string) error { return overwrite(filepath.Join(dir, "b.img"), 2<<20, "X") }, "bytes 2097152 to"},
		{"a longer file", func(dir string) error { return overwrite(filepath.Join(dir, "c.img"), 0, "X") }, "live c.img"},
		{"a shorter file", func(dir string) error { return os.Truncate(filepath.Join(dir, "b.img"), 100) }, "live b.img"},
		{"a missing file", func(dir string) error { return os.Remove(filepath.Join(dir, "a.img")) }, "live a.img"},
		{"no directory", func(dir string) error { return os.RemoveAll(dir) }, "live a.img"},
		{"a link", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "a.img")), os.Symlink("/etc/passwd", filepath.Join(dir, "a.img")))
		}, "too many levels"},
	} {
		t.Run(d.name, func(t *testing.T) {
			c := noon()
			s := open(t, t.TempDir(), c)
			ref := captureLive(t, s, c.in(time.Hour))
			if err := d.do(s.path("snapshots", string(ref.SnapshotID), liveDir)); err != nil {
				t.Fatal(err)
			}
			err := verified(t, s, ref)
			if err == nil || !strings.Contains(err.Error(), d.naming) {
				t.Errorf("got %v, want one that names %q", err, d.naming)
			}
			if restored(t, s, ref) == nil { // its files are none the worse
				t.Error("no files")
			}
		})
	}
}

func overwrite(path string, at int64, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), at)
	return errors.Join(err, f.Close())
}

// TestLive_Manifest shows that who knows no checkpoints refuses a manifest that has
// one, and that names cannot lead elsewhere.
func TestLive_Manifest(t *testing.T) {
	valid := func() Manifest {
		ref := reference("2026-11-30T13:00:00.000Z")
		ref.SnapshotID, ref.CreatedAt = newID(), "2026-11-30T12:00:00.000Z"
		return Manifest{
			Snapshot: ref, Mounts: plan, Form: FormImage, ChunkBytes: minChunk, Chunks: []Chunk{},
			Live: &Live{Identity: "x", Files: []LiveFile{{Name: "a", ChunkBytes: minChunk, Chunks: []Chunk{}}}},
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Manifest)
		want   error
	}{
		{"whole", func(*Manifest) {}, nil},
		{"no files", func(m *Manifest) { m.Live.Files = nil }, ErrDamaged},
		{"a path", func(m *Manifest) { m.Live.Files[0].Name = "../a" }, ErrDamaged},
		{"no name", func(m *Manifest) { m.Live.Files[0].Name = "" }, ErrDamaged},
		{"the directory", func(m *Manifest) { m.Live.Files[0].Name = ".." }, ErrDamaged},
		{"twice", func(m *Manifest) { m.Live.Files = append(m.Live.Files, m.Live.Files[0]) }, ErrDamaged},
		{"a negative size", func(m *Manifest) { m.Live.Files[0].Bytes = -1 }, ErrDamaged},
		{"a chunk behind the end", func(m *Manifest) {
			m.Live.Files[0].Chunks = []Chunk{{0, sandbox.Digest("sha256:" + strings.Repeat("0", 64))}}
		}, ErrDamaged},
	} {
		m := valid()
		c.change(&m)
		body, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseManifest(body); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	m := valid()
	m.Schema = Schema
	body, err := canonical.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseManifest(body); !errors.Is(err, ErrUnsupported) {
		t.Errorf("as one of files alone: %v", err)
	}
}
