package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/lock"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
)

// pausedSession makes a session of native:runc that was paused an hour ago and is kept
// for a while from now, which may be over, and gives its snapshot's id.
func pausedSession(t *testing.T, state, id, root string, until time.Duration) sandbox.SnapshotID {
	t.Helper()
	paused := time.Now().Add(-time.Hour)
	s, err := snapshot.Open(filepath.Join(state, "native-runc", "snapshots"), snapshot.Options{Now: func() time.Time { return paused }})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Capture(t.Context(), sandbox.Snapshot{
		Provider: "native", Placement: sandbox.PlacementLocal, SourceInstanceID: "0123456789abcdef0123456789abcdef", WorkspaceID: "w",
		SessionID: id, ProfileID: "p", ProfileVersion: 1, ProfileDigest: sandbox.Digest("sha256:" + strings.Repeat("0", 64)),
		ExpiresAt: sandbox.At(time.Now().Add(until)),
	}, nil, snapshot.Source{Form: snapshot.FormTree, Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h, err := keeper.Reserve(state, keeper.Record{
		SessionID: id, Provider: all.NativeRunc, KeepMillis: time.Hour.Milliseconds(), ExpiresAt: sandbox.At(time.Now().Add(until)),
	})
	if err != nil {
		t.Fatal(err)
	}
	instance := sandbox.Instance{RootImage: root, SessionID: id, Materialization: sandbox.Materialization{ProfileDigest: ref.ProfileDigest}}
	if err := errors.Join(h.Pause(instance, ref), h.Close()); err != nil {
		t.Fatal(err)
	}
	return ref.SnapshotID
}

// prunes runs checkfu prune and gives what it says, on both streams.
func prunes(t *testing.T, args ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	if code := Run(t.Context(), append([]string{"prune"}, args...), nil, &out, &complaints); code != 0 {
		t.Errorf("prune %v: exit %d", args, code)
	}
	return out.String() + complaints.String()
}

// busybox imports an image into a state directory.
func busybox(t *testing.T, state string) (*image.Store, image.Image) {
	t.Helper()
	images, err := image.Open(filepath.Join(state, "images"), image.Options{IDBase: native.IDBase})
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Import(t.Context(), imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return images, img
}

// TestAnImageWhoseSessionIsPausedDuringAnImportStays: a paused session holds nothing of
// its image, and prune waits for a pull, for minutes.
func TestAnImageWhoseSessionIsPausedDuringAnImportStays(t *testing.T) {
	state := stateOfItsOwn(t)
	images, img := busybox(t, state)
	gate := filepath.Join(state, "images", "import.lock")
	pull, err := lock.Open(t.Context(), gate, os.O_RDWR, lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer pull.Close()
	said := make(chan string, 1)
	go func() { said <- prunes(t, "--all-images") }()
	for end := time.Now().Add(5 * time.Minute); opened(gate) < 2; {
		select {
		case s := <-said:
			t.Fatalf("prune did not wait: %s", s)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("prune never asked for the lock of imports")
		}
	}
	pausedSession(t, state, "paused", img.Reference, time.Hour)
	if err := pull.Close(); err != nil {
		t.Fatal(err)
	}
	if s := <-said; !strings.Contains(s, "image "+img.Digest+" is in use") || strings.Contains(s, "removed image") {
		t.Errorf("%s", s)
	}
	if _, err := images.Resolve(t.Context(), img.Digest); err != nil {
		t.Error(err)
	}
	if s := prunes(t, "--all-images"); strings.Contains(s, "image ") {
		t.Errorf("%s", s)
	}
	if code := Run(t.Context(), []string{"session", "rm", "paused"}, nil, new(bytes.Buffer), new(bytes.Buffer)); code != 0 {
		t.Fatal(code)
	}
	if s := prunes(t, "--all-images"); !strings.Contains(s, "removed image "+img.Reference+"\n") {
		t.Errorf("%s", s)
	}
}

// TestADryRunNamesWhatGoes: what would be removed is what is, and no more.
func TestADryRunNamesWhatGoes(t *testing.T) {
	state := stateOfItsOwn(t)
	_, img := busybox(t, state)
	live := pausedSession(t, state, "live", "other@sha256:"+strings.Repeat("0", 64), time.Hour)
	expired := pausedSession(t, state, "expired", img.Reference, -time.Minute)
	lost := pausedSession(t, state, "lost", "other@sha256:"+strings.Repeat("0", 64), time.Hour)
	lose(t, state, "lost")
	dry, really := prunes(t, "--dry-run", "--all-images"), prunes(t, "--all-images")
	for _, want := range []string{"session expired", "snapshot " + string(expired), "image " + img.Reference} {
		if !strings.Contains(dry, "would remove "+want+"\n") || !strings.Contains(really, "removed "+want+"\n") {
			t.Errorf("no %s in\n%s\n%s", want, dry, really)
		}
	}
	if got, want := strings.Count(dry, "would remove "), 3; got != want || strings.Count(really, "removed ") != want {
		t.Errorf("%s\n%s", dry, really)
	}
	for _, id := range []sandbox.SnapshotID{live, lost} {
		if !there(filepath.Join(state, "native-runc", "snapshots", "snapshots", string(id))) {
			t.Errorf("%s is gone", id)
		}
	}
}

// lose leaves the record of a session as a keeper that was killed does.
func lose(t *testing.T, state, id string) {
	t.Helper()
	path := filepath.Join(state, "sessions", id, "record.json")
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	active := bytes.Replace(body, []byte(`"state":"paused"`), []byte(`"state":"active"`), 1)
	if bytes.Equal(active, body) {
		t.Fatalf("%s", body)
	}
	if err := os.WriteFile(path, active, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := keeper.Find(state, id); err != nil || l.State != keeper.StateLost || l.Damaged != nil {
		t.Fatalf("%+v, %v", l, err)
	}
}

// opened is how many descriptors this process has of a file.
func opened(path string) (n int) {
	list, _ := filepath.Glob("/proc/self/fd/*") // the pattern is well formed
	for _, fd := range list {
		if to, err := os.Readlink(fd); err == nil && to == path {
			n++
		}
	}
	return n
}
