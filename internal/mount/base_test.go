package mount

import (
	"strings"
	"testing"
)

// A digest names the bytes, names and modes of a tree, and not its history.
func TestPlanDigest(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	digest := func() string { return w.plan(GitOptions{Links: true}).Digest() }
	first := digest()
	if !strings.HasPrefix(first, "sha256:") || first != digest() {
		t.Fatal(first)
	}
	w.git(w.repo, "commit", "-q", "--allow-empty", "-m", "again")
	if digest() != first {
		t.Error("another commit of the same tree has another digest")
	}
	for _, change := range []string{`echo 2 >> f`, `chmod +x tool`, `git mv f g`, `ln -sf tool l`} {
		w.sh(w.repo, change)
		if digest() == first {
			t.Errorf("after %s: the same digest", change)
		}
		w.git(w.repo, "reset", "-q", "--hard")
	}
}
