package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPass_InTwoParts: wherever the first part has enough, both together are the whole.
func TestPass_InTwoParts(t *testing.T) {
	f, err := os.Open(image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	whole := pass{from: f, size: info.Size()}
	want, err := whole.run(t.Context())
	if err != nil || len(want) != 3 {
		t.Fatalf("%v, %v", want, err)
	}
	for asked := range 8 {
		left := make(chan struct{}, asked)
		for range asked {
			left <- struct{}{}
		}
		begin := whole
		begin.enough = func() bool {
			select {
			case <-left:
				return false
			default:
				return true
			}
		}
		got, next, err := begin.part(t.Context())
		if err != nil || next < int64(min(asked, 1)) || next > int64(asked) {
			t.Errorf("asked %d times, it went on to chunk %d, %v", asked, next, err)
		}
		rest := whole
		rest.first = next
		more, err := rest.run(t.Context())
		if diff := cmp.Diff(want, append(got, more...)); diff != "" || err != nil {
			t.Errorf("parted at %d: %v%s", next, err, diff)
		}
	}
}

// TestCapture_SharedIsOfOneMoment, wherever its bytes are read: in the source, as long
// as that stands still, and afterwards, when that is written to again, in the copy.
func TestCapture_SharedIsOfOneMoment(t *testing.T) {
	dir := onBtrfs(t)
	method(t, dir, MethodShared)
	for name, still := range map[string]time.Duration{"in the copy": 0, "in the source": time.Hour} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			c := noon()
			s := open(t, filepath.Join(dir, "snapshots"), c)
			s.still = still
			from := session(t, dir)
			kept := bytes.Repeat([]byte("before"), 700_000)
			file := filepath.Join(from.at, "f")
			if err := errors.Join(os.WriteFile(file, kept, 0o600), os.WriteFile(file+"-gone", kept, 0o600), os.Remove(file+"-gone")); err != nil {
				t.Fatal(err)
			}
			frozen, err := from.volume.Freeze(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer frozen.Thaw()
			ref, err := s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormImage, Path: from.image, Taken: func() {
				if whole, err := frozen.Thaw(); !whole || err != nil {
					t.Errorf("frozen until it was taken: %v, %v", whole, err)
				}
				f, err := os.OpenFile(file, os.O_RDWR, 0)
				if err == nil {
					_, err = f.Write(bytes.Repeat([]byte("behind"), 700_000))
					err = errors.Join(err, f.Sync(), f.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(s.path("snapshots", string(ref.SnapshotID), "content"))
			if n := bytes.Count(content, kept[:4096]); err != nil || n == 0 || bytes.Contains(content, []byte("behind")) {
				t.Errorf("%d pieces of what was captured, %v", n, err)
			}
			to := resume(t, s, dir, ref)
			if got, err := os.ReadFile(to.at + "/f"); err != nil || !slices.Equal(got, kept) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}
