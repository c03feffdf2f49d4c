package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutputsStayInsideTheirDirectory(t *testing.T) {
	w := newWorld(t, `cd /mnt/session/outputs; mkdir sub; echo a > plain; echo b > sub/deep; echo c > through; mkdir out; echo d > out/victim; chmod +x plain; mkdir .git sub/.GIT; echo f > .git/config; echo g > sub/.GIT/hook; ln -s /etc/passwd link; mkfifo fifo; echo e > after`)
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "victim", "untouched")
	w.spec.OutDir = filepath.Join(dir, "made")
	if err := os.Mkdir(w.spec.OutDir, 0o755); err != nil {
		t.Fatal(err)
	}
	// What lies in the output directory already leads out of it.
	for name, target := range map[string]string{"through": outside + "/victim", "out": outside} {
		if err := os.Symlink(target, filepath.Join(w.spec.OutDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.run()
	if err == nil {
		t.Error("two files could not be written and nobody was told")
	}
	refused := map[string]string{}
	for _, o := range r.Outputs {
		refused[o.Path] = o.Refused
	}
	for path, want := range map[string]string{
		"plain": "", "sub/deep": "", "after": "", "through": "outside_root", "out/victim": "outside_root", "link": "not_regular", "fifo": "not_regular",
		".git/config": "refused_name", "sub/.GIT/hook": "refused_name",
	} {
		if got, ok := refused[path]; !ok || got != want {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
	for path, want := range map[string]string{"plain": "a\n", "sub/deep": "b\n", "after": "e\n"} {
		if got, err := os.ReadFile(filepath.Join(w.spec.OutDir, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(w.spec.OutDir, "plain")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
	if got := snapshot(t, outside); !strings.Contains(got, "untouched") || strings.Count(got, "\x00") != 2 {
		t.Errorf("outside: %q", got)
	}
}

func TestOutputsWithoutADirectoryAreNamed(t *testing.T) {
	w := newWorld(t, "echo a > /mnt/session/outputs/o")
	r, err := w.run()
	if err != nil || len(r.Outputs) != 1 || r.Outputs[0].Refused != refusedNoDirectory || r.Outputs[0].Digest == "" {
		t.Errorf("%v %+v", err, r.Outputs)
	}
}

func TestNoOutputsMakeNoDirectory(t *testing.T) {
	w := newWorld(t, "true")
	w.spec.OutDir = filepath.Join(t.TempDir(), "out")
	if _, err := w.run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(w.spec.OutDir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

func TestManyFilesComeInBatches(t *testing.T) {
	const n = 2500 // more than one batch holds
	w := newWorld(t, "i=0")
	w.spec.Command = []string{"sh", "-c", "seq 1 2500 | while read i; do echo $i > /mnt/session/outputs/$i; done"}
	w.spec.OutDir = filepath.Join(t.TempDir(), "out")
	r, err := w.run()
	if err != nil || len(r.Outputs) != n {
		t.Fatalf("%v, %d outputs, %q", err, len(r.Outputs), w.err.String())
	}
	for _, i := range []int{1, 1024, 1025, 2048, 2500} {
		if got, err := os.ReadFile(fmt.Sprintf("%s/%d", w.spec.OutDir, i)); err != nil || string(got) != fmt.Sprintf("%d\n", i) {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
}

func TestNamesThatAreNoTextKeepTheirBytes(t *testing.T) {
	n := Name("a\xff\nb", "added")
	if n.PathHex != "61ff0a62" || n.Path != "a\uFFFD\nb" {
		t.Errorf("%+v", n)
	}
	if n := Name("plain", ""); n.PathHex != "" {
		t.Errorf("%+v", n)
	}
	r := Record{Mounts: []Mount{{Changes: []Named{n}}}, Command: Command{Arguments: []string{text("\xff")}}}
	if _, err := r.Encode(); err != nil {
		t.Error(err)
	}
}

func TestLineCounter(t *testing.T) {
	const patch = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@ func\n same\n--- x\n+++ y\n+z\n last\n" +
		"diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file\n" +
		"diff --git a/b b/b\nGIT binary patch\nliteral 3\nKc$@@+1\n\n"
	for size := range 40 {
		var out bytes.Buffer
		c := &lineCounter{to: &out}
		for rest := []byte(patch); len(rest) > 0; {
			n := min(size+1, len(rest))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if c.lines != (Lines{Added: 3, Deleted: 1}) || out.String() != patch || c.size != int64(len(patch)) {
			t.Fatalf("in parts of %d: %+v", size+1, c.lines)
		}
	}
}
