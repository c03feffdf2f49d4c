package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// changed is a change that a sandbox made: w.repo was staged, box was run in it.
func (w *world) changed(o GitOptions, box string) (base, patch []byte) {
	w.Helper()
	o.Links = true
	p := w.plan(o)
	w.stage(p)
	w.sh(w.box, box)
	c := w.diff(p)
	var b bytes.Buffer
	if err := p.Base(context.Background(), c, &b); err != nil {
		w.Fatal(err)
	}
	return b.Bytes(), w.patch(p, c)
}

func (w *world) merge(base, patch []byte, check bool) (*Merged, error) {
	w.Helper()
	temp := w.TempDir()
	m, err := Merge(context.Background(), MergeOptions{
		Dir: w.repo, Base: bytes.NewReader(base), Patch: bytes.NewReader(patch), Name: "run_1", Check: check, TempDir: temp,
	})
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		w.Errorf("merge left %v behind", left)
	}
	return m, err
}

// text is what became of the paths that begin so.
func (m *Merged) text(below string) string {
	var all []string
	add := func(how, path, more string) {
		if rest, ok := strings.CutPrefix(path, below); ok {
			all = append(all, how+" "+rest+more)
		}
	}
	for _, w := range m.Written {
		add(w.How, w.Path, "")
	}
	for _, path := range m.There {
		add("there", path, "")
	}
	for _, c := range m.Conflicts {
		more := ""
		if c.Marked {
			more = " (marked)"
		}
		add(string(c.Reason), c.Path, more)
	}
	return strings.Join(all, "; ")
}

// everything is each name below root with its mode and content, empty directories
// and the .git included.
func everything(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range list(t, root) {
		info, err := os.Lstat(filepath.Join(root, e.Path))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Path] = fmt.Sprint(info.Mode(), " ", e.Digest, e.Target)
	}
	return all
}

const start = `mkdir d; seq 1 20 > f; echo x > d/x; echo y > d/y; printf 'a\000b' > bin; ln -s f l; echo run > tool; echo 1 > gone`

// mergeCase is one directory of the world of TestMerge.
type mergeCase struct {
	begin string // a script: what is committed besides start
	late  string // and changed, and not committed, before the run
	box   string // the run
	user  string // the user meanwhile
	want  string
	check string // a script afterwards
}

