package mount

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is a host directory with a repository in it, and a place for a fake
// sandbox. Everything goes through the real git and the real file system.
type world struct {
	*testing.T
	dir  string // holds all
	repo string // the user's working tree
	box  string // the mount inside the fake sandbox
}

func newWorld(t *testing.T, initArgs ...string) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir()}
	w.repo, w.box = filepath.Join(w.dir, "repo"), filepath.Join(w.dir, "box")
	t.Setenv("HOME", filepath.Join(w.dir, "home"))
	t.Setenv("XDG_CONFIG_HOME", "")
	for _, dir := range []string{w.repo, w.box, filepath.Join(w.dir, "home")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := "[gc]\n\tauto = 0\n[core]\n\tfsync = none\n[advice]\n\tdetachedHead = false\n"
	if err := os.WriteFile(filepath.Join(w.dir, "home", ".gitconfig"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git(w.repo, append([]string{"init", "-q", "-b", "main"}, initArgs...)...)
	return w
}

// run runs a program; its output is returned, its failure is the test's.
func (w *world) run(dir, name string, args ...string) string {
	w.Helper()
	out, err := w.try(dir, name, args...)
	if err != nil {
		w.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

func (w *world) try(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(w.dir, "home"), "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) git(dir string, args ...string) string {
	w.Helper()
	return w.run(dir, "git", args...)
}

func (w *world) sh(dir, script string) string {
	w.Helper()
	return w.run(dir, "sh", "-ec", script)
}

// plan plans the repository and closes the plan with the test.
func (w *world) plan(o GitOptions) *Plan {
	w.Helper()
	if o.Dir == "" {
		o.Dir = w.repo
	}
	o.TempDir = w.TempDir()
	p, err := Git(context.Background(), o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.Error(err)
		}
		if left, _ := os.ReadDir(o.TempDir); len(left) != 0 {
			w.Errorf("plan left %v behind", left)
		}
	})
	return p
}

// stage writes a plan into the box, as a provider would.
func (w *world) stage(p *Plan) {
	w.Helper()
	stage(w.T, p, w.box)
}

func stage(t testing.TB, p *Plan, box string) {
	t.Helper()
	for _, f := range p.Files {
		data, err := f.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(box, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		if err := os.WriteFile(name, data, mode); err != nil {
			t.Fatal(err)
		}
	}
	if p.linksStaged {
		for _, l := range p.Links {
			name := filepath.Join(box, l.Path)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(l.Target, name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// list lists a tree as a trusted listing would.
func list(t testing.TB, root string) []Entry {
	t.Helper()
	var all []Entry
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		e := Entry{Path: strings.TrimPrefix(name, root+"/"), Type: TypeFile}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			e.Type = TypeDirectory
		case d.Type()&fs.ModeSymlink != 0:
			e.Type = TypeSymlink
			e.Target, err = os.Readlink(name)
		case !d.Type().IsRegular():
			e.Type = "fifo"
		default:
			var data []byte
			if data, err = os.ReadFile(name); err == nil {
				e.Size, e.Digest, e.Executable = int64(len(data)), Digest(data), info.Mode()&0o111 != 0
			}
		}
		all = append(all, e)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func reader(root string) ReadFunc {
	return func(path string) ([]byte, error) { return os.ReadFile(filepath.Join(root, path)) }
}

// diff compares the box with what was staged.
func (w *world) diff(p *Plan) *Change {
	w.Helper()
	c, err := Diff(context.Background(), p.Baseline(), list(w, w.box), reader(w.box))
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) patch(p *Plan, c *Change) []byte {
	w.Helper()
	var b bytes.Buffer
	if err := p.Patch(context.Background(), c, reader(w.box), &b); err != nil {
		w.Fatal(err)
	}
	return b.Bytes()
}

// apply applies a patch to a copy of the user's tree and returns the copy.
func (w *world) apply(patch []byte) string {
	w.Helper()
	to := filepath.Join(w.dir, "applied")
	if err := os.RemoveAll(to); err != nil {
		w.Fatal(err)
	}
	w.run(w.dir, "cp", "-a", w.repo, to)
	if len(patch) == 0 {
		return to
	}
	name := filepath.Join(w.dir, "change.patch")
	if err := os.WriteFile(name, patch, 0o644); err != nil {
		w.Fatal(err)
	}
	w.git(to, "apply", "--check", "--whitespace=nowarn", name)
	w.git(to, "apply", "--whitespace=nowarn", name)
	return to
}

// tree maps each path to its type, mode and content; .git is not in it.
func treeOf(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range list(t, root) {
		if inGit(e.Path) || e.Type == TypeDirectory {
			continue
		}
		mode := "-"
		if e.Executable {
			mode = "x"
		}
		all[e.Path] = e.Type + " " + mode + " " + e.Digest + e.Target
	}
	return all
}

// roundTrip edits the box with a script, brings the change back to a copy of
// the user's tree, and compares the two byte by byte with modes. Paths in
// except are in one tree only.
func (w *world) roundTrip(p *Plan, script string, except ...string) *Change {
	w.Helper()
	before := treeOf(w, w.repo)
	w.sh(w.box, script)
	c := w.diff(p)
	got, want := treeOf(w, w.apply(w.patch(p, c))), treeOf(w, w.box)
	for _, path := range except {
		delete(got, path)
		delete(want, path)
	}
	if d := cmp.Diff(want, got); d != "" {
		w.Errorf("applied tree differs from the sandbox (-sandbox +applied):\n%s", d)
	}
	if d := cmp.Diff(before, treeOf(w, w.repo)); d != "" {
		w.Errorf("the user's tree was touched:\n%s", d)
	}
	return c
}
