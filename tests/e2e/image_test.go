package e2e

import (
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/image/imagetest"
)

// TestImageRemoveKeepsWhatAPausedSessionNeeds: a paused session holds nothing, and its
// image stays all the same, unless somebody insists.
func TestImageRemoveKeepsWhatAPausedSessionNeeds(t *testing.T) {
	o := newOwn(t)
	archive := imagetest.Busybox(t, t.TempDir())
	o.run("image", "import", archive)
	o.run("session", "start", "--keep", "--id", "kept", "--image", "busybox", "--provider", "native:runc", "--disk", "64MiB", "--memory", "256MiB", "--quiet")
	defer o.try("session", "rm", "kept")
	for _, force := range []string{"", "--force"} { // a machine runs on it
		if r := o.try(strings.Fields("image rm busybox " + force)...); r.code != 125 || !strings.Contains(r.stderr, "in use") {
			t.Errorf("%q beside a machine: %+v", force, r)
		}
	}
	o.run("session", "pause", "kept")
	if r := o.try("image", "rm", "busybox"); r.code != 125 || !strings.Contains(r.stderr, "paused session") {
		t.Errorf("beside a paused session: %+v", r)
	}
	o.run("session", "resume", "kept")
	o.run("session", "pause", "kept")
	o.run("image", "rm", "busybox", "--force")
	if r := o.try("session", "resume", "kept"); r.code == 0 {
		t.Error("resumed without its image")
	}
	o.run("image", "import", archive)
	o.run("session", "resume", "kept")
	o.run("session", "rm", "kept")
	o.run("image", "rm", "busybox")
}
