package snapshot

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// TestManyAtOnce: two stores of one directory, as two processes have them, make,
// clone, restore, destroy and sweep at once. Whoever holds a snapshot reads all of
// it, and what is destroyed under a call is not found, never half there.
func TestManyAtOnce(t *testing.T) {
	c := noon()
	dir := t.TempDir()
	stores := []*Store{open(t, dir, c), open(t, dir, c)}
	shared := capture(t, stores[0], c.in(time.Hour))
	source := image(t)
	var group sync.WaitGroup
	fine := func(err error) {
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	for n := range 8 {
		s := stores[n%2]
		group.Go(func() {
			for range 5 {
				ref, err := s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormImage, Path: source})
				fine(err)
				_, err = s.Clone(t.Context(), ref, "other")
				fine(err)
				_, err = s.Clone(t.Context(), shared, "other")
				fine(err)
				fine(s.Destroy(t.Context(), ref.SnapshotID))
			}
		})
	}
	for n := range 2 {
		s := stores[n]
		group.Go(func() {
			for range 10 {
				all, err := s.List(t.Context())
				fine(err)
				for _, k := range all {
					h, err := s.Hold(t.Context(), k.Manifest.Snapshot)
					if err == nil {
						fine(h.Verify(t.Context()))
						err = h.Close()
					}
					if k.Err == nil {
						fine(err)
					}
				}
				_, err = s.Sweep(t.Context(), c.in(0), c.in(time.Millisecond), []sandbox.SnapshotID{shared.SnapshotID})
				fine(err)
			}
		})
	}
	group.Wait()
	if _, err := stores[0].Sweep(t.Context(), c.in(2*time.Hour), c.in(0), nil); err != nil {
		t.Error(err)
	}
	if got := left(t, dir); got != nil {
		t.Errorf("left: %v", got)
	}
}
