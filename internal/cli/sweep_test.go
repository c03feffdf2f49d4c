package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
)

// TestASweepTakesNoSnapshotThatHasNotExpired: neither the person's sweep nor the one
// for a keeper that is gone knows what is pinned.
func TestASweepTakesNoSnapshotThatHasNotExpired(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := initbin.Bytes(); err != nil {
		t.Skip(err)
	}
	state, err := os.MkdirTemp("", "checkfu-sweep-test-") // short: sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	t.Setenv("CHECKFU_STATE", state)
	if code := Run(t.Context(), []string{"sweep"}, nil, new(bytes.Buffer), new(bytes.Buffer)); code != 0 {
		t.Fatalf("a first sweep: %d", code)
	}
	// Made yesterday, as a clock says that is set so.
	yesterday := time.Now().Add(-24 * time.Hour)
	made := map[string]sandbox.SnapshotID{}
	for _, driver := range []string{"runsc", "runc"} {
		s, err := snapshot.Open(filepath.Join(state, "native-"+driver, "snapshots"), snapshot.Options{Now: func() time.Time { return yesterday }})
		if err != nil {
			t.Fatal(err)
		}
		for name, until := range map[string]time.Duration{"expired": 23 * time.Hour, "kept": 48 * time.Hour} {
			ref, err := s.Capture(t.Context(), sandbox.Snapshot{
				Provider: "native", Placement: sandbox.PlacementLocal, SourceInstanceID: "0123456789abcdef0123456789abcdef", WorkspaceID: "w",
				SessionID: "s", ProfileID: "p", ProfileVersion: 1, ProfileDigest: sandbox.Digest("sha256:" + strings.Repeat("0", 64)),
				ExpiresAt: sandbox.At(yesterday.Add(until)),
			}, nil, snapshot.Source{Form: snapshot.FormTree, Path: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			made[driver+" "+name] = ref.SnapshotID
		}
	}
	there := func(what string) bool {
		driver, _, _ := strings.Cut(what, " ")
		_, err := os.Stat(filepath.Join(state, "native-"+driver, "snapshots", "snapshots", string(made[what])))
		return !errors.Is(err, os.ErrNotExist)
	}

	// For a session of one driver: that host's, and no other's.
	o, err := all.Open(all.NativeRunc, all.Options{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sweepSession(context.Background(), o, "s"), o.Close()); err != nil {
		t.Error(err)
	}
	for what, want := range map[string]bool{"runc expired": false, "runc kept": true, "runsc expired": true, "runsc kept": true} {
		if there(what) != want {
			t.Errorf("after the sweep for a session, %s is there: %v", what, !want)
		}
	}
	for _, want := range []string{"removed snapshot " + string(made["runsc expired"]) + ", which had expired\n", "nothing to remove\n"} {
		var out, complaints bytes.Buffer
		if code := Run(t.Context(), []string{"sweep"}, nil, &out, &complaints); code != 0 || out.String() != want {
			t.Errorf("exit %d, %q, %s; want %q", code, out.String(), complaints.String(), want)
		}
	}
	for what, want := range map[string]bool{"runsc expired": false, "runc kept": true, "runsc kept": true} {
		if there(what) != want {
			t.Errorf("after the sweep, %s is there: %v", what, !want)
		}
	}
}
