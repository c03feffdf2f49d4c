package runner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/sandbox"
)

func TestFetchAndPut(t *testing.T) {
	w := newWorld(t, "")
	w.spec.Repo, w.spec.Command = &Repo{Dir: repository(t)}, nil
	_, in, err := w.runner.Prepare(t.Context(), w.spec, holder)
	if err != nil {
		t.Fatal(err)
	}
	w.spec.Command = []string{"sh", "-c", `mkdir -p d/sub d/.git; echo a > d/a; chmod +x d/a; echo b > d/sub/b; echo c > d/through; ln -s /etc/passwd d/link; mkfifo d/fifo; echo h > d/.git/hook; echo x > dx; echo o > /mnt/session/outputs/o`}
	w.spec.WorkingDirectory = RepoPath
	if r, err := w.as().Execute(t.Context(), w.spec, in); err != nil || r.Cause != CauseExited || *r.Exit.ExitCode != 0 {
		t.Fatalf("%+v, %v: %s", r, err, w.err.String())
	}
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, "victim", "untouched")
	if err := os.MkdirAll(filepath.Join(dir, "tree", "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside+"/victim", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from, as string
		want     map[string]string // path below dir, and why it is not there
		err      error
	}{
		"a file":              {RepoPath + "/d/a", "x", map[string]string{"x": ""}, nil},
		"a directory":         {RepoPath + "/d", "tree", map[string]string{"tree/a": "", "tree/sub/b": "", "tree/through": "", "tree/link": "not_regular", "tree/fifo": "not_regular", "tree/.git/hook": "refused_name"}, nil},
		"below a directory":   {RepoPath + "/d/sub", "s", map[string]string{"s/b": ""}, nil},
		"a root":              {sandbox.OutputPath, "out", map[string]string{"out/o": ""}, nil},
		"out of a repository": {RepoPath + "/d/.git", "copy", map[string]string{"copy/hook": "refused_name"}, nil},
		"a file of one":       {RepoPath + "/d/.git/hook", "x", map[string]string{"x": "refused_name"}, nil},
		"outside, of one":     {"/tmp/.git/config", "x", map[string]string{"x": "refused_name"}, nil},
		"outside, as one":     {"/tmp/x", ".git", map[string]string{".git": "refused_name"}, nil},
		"into a repository":   {RepoPath + "/d/a", ".git/hooks", map[string]string{".git/hooks": "refused_name"}, nil},
		"a link":              {RepoPath + "/d/link", "l", map[string]string{"l": "not_regular"}, nil},
		"nothing":             {RepoPath + "/nothing", "x", nil, ErrNoLeaf},
		"a prefix of a name":  {RepoPath + "/d/su", "x", nil, ErrNoLeaf},
		"outside":             {"/etc/passwd", "x", nil, ErrOutside},
		"above":               {"/workspace", "x", nil, ErrOutside},
	} {
		outputs, err := w.as().Fetch(t.Context(), in, c.from, Destination{Dir: dir, Name: c.as})
		got := map[string]string{}
		for _, o := range outputs {
			got[o.Path] = o.Refused
		}
		if !errors.Is(err, c.err) || c.err == nil && err != nil || c.err == nil && !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "x")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	// A link that lies there already is not followed.
	if _, err := w.as().Fetch(t.Context(), in, RepoPath+"/d/a", Destination{Dir: dir, Name: "link"}); err == nil {
		t.Error("a link was followed")
	}
	if got := snapshot(t, outside); !bytes.Contains([]byte(got), []byte("untouched")) {
		t.Errorf("outside: %q", got)
	}
	var b bytes.Buffer
	if _, err := w.as().Fetch(t.Context(), in, RepoPath+"/d/sub/b", Destination{Writer: &b}); err != nil || b.String() != "b\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	for _, from := range []string{RepoPath + "/d", RepoPath, RepoPath + "/d/link"} {
		if _, err := w.as().Fetch(t.Context(), in, from, Destination{Writer: &b}); err == nil {
			t.Errorf("%s: written to a stream", from)
		}
	}

	put := sandbox.FileWrite{Path: sandbox.OutputPath + "/in/p", Content: []byte("put"), Executable: true}
	if err := w.as().Put(t.Context(), in, put); err != nil {
		t.Error(err)
	}
	put.Path = "/tmp/p"
	if err := w.as().Put(t.Context(), in, put); !errors.Is(err, ErrOutside) {
		t.Error(err)
	}
	put.Path = RepoPath + "/new/p"
	if err := w.as().Put(t.Context(), in, put); err != nil {
		t.Error(err)
	}
	b.Reset()
	if o, err := w.as().Fetch(t.Context(), in, put.Path, Destination{Writer: &b}); err != nil || b.String() != "put" || o[0].Refused != "" {
		t.Errorf("%q, %v, %v", b.String(), o, err)
	}
	put.Path = RepoPath + "/d" // a directory
	if err := w.as().Put(t.Context(), in, put); err == nil {
		t.Error("a file took the place of a directory")
	}
	b.Reset()
	if _, err := w.as().Fetch(t.Context(), in, sandbox.OutputPath+"/in/p", Destination{Writer: &b}); err != nil || b.String() != "put" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if err := w.provider.Destroy(t.Context(), in.InstanceID); err != nil {
		t.Error(err)
	}
	w.nothingLeft()
}
