package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/image/imagetest"
)

// The example of a durable session, as a stranger runs it: a project of 3,000 files
// is built, paused, forked five times and built on by each.
func TestTheDurableSessionOfTheExamples(t *testing.T) {
	keepable(t)
	mustRun(t, "image", "import", imagetest.Toolchain(t, t.TempDir()))
	script, err := filepath.Abs("../../examples/durable-session/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t)
	cmd.Path, cmd.Args = script, []string{script}
	cmd.Env = append(cmd.Env, "CHECKFU="+binary, "IMAGE=toolchain", "PROVIDER="+providers[0])
	r := finish(t, cmd)
	if r.code != 0 {
		t.Fatalf("%d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{
		"built:  31 objects", "sum:    148500", " paused ", "fork 1: sum 149500, and only its own file", "fork 5: sum 153500, and only its own file",
		"source: sum 148500, nothing new, nothing to build",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is not said:\n%s", want, r.stdout)
		}
	}
	if r.stderr != "" {
		t.Errorf("%s", r.stderr)
	}
	nothingKept(t)
	mustRun(t, "image", "rm", "toolchain")
}