var mergeCases = map[string]mergeCase{
	"nothing changed since": {
		box:   `echo new > n; echo 2 >> f; rm gone; chmod +x tool; rm -r d; ln -s tool l2`,
		want:  "deleted d/x; deleted d/y; modified f; deleted gone; link l2; added n; mode tool",
		check: `test ! -e d; test ! -e gone; test -x tool; test "$(readlink l2)" = tool; test "$(tail -1 f)" = 2; test "$(cat n)" = new`,
	},
	"other lines changed since": {
		box: `sed -i s/^2$/two/ f`, user: `sed -i s/^19$/nineteen/ f; chmod 0640 f`,
		want: "merged f", check: `grep -q two f; grep -q nineteen f; test $(stat -c %a f) = 640`,
	},
	"same lines changed since": {
		box: `sed -i s/^9$/run/ f; echo new > n`, user: `sed -i s/^9$/user/ f`,
		want:  "merged f; added n; both_changed f (marked)",
		check: `grep -q '^<<<<<<< this tree$' f; grep -q '^>>>>>>> run_1$' f; grep -q '^run$' f; grep -q '^user$' f; test -e n`,
	},
	"same lines changed since, of a file with CRLF": {
		begin: `printf '1\r\n2\r\n3\r\n' > crlf`, box: `sed -i s/^2/run/ crlf`, user: `sed -i s/^2/user/ crlf`,
		want:  "merged crlf; both_changed crlf (marked)",
		check: `test "$(grep -c '^<<<<<<< this tree' crlf)" = 1; test "$(grep -c '^>>>>>>> run_1' crlf)" = 1; grep -q "^run$(printf '\r')$" crlf`,
	},
	"same last lines changed since, with and without an end": {
		begin: `printf '1\r\n2' > crlf; printf '1\n2' > lf; printf '1\n2\r\n' > both`,
		box:   `for f in crlf lf both; do sed -i s/^2/run/ $f; done`, user: `for f in crlf lf both; do sed -i s/^2/user/ $f; done`,
		want:  "merged both; merged crlf; merged lf; both_changed both (marked); both_changed crlf (marked); both_changed lf (marked)",
		check: `for f in crlf lf both; do test "$(grep -c '^>>>>>>> run_1' $f)" = 1; done`,
	},
	"the same change on both sides": {
		box: `echo 2 >> f; rm gone; echo n > n; chmod +x tool; ln -s tool l2`, user: `echo 2 >> f; rm gone; echo n > n; chmod +x tool; ln -s tool l2`,
		want: "there f; there gone; there l2; there n; there tool",
	},
	"changes that were never committed": {
		late: `sed -i s/^5$/five/ f`, box: `sed -i s/^6$/six/ f`, user: `sed -i s/^20$/twenty/ f`,
		want: "merged f", check: `grep -q five f; grep -q six f; grep -q twenty f`,
	},
	"a file that is read-only": {
		box: `chmod u+w f; sed -i s/^2$/two/ f; chmod +x tool`, user: `chmod 0440 f; chmod 0400 tool`,
		want: "modified f; mode tool", check: `test $(stat -c %a f) = 440; test $(stat -c %a tool) = 500`,
	},
	"bits and bytes": {
		box: `chmod +x f; echo 2 >> tool`, user: `echo 2 >> f; chmod +x tool`,
		want: "mode f; modified tool", check: `test -x f; test -x tool; test "$(tail -1 f)" = 2; test "$(tail -1 tool)" = 2`,
	},
	"deleted by the run, changed here": {
		box: `rm f`, user: `echo 2 >> f`, want: "changed_here_deleted f", check: `test "$(tail -1 f)" = 2`,
	},
	"deleted here, changed by the run": {
		box: `echo 2 >> f`, user: `rm f`, want: "deleted_here_changed f", check: `test ! -e f`,
	},
	"binary on both sides": {
		box: `printf 'a\000c' > bin`, user: `printf 'a\000d' > bin`, want: "both_changed_binary bin",
	},
	"added on both sides": {
		box: `echo run > n`, user: `echo user > n`, want: "merged n; both_changed n (marked)", check: `grep -q '^run$' n; grep -q '^user$' n`,
	},
	"a file becomes a link, and a link a file": {
		box: `rm f l; ln -s tool f; echo file > l`, want: "link f; modified l", check: `test -L f; test ! -L l; test "$(cat l)" = file`,
	},
	"a link against a changed file": {
		box: `rm f; ln -s tool f`, user: `echo 2 >> f`, want: "another_type f",
	},
	"a file becomes a directory": {
		box: `rm tool; mkdir -p tool/a; echo x > tool/a/x`, want: "deleted tool; added tool/a/x", check: `test "$(cat tool/a/x)" = x`,
	},
	"a directory becomes a file": {
		box: `rm -r d; echo x > d`, user: `mkdir d/empty || true; rmdir d/empty`, want: "added d; deleted d/x; deleted d/y", check: `test "$(cat d)" = x`,
	},
	"a directory that has more here": {
		box: `rm -r d; echo x > d`, user: `echo z > d/z`, want: "deleted d/x; deleted d/y; in_the_way d", check: `test "$(cat d/z)" = z`,
	},
	"a directory where the run has a file": {
		box: `echo x > n`, user: `mkdir n; echo y > n/y`, want: "in_the_way n", check: `test -e n/y`,
	},
	"an empty directory where the run has a file": {
		box: `echo x > n`, user: `mkdir -p n/n`, want: "added n", check: `test "$(cat n)" = x`,
	},
	"a file above what the run added": {
		box: `mkdir n; echo x > n/x`, user: `echo n > n`, want: "in_the_way n/x",
	},
	"a pipe in the way": {box: `echo x > n`, user: `mkfifo n`, want: "in_the_way n"},
	"a link to another place above": {
		box: `echo 2 >> d/x; mkdir n; echo x > n/x`, user: `rm -r d; ln -s ../../outside d; ln -s ../../outside n`,
		want: "behind_link d/x; behind_link n/x", check: `test "$(cat ../../outside/x)" = outside`,
	},
	"a link at the very path": {
		box: `echo 2 >> f; echo n > n`, user: `rm f; ln -s ../../outside/x f; ln -s ../../outside/x n`,
		want: "another_type f; another_type n", check: `test "$(cat ../../outside/x)" = outside`,
	},
	"a link that the run replaced by a directory": {
		box: `rm l; mkdir l; echo x > l/x`, want: "deleted l; added l/x", check: `test ! -L l; test "$(cat l/x)" = x`,
	},
	"links that lead out": {
		box:  `ln -s /etc/passwd abs; ln -s ../../outside up; ln -s ../../f ok/../up2; ln -s .git/hooks hooks; ln -s .GIT/config conf; mkdir a; ln -s ../f a/in; ln -s in/../../.. a/climb; rm l; ln -s /etc l`,
		user: ``, want: "link a/in; link_leads_out a/climb; link_leads_out abs; link_leads_out conf; link_leads_out hooks; link_leads_out l; link_leads_out up; link_leads_out up2",
		begin: `mkdir ok; echo > ok/ok`, check: `test "$(readlink l)" = f`,
	},
	"into a repository that is there since": {
		box: `mkdir sub; echo x > sub/x; echo 2 >> d/x`, user: `git init -q sub; printf 'gitdir: ../.git/modules/d\n' > d/.git`,
		want: "in_another_repository d/x; in_another_repository sub/x", check: `test ! -e sub/x`,
	},
	"what git takes for a repository": {
		box: `for b in bare half own; do mkdir -p $b/objects $b/refs; done
			for f in bare/HEAD bare/config bare/objects/x bare/refs/x bare/hooks/post-checkout half/HEAD own/x common/HEAD common/commondir common/config; do mkdir -p $(dirname $f); echo x > $f; done`,
		user: `mkdir -p half/objects half/refs; git init -q --bare own`,
		want: "in_another_repository bare/HEAD; in_another_repository bare/config; in_another_repository bare/hooks/post-checkout; in_another_repository bare/objects/x; in_another_repository bare/refs/x; " +
			"in_another_repository common/HEAD; in_another_repository common/commondir; in_another_repository common/config; in_another_repository half/HEAD; in_another_repository own/x",
		check: `test ! -e bare; test ! -e common; test ! -e half/HEAD`,
	},
	"what only looks a little like one": {
		box: `mkdir -p a b; echo x > a/HEAD; echo x > a/config; echo x > b/commondir`, want: "added a/HEAD; added a/config; added b/commondir",
	},
	"odd names": {
		box:  `mkdir -- '-rf'; echo x > "-rf/$(printf 'new\nline')"; echo x > "$(printf '\377')"; echo x > 'a"b\c'; echo x > ' s '`,
		want: "added  s ; added -rf/new\nline; added a\"b\\c; added \xff", check: `test -e ./-rf/*; test -e ' s '`,
	},
}

