package examples

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
)

// TestTypeScriptRestarts: a provider that was killed in the middle of a record of its
// journal starts again, knows the snapshots of before, and names in a sweep the
// instances that ended with it.
func TestTypeScriptRestarts(t *testing.T) {
	t.Parallel()
	d := spawnDurable(t, typescriptSkeleton(t, scaffold.Durable), "")
	id, q := d.machine(t, "first")
	d.sh(t, id, "echo kept > file")
	released, err := d.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	lost, _ := d.machine(t, "second")
	if err := d.crash(); err != nil {
		t.Fatal(err)
	}
	journal, err := os.OpenFile(filepath.Join(d.state, "journal"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = journal.WriteString(`{"begins":"op_`)
	if err = errors.Join(err, journal.Close(), d.start(t.Context())); err != nil {
		t.Fatal(err)
	}
	again, err := d.resume(t, q, *released.Value.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.sh(t, again, "cat file"); got != "kept\n" {
		t.Error(got)
	}
	later := sandbox.At(time.Now().Add(90 * time.Minute))
	swept, err := d.Cleanup(t.Context(), sandbox.CleanupRequest{Now: later, OrphanedBefore: later})
	if err != nil || len(swept.InstanceIDs) != 2 || len(swept.SnapshotIDs) != 1 {
		t.Errorf("%v, %v; there were %s and %s", swept, err, lost, again)
	}
}
