package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/server"
)

// stateOfItsOwn is a state directory, short because sockets lie below it.
func stateOfItsOwn(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := initbin.Bytes(); err != nil {
		t.Skip(err)
	}
	state, err := os.MkdirTemp("", "checkfu-cli-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("CHECKFU_STATE", state)
	return state
}

// keep puts a snapshot into an area, "runc" or "runc-served", as it was captured at a
// time, and returns where it lies.
func keep(t *testing.T, state, area string, captured time.Time, until time.Duration) (sandbox.SnapshotID, string) {
	t.Helper()
	dir := filepath.Join(state, "native-"+area, "snapshots")
	s, err := snapshot.Open(dir, snapshot.Options{Now: func() time.Time { return captured }})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Capture(t.Context(), sandbox.Snapshot{
		Provider: "native", Placement: sandbox.PlacementLocal, SourceInstanceID: "0123456789abcdef0123456789abcdef", WorkspaceID: "w",
		SessionID: "s", ProfileID: "p", ProfileVersion: 1, ProfileDigest: sandbox.Digest("sha256:" + strings.Repeat("0", 64)),
		ExpiresAt: sandbox.At(captured.Add(until)),
	}, nil, snapshot.Source{Form: snapshot.FormTree, Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ref.SnapshotID, filepath.Join(dir, "snapshots", string(ref.SnapshotID))
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestAStrangersCleanupTakesNothingOfASession: whoever calls cleanup through the wire,
// and the suite, sweeps without pins whatever is old. That takes its own alone.
func TestAStrangersCleanupTakesNothingOfASession(t *testing.T) {
	state := stateOfItsOwn(t)
	var errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: new(bytes.Buffer), stderr: &errs}
	hour := time.Now().Add(-time.Hour)
	for _, name := range []string{all.NativeRunsc, all.NativeRunc} { // those that keep anything
		driver := strings.TrimPrefix(name, all.Native+":")
		_, ofSession := keep(t, state, driver, hour, 24*time.Hour)
		var o server.Options
		served, _, err := a.openServed(t.Context(), name, 0, &o)
		if err != nil {
			t.Fatal(err)
		}
		defer served.Close()
		tested, closeTested, err := a.openHost(t.Context(), name, &conformanceFlags{plan: true})
		if err != nil {
			t.Fatal(err)
		}
		defer closeTested()
		for area, p := range map[string]sandbox.Provider{"served": served.Provider, "tested": tested.Provider} {
			id, own := keep(t, state, driver+"-"+area, hour, 24*time.Hour)
			now := sandbox.At(time.Now())
			swept, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
			if err != nil || !slices.Equal(swept.SnapshotIDs, []sandbox.SnapshotID{id}) || there(own) {
				t.Errorf("%s, %s: swept %q, its own is %s: %v", name, area, swept.SnapshotIDs, id, err)
			}
			if !there(ofSession) {
				t.Fatalf("%s, %s: the session's snapshot is gone", name, area)
			}
		}
	}
}

// TestNoCensusCountsWhatIsOutsideItsArea: machines of sessions begin and end while the
// suite runs.
func TestNoCensusCountsWhatIsOutsideItsArea(t *testing.T) {
	state := t.TempDir()
	for _, at := range []string{"native-runc/instances/a", "native-runsc/instances/.new-b", "native-runc-tested/instances/c", "native-runc-served/instances/d"} {
		if err := os.MkdirAll(filepath.Join(state, at), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	got := outside(state, filepath.Join(state, "native-runc-tested"))
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("%q", got)
	}
}
