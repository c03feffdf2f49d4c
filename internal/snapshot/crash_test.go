package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// The crash census. A child does everything that a store does and is killed at
// one step, for each step that there is. What it was told to be done must be
// done, what it was not told may be whole or absent, and once a sweep went over
// it nothing else is left.

// childSteps runs a whole life in a store and prints what was acknowledged, one
// line at once.
func childSteps(t *testing.T, s *Store, c *clock) {
	source := os.Getenv("SNAPSHOT_TEST_SOURCE")
	acknowledge := func(what string, ref sandbox.Snapshot) {
		body, err := canonical.Encode(ref)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(os.Stdout, "ack %s %s\n", what, body)
	}
	must := func(ref sandbox.Snapshot, err error) sandbox.Snapshot {
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	first := must(s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormImage, Path: source, Live: liveSource(t)}))
	acknowledge("made", first)
	treeRef := must(s.Capture(t.Context(), reference(c.in(time.Hour)), plan, Source{Form: FormTree, Path: filepath.Dir(source)}))
	acknowledge("made", treeRef)
	clone := must(s.Clone(t.Context(), first, "other"))
	acknowledge("made", clone)
	for _, ref := range []sandbox.Snapshot{first, treeRef} {
		h, err := s.Hold(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "restored")
		if ref == treeRef {
			if err := os.Mkdir(to, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if ref == first {
			if _, err := h.VerifyLive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(h.Restore(t.Context(), to), h.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Destroy(t.Context(), clone.SnapshotID); err != nil {
		t.Fatal(err)
	}
	acknowledge("destroyed", clone)
	short := must(s.Capture(t.Context(), reference(c.in(time.Millisecond)), plan, Source{Form: FormImage, Path: source}))
	if gone, err := s.Sweep(t.Context(), c.in(time.Millisecond), c.in(-time.Hour), nil); err != nil || !slices.Equal(gone, ids(short)) {
		t.Fatalf("swept %v, %v", gone, err)
	}
	acknowledge("destroyed", short)
}

// TestCrashChild is the child: it dies just after the step whose number it was
// given.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv("SNAPSHOT_TEST_CRASH")
	if dir == "" {
		t.Skip("the child of TestCrashCensus")
	}
	last, err := strconv.Atoi(os.Getenv("SNAPSHOT_TEST_STEP"))
	if err != nil {
		t.Fatal(err)
	}
	n, c := 0, noon()
	s, err := Open(dir, Options{Now: c.now, Step: func(step string) {
		if n++; n == last {
			fmt.Fprintf(os.Stdout, "died %s\n", step)
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			select {}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	childSteps(t, s, c)
	fmt.Fprintf(os.Stdout, "lived %d\n", n)
}

func TestCrashCensus(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	source := image(t)
	want, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for step := 1; ; step++ {
		dir := t.TempDir()
		cmd := exec.Command(self, "-test.run=^TestCrashChild$", "-test.v")
		cmd.Env = append(os.Environ(), "SNAPSHOT_TEST_CRASH="+dir, "SNAPSHOT_TEST_STEP="+strconv.Itoa(step), "SNAPSHOT_TEST_SOURCE="+source, "TMPDIR="+t.TempDir())
		out, err := cmd.Output()
		died, acknowledged := census(t, out)
		if died == "" {
			if err != nil || !strings.Contains(string(out), fmt.Sprintf("lived %d\n", step-1)) {
				t.Fatalf("step %d: %v\n%s", step, err, out)
			}
			break
		}
		seen[died] = true
		holds(t, fmt.Sprintf("killed at step %d, %q", step, died), dir, want, acknowledged)
	}
	shares, err := sharing(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		"capture: staged", "capture: content written", "capture: manifest written", "capture: synced", "capture: renamed", "capture: published",
		"clone: staged", "clone: linked", "clone: content written", "clone: manifest written", "clone: synced", "clone: renamed", "clone: published",
		"capture: live taken", "capture: live digested", "clone: live cloned", "restore: live verified",
		"restore: made", "restore: copied", "restore: checked", "restore: verified", "restore: extracted",
		"destroy: renamed", "destroy: content removed", "destroy: removed",
	} {
		if step == "clone: linked" && shares {
			continue // its blocks are shared instead
		}
		if !seen[step] {
			t.Errorf("nobody died at %q", step)
		}
	}
	t.Logf("%d steps", len(seen))
}

// census reads what the child said: where it died, and what it knew to be done.
func census(t *testing.T, out []byte) (died string, acknowledged map[sandbox.SnapshotID]*sandbox.Snapshot) {
	t.Helper()
	acknowledged = map[sandbox.SnapshotID]*sandbox.Snapshot{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if step, ok := strings.CutPrefix(line, "died "); ok {
			died = step
		}
		rest, ok := strings.CutPrefix(line, "ack ")
		if !ok {
			continue
		}
		what, body, _ := strings.Cut(rest, " ")
		var ref sandbox.Snapshot
		if err := canonical.Decode([]byte(body), &ref); err != nil {
			t.Fatal(err)
		}
		acknowledged[ref.SnapshotID] = &ref
		if what == "destroyed" {
			acknowledged[ref.SnapshotID] = nil
		}
	}
	return died, acknowledged
}

// holds opens the store as the next process would, and looks.
func holds(t *testing.T, what, dir string, want []byte, acknowledged map[sandbox.SnapshotID]*sandbox.Snapshot) {
	t.Helper()
	c := noon()
	s := open(t, dir, c)
	for _, d := range []string{"staging", "trash"} {
		if names, err := os.ReadDir(s.path(d)); err != nil || len(names) != 0 {
			t.Errorf("%s: %s has %v, %v", what, d, names, err)
		}
	}
	kept, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there := map[sandbox.SnapshotID]bool{}
	for _, k := range kept {
		there[k.ID] = true
		ref, known := acknowledged[k.ID]
		if known && ref == nil {
			t.Errorf("%s: %s was destroyed and is there", what, k.ID)
		}
		// Whoever was not told of it may find it, but then whole.
		h, err := s.Hold(t.Context(), k.Manifest.Snapshot)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := h.Verify(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if k.Manifest.Live != nil {
			if err := verified(t, s, k.Manifest.Snapshot); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		h.Close()
		if k.Manifest.Form == FormImage && !bytes.Equal(restored(t, s, k.Manifest.Snapshot), want) {
			t.Errorf("%s: %s has other bytes", what, k.ID)
		}
		if known && ref != nil && *ref != k.Manifest.Snapshot {
			t.Errorf("%s: %s is kept as %+v", what, k.ID, k.Manifest.Snapshot)
		}
	}
	for id, ref := range acknowledged {
		// A destroy that was under way may be done.
		if ref != nil && !there[id] && !strings.Contains(what, "destroy: ") {
			t.Errorf("%s: %s is lost", what, id)
		}
	}
	c.pass(2 * time.Hour)
	if _, err := s.Sweep(t.Context(), c.in(0), c.in(0), nil); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if got := left(t, dir); got != nil {
		t.Errorf("%s: left %v", what, got)
	}
}
