package snapshot

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func noon() *clock { return &clock{t: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

// in is a time that lies so long after the clock's.
func (c *clock) in(d time.Duration) sandbox.Timestamp { return sandbox.At(c.now().Add(d)) }

func open(t testing.TB, dir string, c *clock) *Store {
	t.Helper()
	s, err := Open(dir, Options{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func reference(expires sandbox.Timestamp) sandbox.Snapshot {
	return sandbox.Snapshot{
		Provider: "native", Placement: sandbox.PlacementLocal, SourceInstanceID: "instance", WorkspaceID: "workspace",
		SessionID: "session", ProfileID: "profile", ProfileVersion: 3,
		ProfileDigest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ExpiresAt: expires,
	}
}

var plan = []sandbox.Mount{{MountPath: "/workspace/repo", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}}

// image is a file as a source: 3 MiB and a bit, of which the middle is a hole.
func image(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, body := range map[int64]string{0: "first", 2<<20 + 5000: "later", 3<<20 + 17: "end"} {
		if _, err := f.WriteAt([]byte(body), at); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func capture(t testing.TB, s *Store, expires sandbox.Timestamp) sandbox.Snapshot {
	t.Helper()
	ref, err := s.Capture(t.Context(), reference(expires), plan, Source{Form: FormImage, Path: image(t)})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// restored is the image of a snapshot.
func restored(t testing.TB, s *Store, ref sandbox.Snapshot) []byte {
	t.Helper()
	h, err := s.Hold(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	path := filepath.Join(t.TempDir(), "restored")
	if err := h.Restore(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// left names everything in a store but the version and the lock.
func left(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	for _, d := range []string{"snapshots", "staging", "trash"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, d+"/"+e.Name())
		}
	}
	return all
}
