package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// TestClone_OutlivesItsSource, whatever becomes of that. The clones are one of the
// source and one of that clone.
func TestClone_OutlivesItsSource(t *testing.T) {
	cases := map[string]func(t *testing.T, s *Store, c *clock, ref sandbox.Snapshot, clones []sandbox.SnapshotID) error{
		"destroyed": func(t *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			return s.Destroy(t.Context(), ref.SnapshotID)
		},
		"swept": func(t *testing.T, s *Store, c *clock, ref sandbox.Snapshot, clones []sandbox.SnapshotID) error {
			gone, err := s.Sweep(t.Context(), c.in(0), c.in(time.Second), clones)
			if !slices.Equal(gone, ids(ref)) {
				t.Errorf("swept %v", gone)
			}
			return err
		},
		"held when it was destroyed": func(t *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			h, err := s.Hold(t.Context(), ref)
			if err != nil {
				return err
			}
			return errors.Join(s.Destroy(t.Context(), ref.SnapshotID), h.Verify(t.Context()), h.Close())
		},
		"resumed, and its home written over": func(t *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			return writeOver(t, s, ref)
		},
		"damaged: no content": func(_ *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			return os.Remove(s.path("snapshots", string(ref.SnapshotID), "content"))
		},
		"damaged: another content": func(_ *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			name := s.path("snapshots", string(ref.SnapshotID), "content")
			return errors.Join(os.Remove(name), os.WriteFile(name, []byte("other"), 0o600))
		},
		"damaged: its manifest": func(_ *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			return os.WriteFile(s.path("snapshots", string(ref.SnapshotID), "manifest.json"), []byte("{}"), 0o600)
		},
		"removed by hand": func(_ *testing.T, s *Store, _ *clock, ref sandbox.Snapshot, _ []sandbox.SnapshotID) error {
			return os.RemoveAll(s.path("snapshots", string(ref.SnapshotID)))
		},
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			c := noon()
			s := open(t, t.TempDir(), c)
			ref := capture(t, s, c.in(time.Hour))
			want := restored(t, s, ref)
			c.pass(time.Minute)
			clone := cloned(t, s, ref, "other")
			asked := ref
			asked.SnapshotID, asked.SessionID, asked.CreatedAt = clone.SnapshotID, "other", c.in(0)
			if diff := cmp.Diff(asked, clone); diff != "" || clone.SnapshotID == ref.SnapshotID {
				t.Error(diff)
			}
			second := cloned(t, s, clone, "third")
			c.pass(-time.Minute) // so that a sweep can tell them apart
			if err := touched(s, ref, c); err != nil {
				t.Fatal(err)
			}
			if err := end(t, s, c, ref, ids(clone, second)); err != nil {
				t.Fatal(err)
			}
			for _, one := range []sandbox.Snapshot{clone, second} {
				if !bytes.Equal(restored(t, s, one), want) {
					t.Error("a clone changed with its source")
				}
			}
			if err := errors.Join(writeOver(t, s, clone), s.Destroy(t.Context(), clone.SnapshotID)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(restored(t, s, second), want) {
				t.Error("a clone changed with another")
			}
			if err := errors.Join(s.Destroy(t.Context(), second.SnapshotID), s.Destroy(t.Context(), ref.SnapshotID)); err != nil {
				t.Fatal(err)
			}
			if got := left(t, s.dir); got != nil {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func cloned(t *testing.T, s *Store, ref sandbox.Snapshot, session string) sandbox.Snapshot {
	t.Helper()
	clone, err := s.Clone(t.Context(), ref, session)
	if err != nil {
		t.Fatal(err)
	}
	return clone
}

// writeOver does what the machine of a resumed snapshot does: it writes all over its
// own image.
func writeOver(t *testing.T, s *Store, ref sandbox.Snapshot) error {
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		return err
	}
	defer h.Close()
	path := filepath.Join(t.TempDir(), "home")
	if err := h.Restore(t.Context(), path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{7}, int(h.Manifest.ContentBytes)), 0)
	return errors.Join(err, f.Sync(), f.Close())
}

// touched notes that a snapshot was used at the clock's time.
func touched(s *Store, ref sandbox.Snapshot, c *clock) error {
	return os.Chtimes(s.path("snapshots", string(ref.SnapshotID)), c.now(), c.now())
}

// TestClone_OfDamagedBytes: where a clone has its source's very file, what a broken
// disk does to that hits both; neither is ever restored wrong. Where it has its own,
// it is whole.
func TestClone_OfDamagedBytes(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := capture(t, s, c.in(time.Hour))
	want := restored(t, s, ref)
	clone := cloned(t, s, ref, "other")
	var files [2]unix.Stat_t
	for i, one := range []sandbox.Snapshot{ref, clone} {
		if err := unix.Stat(s.path("snapshots", string(one.SnapshotID), "content"), &files[i]); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(s.path("snapshots", string(ref.SnapshotID), "content"), os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{7}, 2)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryRestore(t, s, ref); !errors.Is(err, ErrDamaged) {
		t.Errorf("the source: %v", err)
	}
	got, err := tryRestore(t, s, clone)
	if files[0].Ino == files[1].Ino {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("the clone, of one file with its source: %v", err)
		}
	} else if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the clone: %v", err)
	}
}

func tryRestore(t *testing.T, s *Store, ref sandbox.Snapshot) ([]byte, error) {
	t.Helper()
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	path := filepath.Join(t.TempDir(), "restored")
	if err := h.Restore(t.Context(), path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// TestClone_Copies where there is nothing to share any more: its source was destroyed
// while it was held.
func TestClone_Copies(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := capture(t, s, c.in(time.Hour))
	want := restored(t, s, ref)
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := s.Destroy(t.Context(), ref.SnapshotID); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		name   string
		damage []byte
		want   error
	}{{"whole", nil, nil}, {"damaged", []byte{7}, ErrDamaged}} {
		if k.damage != nil {
			f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", h.content.Fd()), os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt(k.damage, 2)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		st, err := s.stage(t.Context(), "clone")
		if err != nil {
			t.Fatal(err)
		}
		m := h.Manifest
		m.Snapshot.SnapshotID = st.id
		if err := errors.Join(st.clone(t.Context(), h, &m), st.close()); !errors.Is(err, k.want) {
			t.Errorf("%s: %v", k.name, err)
		}
		if k.want == nil {
			if !bytes.Equal(restored(t, s, m.Snapshot), want) {
				t.Errorf("%s: other bytes", k.name)
			}
			if err := s.Destroy(t.Context(), m.Snapshot.SnapshotID); err != nil {
				t.Fatal(err)
			}
		}
		if got := left(t, s.dir); got != nil {
			t.Errorf("%s: left %v", k.name, got)
		}
	}
}

// TestClone_Refusals: nothing is left of one that was not made, and time does not go
// backwards from a source to its clone.
func TestClone_Refusals(t *testing.T) {
	c := noon()
	s := open(t, t.TempDir(), c)
	ref := capture(t, s, c.in(time.Hour))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := s.Clone(gone, ref, "other"); !errors.Is(err, context.Canceled) || got != (sandbox.Snapshot{}) {
		t.Errorf("a caller who gave up: %+v, %v", got, err)
	}
	if got := left(t, s.dir); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
	c.pass(-time.Hour) // somebody turned the clock back
	if clone := cloned(t, s, ref, "other"); clone.CreatedAt.Before(ref.CreatedAt) {
		t.Errorf("created at %s, the source at %s", clone.CreatedAt, ref.CreatedAt)
	}
}
