package argument

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func TestRepo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain", "with@sign"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := filepath.Join(dir, "file")
	if err := os.WriteFile(write, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]runner.Repo{
		"plain": {Dir: "plain"}, "plain@main": {Dir: "plain", Revision: "main"}, "plain@HEAD@{1}": {Dir: "plain", Revision: "HEAD@{1}"},
		"with@sign": {Dir: "with@sign"}, "with@sign@v1": {Dir: "with@sign", Revision: "v1"},
	} {
		want.Dir = filepath.Join(dir, want.Dir)
		if got, err := Repo(filepath.Join(dir, s)); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "@", "@main", dir + "/missing", dir + "/missing@main", dir + "/plain@", write, "a\x00b"} {
		if got, err := Repo(s); err == nil {
			t.Errorf("%q was taken as %+v", s, got)
		}
	}
}

func TestMount(t *testing.T) {
	dir := t.TempDir()
	odd := dir + "/a:b"
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]runner.DirMount{
		dir + ":/data":    {Source: dir, Path: "/data", Access: sandbox.AccessReadOnly},
		dir + ":/data:ro": {Source: dir, Path: "/data", Access: sandbox.AccessReadOnly},
		dir + ":/data:rw": {Source: dir, Path: "/data", Access: sandbox.AccessReadWrite},
		odd + ":/d/e:rw":  {Source: odd, Path: "/d/e", Access: sandbox.AccessReadWrite},
	} {
		if got, err := Mount(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", ":", ":/data", dir, dir + ":", dir + ":data", dir + ":/data:rx", dir + ":/data:RW", dir + ":/", dir + ":/a/../b", dir + ":/a/",
		dir + "://a", dir + "/missing:/data", dir + ":/a\x00", dir + ":/" + strings.Repeat("x", 5000), "/etc/passwd:/data",
	} {
		if got, err := Mount(s); err == nil {
			t.Errorf("%q was taken as %+v", s, got)
		}
	}
}

func TestCheckMountsNamesTheFlag(t *testing.T) {
	m := func(path string) runner.DirMount {
		return runner.DirMount{Source: "/x", Path: path, Access: sandbox.AccessReadOnly}
	}
	for name, spec := range map[string]runner.Spec{
		"twice":          {Mounts: []runner.DirMount{m("/data"), m("/data")}},
		"the repository": {Repo: &runner.Repo{}, Mounts: []runner.DirMount{m(runner.RepoPath)}},
		"reserved":       {Mounts: []runner.DirMount{m("/workspace/.checkfu/x")}},
		"above reserved": {Mounts: []runner.DirMount{m("/workspace")}},
		"outputs":        {Mounts: []runner.DirMount{m(sandbox.OutputPath)}},
	} {
		if err := CheckMounts(spec); err == nil || !strings.HasPrefix(err.Error(), "--mount: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckMounts(runner.Spec{Repo: &runner.Repo{}, Mounts: []runner.DirMount{m("/data"), m("/data/deep")}}); err != nil {
		t.Error(err)
	}
}

func TestEnv(t *testing.T) {
	lookup := func(key string) (string, bool) { return "from-here", key == "SET" }
	for s, want := range map[string][2]string{
		"A=b": {"A", "b"}, "A=": {"A", ""}, "A=b=c": {"A", "b=c"}, "SET": {"SET", "from-here"}, "_x9=\xff\n": {"_x9", "\xff\n"},
	} {
		if key, value, err := Env(s, lookup); err != nil || key != want[0] || value != want[1] {
			t.Errorf("%q: %q %q %v", s, key, value, err)
		}
	}
	const secret = "hunter2-value"
	for _, s := range []string{"", "=x" + secret, "9A=" + secret, "A B=" + secret, secret, "A-B=" + secret, "A=" + secret + "\x00", "A=" + strings.Repeat(secret, 20000)} {
		if _, _, err := Env(s, lookup); err == nil {
			t.Errorf("%.20q was taken", s)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows a value: %v", err)
		}
	}
}

func FuzzMount(f *testing.F) {
	for _, s := range []string{"/tmp:/data:rw", "/tmp:/data", "a:b:/c:ro", "::/", ":/:/:rw"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := Mount(s)
		if err != nil {
			return
		}
		if sandbox.CheckPath("p", m.Path) != nil || !m.Access.Valid() || m.Source == "" || !strings.HasPrefix(s, m.Source+":"+m.Path) {
			t.Fatalf("%q is %+v", s, m)
		}
	})
}

func FuzzEnv(f *testing.F) {
	for _, s := range []string{"A=b", "A", "=", "A=\x00", "é=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, value, err := Env(s, func(string) (string, bool) { return "x", true })
		if err == nil && sandbox.CheckEnvironment(key, value) != nil {
			t.Fatalf("%q is %q %q", s, key, value)
		}
	})
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31m", "a\nb", "\xff", "\u202eabc", "\u0085", "é 漢"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Printable(s) {
			if !shows(r) {
				t.Fatalf("%q shows %q", s, r)
			}
		}
	})
}
