package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/runs"
)

// A change that is not in the history whole is no change to merge or to print, and
// never passes for a Run that changed nothing.
func TestHalfAPatchIsNone(t *testing.T) {
	const half = "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1,9 @@\n+x\n"
	repo := filepath.Join(t.TempDir(), "repo")
	if err := os.MkdirAll(filepath.Join(repo, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	record, err := (&runner.Record{}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		patch        string
		ended, whole bool
		path         string // of the patch elsewhere
		fails        string // show --patch and apply; "" is that they do not
		shown        string // by show
	}{
		"nothing changed":     {"", true, true, "", "", "tree"},
		"half collected":      {half, true, false, "", "(its changes were not collected in full)\n", "not kept  its changes were not collected in full"},
		"nothing collected":   {"", true, false, "", "(its changes were not collected in full)\n", "not kept  its changes were not collected in full"},
		"too large":           {strings.Repeat("x", runs.MaxPart+1), true, true, "/p", "(patch: larger than 64 MiB); it is in /p\n", "not kept  patch: larger"},
		"too large, streamed": {strings.Repeat("x", runs.MaxPart+1), true, true, "-", "(patch: larger than 64 MiB); it went to standard output\n", "not kept  patch: larger"},
		"killed":              {half, false, false, "", "was lost", ": lost, started "},
		"killed before":       {"", false, false, "", "was lost", ": lost, started "},
		"no patch at all":     {"diff --git a/f b/f\nGIT binary patch\nnonsense\n", true, true, "", "-", "patch     cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir, id := t.TempDir(), "run_0123456789abcdef01234567"
			r, err := runs.Begin(dir, runs.Entry{RunID: id, Provider: "memory", Command: []string{"true"}, Repo: &runs.Repo{Dir: repo}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			io.WriteString(r.Patch(), c.patch)
			if c.patch != "" {
				io.WriteString(r.Base(), "base")
			}
			if c.ended {
				err = r.End(record, c.whole, func(e *runs.Entry) { e.PatchPath = c.path })
			}
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			try := func(args ...string) (int, string, string) {
				var out, errs bytes.Buffer
				code := Run(t.Context(), append([]string{"--state", dir, "runs"}, args...), strings.NewReader(""), &out, &errs)
				return code, out.String(), errs.String()
			}
			if c.fails != "-" { // show --patch prints it as it is
				for _, args := range [][]string{{"show", id, "--patch"}, {"apply", id}, {"apply", id, "--check", "--json"}} {
					code, out, errs := try(args...)
					if failed := code == ExitFailure && strings.Contains(errs, c.fails) && out == ""; failed != (c.fails != "") || !failed && code != 0 {
						t.Errorf("%v: %d, %q, %q", args, code, out, errs)
					}
				}
			}
			if code, out, errs := try("show", id); code != 0 || !strings.Contains(out, c.shown) || !strings.Contains(out, "command   true\n") || errs != "" {
				t.Errorf("%d, %q, %q", code, out, errs)
			}
		})
	}
}
