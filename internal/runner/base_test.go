package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/internal/mount"
)

// What a Run brings back fits into a tree that has changed since, also where it
// began with a change that was never committed.
func TestARunBringsBackWhatAMergeNeeds(t *testing.T) {
	w := newWorld(t, `printf 'ONE\nrun\n3\n4\n5\n6\n' > f; echo new > n`)
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, dir, "f", "one\ntwo\n3\n4\n5\n6\n")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "first")
	write(t, dir, "f", "ONE\ntwo\n3\n4\n5\n6\n")
	var base bytes.Buffer
	w.spec.Repo, w.spec.Base = &Repo{Dir: dir}, &base
	r, err := w.run()
	if err != nil || len(r.Mounts) != 1 || r.Mounts[0].TreeDigest == "" {
		t.Fatalf("%v, %+v", err, r.Mounts)
	}
	write(t, dir, "f", "ONE\ntwo\n3\n4\n5\nSIX\n")
	m, err := mount.Merge(context.Background(), mount.MergeOptions{Dir: dir, Base: &base, Patch: &w.patch, Name: r.RunID, TempDir: t.TempDir()})
	if err != nil || len(m.Conflicts) != 0 || len(m.Written) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	f, ferr := os.ReadFile(filepath.Join(dir, "f"))
	n, nerr := os.ReadFile(filepath.Join(dir, "n"))
	if string(f) != "ONE\nrun\n3\n4\n5\nSIX\n" || string(n) != "new\n" {
		t.Errorf("%q %q %v", f, n, errors.Join(ferr, nerr))
	}
}
