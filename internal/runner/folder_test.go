package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

// TestNoCopyIsARepository: git obeys the config of any directory in the form of a
// repository. The real git says which are.
func TestNoCopyIsARepository(t *testing.T) {
	for name, c := range map[string]struct {
		there, brought []string
		refused        bool // what is brought, all of it
	}{
		"bare":                    {nil, []string{"x/HEAD", "x/config", "x/objects/o", "x/refs/r", "x/hooks/h"}, true},
		"bare, of two files":      {nil, []string{"x/HEAD", "x/config", "x/objects", "x/refs"}, true},
		"bare, at the top":        {nil, []string{"HEAD", "config", "objects/o", "refs/r"}, true},
		"what lies in one":        {nil, []string{"x/HEAD", "x/objects/o", "x/refs/r", "x/y/z"}, true},
		"a worktree's":            {nil, []string{"x/HEAD", "x/commondir", "x/config"}, true},
		"the last part":           {[]string{"x/objects/o", "x/refs/r", "x/config"}, []string{"x/HEAD"}, true},
		"the first part":          {[]string{"x/HEAD", "x/refs/r"}, []string{"x/objects/o", "x/config"}, true},
		"into one":                {[]string{"x/HEAD", "x/refs/r", "x/objects/o"}, []string{"x/config"}, true},
		"in other letters":        {nil, []string{"x/head", "x/Objects/o", "x/ref\u017f/r"}, true},
		"a work tree":             {nil, []string{"x/.git/HEAD"}, true},
		"without a head":          {nil, []string{"x/config", "x/objects/o", "x/refs/r"}, false},
		"a head alone":            {nil, []string{"bin/head", "x/HEAD", "x/objects/o"}, false},
		"in different places":     {nil, []string{"HEAD", "x/objects/o", "y/refs/r"}, false},
		"beside one":              {[]string{"x/HEAD", "x/refs/r", "x/objects/o"}, []string{"y"}, false},
		"into a tree of somebody": {[]string{".git/HEAD"}, []string{"report"}, false},
	} {
		dir := t.TempDir()
		for _, p := range c.there {
			write(t, dir, p, "ref: refs/heads/main\n")
		}
		root, err := contain.Open(dir, contain.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f := into(root, c.brought)
		for _, p := range c.brought {
			if got := f.reserves(p); got != c.refused {
				t.Errorf("%s: %s is refused: %v", name, p, got)
			}
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
		// Whatever git takes for a repository is found.
		for _, p := range c.brought {
			write(t, dir, p, "ref: refs/heads/main\n")
			if err := os.Chmod(filepath.Join(dir, p), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range c.brought {
			if is := isRepository(t, filepath.Join(dir, filepath.Dir(p))); is && !c.refused && !slices.Contains(c.there, ".git/HEAD") {
				t.Errorf("%s: git takes the directory of %s for a repository", name, p)
			}
		}
	}
	// With no directory a name is judged by what comes along.
	if !into(nil, []string{"HEAD", "commondir"}).reserves("HEAD") || into(nil, []string{"HEAD"}).reserves("HEAD") {
		t.Error("without a directory")
	}
}

func isRepository(t *testing.T, dir string) bool {
	t.Helper()
	cmd := exec.Command("git", "rev-parse", "--git-dir")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	return cmd.Run() == nil
}

// TestOutputsAreNoRepository: neither of a run nor copied out of a machine.
func TestOutputsAreNoRepository(t *testing.T) {
	const tree = `cd /mnt/session/outputs; mkdir -p x/objects x/refs; echo o > x/objects/o; echo r > x/refs/r; echo ref: refs/heads/main > x/HEAD; echo > x/config; echo p > plain`
	dir := t.TempDir()
	judge := func(how string, outputs []Output) {
		t.Helper()
		for _, o := range outputs {
			want := refusedName
			if strings.HasSuffix(o.Path, "plain") {
				want = ""
			}
			if o.Refused != want {
				t.Errorf("%s: %s: %q", how, o.Path, o.Refused)
			}
		}
		if len(outputs) != 5 {
			t.Errorf("%s: %v", how, outputs)
		}
	}
	w := newWorld(t, tree)
	w.spec.OutDir = filepath.Join(dir, "run")
	r, err := w.run()
	if err != nil {
		t.Fatal(err)
	}
	judge("run", r.Outputs)

	w = newWorld(t, "")
	w.spec.Command = nil
	_, in, err := w.runner.Prepare(t.Context(), w.spec, holder)
	if err != nil {
		t.Fatal(err)
	}
	w.spec.Command = []string{"sh", "-c", tree}
	if r, err := w.as().Execute(t.Context(), w.spec, in); err != nil || r.Cause != CauseExited {
		t.Fatalf("%+v, %v", r, err)
	}
	outputs, err := w.as().Fetch(t.Context(), in, sandbox.OutputPath, Destination{Dir: dir, Name: "cp"})
	if err != nil {
		t.Fatal(err)
	}
	judge("cp", outputs)
	for _, p := range []string{"run/plain", "cp/plain"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Error(err)
		}
	}
	if found, err := filepath.Glob(dir + "/*/x"); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if err := w.provider.Destroy(t.Context(), in.InstanceID); err != nil {
		t.Error(err)
	}
	w.nothingLeft()
}