// hostile has git run a program for anything that it can be told to.
const hostile = `printf '* merge=evil filter=evil diff=evil\n' > .git/info/attributes; cp .git/info/attributes .gitattributes
for k in merge.evil.driver filter.evil.clean filter.evil.smudge filter.evil.process diff.evil.command diff.evil.textconv core.fsmonitor core.editor core.pager; do git config $k "touch $PWD/../ran"; done
for h in post-index-change pre-commit applypatch-msg pre-applypatch post-applypatch post-checkout; do printf '#!/bin/sh\ntouch %s/../ran\n' "$PWD" > .git/hooks/$h; chmod +x .git/hooks/$h; done`

// All cases are one run and one merge, each in a directory of its own.
func TestMerge(t *testing.T) {
	w := newWorld(t)
	w.sh(w.dir, `mkdir outside; echo outside > outside/x`)
	names, dirs := slices.Sorted(maps.Keys(mergeCases)), map[string]string{}
	script := func(of func(mergeCase) string) string {
		var b strings.Builder
		for i, name := range names {
			dirs[name] = fmt.Sprintf("c%02d", i)
			if s := of(mergeCases[name]); s != "" {
				fmt.Fprintf(&b, "mkdir -p %[1]s; (cd %[1]s; %[2]s\n) || exit 1\n", dirs[name], s)
			}
		}
		return b.String()
	}
	w.sh(w.repo, script(func(c mergeCase) string { return start + "\n" + c.begin })+"git add -A; git commit -qm start")
	w.sh(w.repo, script(func(c mergeCase) string { return c.late }))
	base, patch := w.changed(GitOptions{}, script(func(c mergeCase) string { return c.box }))
	w.sh(w.repo, script(func(c mergeCase) string { return c.user })+hostile)
	before, outside := everything(t, w.repo), everything(t, filepath.Join(w.dir, "outside"))

	same := func(what string, want map[string]string) {
		t.Helper()
		if d := cmp.Diff(want, everything(t, w.repo)); d != "" {
			t.Errorf("%s:\n%s", what, d)
		}
	}
	checked, err := w.merge(base, patch, true)
	if err != nil {
		t.Fatal(err)
	}
	same("a check touched the tree", before)
	merged, err := w.merge(base, patch, false)
	if err != nil || !cmp.Equal(checked, merged) {
		t.Fatalf("%v\n%s", err, cmp.Diff(checked, merged))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if got := merged.text(dirs[name] + "/"); got != mergeCases[name].want {
				t.Errorf("got  %s\nwant %s", got, mergeCases[name].want)
			}
			if out, err := w.try(filepath.Join(w.repo, dirs[name]), "sh", "-ec", mergeCases[name].check+"\ntrue"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	after := everything(t, w.repo)
	untouched := func(all map[string]string) map[string]string {
		left := maps.Clone(all)
		for path := range all {
			for _, m := range merged.Written { // it, what was below it, and what is above it
				if path == m.Path || strings.HasPrefix(path, m.Path+"/") || strings.HasPrefix(m.Path, path+"/") {
					delete(left, path)
				}
			}
		}
		return left
	}
	if d := cmp.Diff(untouched(before), untouched(after)); d != "" {
		t.Errorf("the merge touched more than it says:\n%s", d)
	}
	if d := cmp.Diff(outside, everything(t, filepath.Join(w.dir, "outside"))); d != "" {
		t.Errorf("the merge touched what is outside:\n%s", d)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "ran")); err == nil {
		t.Error("a program of the repository's configuration ran")
	}
	// Once more: what is there is there, and no marker comes twice.
	again, err := w.merge(base, patch, false)
	if err != nil || len(again.Written) != 0 {
		t.Errorf("once more: %+v, %v", again, err)
	}
	same("once more", after)
	// The trap is one: git itself goes into it.
	w.try(w.repo, "git", "status")
	if _, err := os.Lstat(filepath.Join(w.dir, "ran")); err != nil {
		t.Error("no program of the repository's configuration would have run")
	}
}

// A patch that did not go through the Runner.
func TestMergeRefuses(t *testing.T) {
	const empty = "# checkfu-base sha1\ncommit refs/checkfu/old\ncommitter a <a@a> 0 +0000\ndata 0\ndone\n"
	add := func(path, mode, line string) string {
		return "diff --git a/" + path + " b/" + path + "\nnew file mode " + mode + "\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+" + line + "\n"
	}
	w := newWorld(t)
	w.sh(w.dir, `mkdir outside; echo outside > outside/x`)
	w.sh(w.repo, start)
	before := everything(t, w.dir)
	for name, c := range map[string]struct{ base, patch string }{
		"up":                      {empty, add("../outside/x", "100644", "x")},
		"up, within":              {empty, add("d/../../outside/x", "100644", "x")},
		"absolute":                {empty, "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ /etc/x\n@@ -0,0 +1 @@\n+x\n"},
		"hook":                    {empty, add(".git/hooks/pre-commit", "100755", "x")},
		"hook, other case":        {empty, add(".GiT/hooks/pre-commit", "100755", "x")},
		"hook, short name":        {empty, add("GIT~1/hooks/pre-commit", "100755", "x")},
		"hook, ignored character": {empty, add(".g\u200cit/config", "100644", "x")},
		"hook of a submodule":     {empty, add("d/.git/config", "100644", "x")},
		"submodule":               {empty, "diff --git a/s b/s\nnew file mode 160000\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit 0123456789012345678901234567890123456789\n"},
		"submodules by a link":    {empty, add(".gitmodules", "120000", "f")},
		"through its own link":    {empty, add("n", "120000", "../outside") + add("n/x", "100644", "x")},
		"not of the base":         {empty, "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n"},
		"garbage":                 {empty, "hello"},
		"cut":                     {empty, add("n", "100644", "x") + "diff --git a/m b/m\nnew file mode 100644\n--- /dev/null\n+++ b/m\n@@ -0,0 +1,9 @@\n+x\n"},
		"no base":                 {"", add("n", "100644", "x")},
		"base of no format":       {"# checkfu-base md5\ndone\n", add("n", "100644", "x")},
		"base that is cut":        {strings.TrimSuffix(empty, "done\n"), add("n", "100644", "x")},
		"base that asks for more": {"# checkfu-base sha1\nfeature export-marks=../outside/marks\n" + strings.TrimPrefix(empty, "# checkfu-base sha1\n"), add("n", "100644", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := w.merge([]byte(c.base), []byte(c.patch), false)
			if _, typed := errors.AsType[*Error](err); !typed || m != nil {
				t.Errorf("%v, %v", m, err)
			}
			if d := cmp.Diff(before, everything(t, w.dir)); d != "" {
				t.Errorf("something was written:\n%s", d)
			}
		})
	}
}

func TestMergeOneAtATime(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `echo 2 >> f`)
	_, err := mergeWith(context.Background(), MergeOptions{Dir: w.repo, Base: bytes.NewReader(base), Patch: bytes.NewReader(patch), Name: "run_1", TempDir: w.TempDir()}, func(*merger) error {
		if _, err := w.merge(base, patch, true); err == nil || !strings.Contains(err.Error(), "another merge") {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPlainWay(t *testing.T) {
	for _, c := range []struct {
		path, target string
		want         bool
	}{
		{"a", "b", true}, {"a", "./b//c/", true}, {"a/b", "../c", true}, {"a/b/c", "../../d", true}, {"a", ".", true},
		{"a", "", false}, {"a", "/b", false}, {"a", "..", false}, {"a/b", "../../c", false}, {"a", "b/../c", false},
		{"a/b", "./../../c", false}, {"a", ".git", false}, {"a/b", "../.git/hooks", false}, {"a", "x/.GIT", false}, {"a", "b\x00c", false},
	} {
		if got := plainWay(c.path, c.target); got != c.want {
			t.Errorf("%q -> %q: %v", c.path, c.target, got)
		}
	}
}

func FuzzPlainWay(f *testing.F) {
	f.Add("a/b", "../c")
	f.Add("a", "b/../../c")
	f.Add("a/b/c", ".//../x/")
	f.Fuzz(func(t *testing.T, path, target string) {
		if !admitted(path) || !plainWay(path, target) {
			return
		}
		to := filepath.Join(filepath.Dir(path), target)
		if to == ".." || strings.HasPrefix(to, "../") || filepath.IsAbs(target) || inGit(to) {
			t.Errorf("%q -> %q leads to %q", path, target, to)
		}
	})
}

// Root merges for whom the tree belongs to.
func TestMergeKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	w := newWorld(t)
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `echo 2 >> f; mkdir n; echo n > n/n; ln -s f l2`)
	w.sh(w.repo, `chown -hR 1234:4321 .`)
	if _, err := w.merge(base, patch, false); err != nil {
		t.Fatal(err)
	}
	w.sh(w.repo, `test "$(stat -c %u:%g f n n/n l2 | sort -u)" = 1234:4321`)
}

// A repository of the other object format.
func TestMergeSHA256(t *testing.T) {
	w := newWorld(t, "--object-format=sha256")
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	base, patch := w.changed(GitOptions{}, `sed -i s/^2$/two/ f; printf 'a\000c' > bin`)
	w.sh(w.repo, `sed -i s/^19$/nineteen/ f`)
	m, err := w.merge(base, patch, false)
	if err != nil || m.text("") != "modified bin; merged f" {
		t.Fatalf("%+v, %v", m, err)
	}
}
