package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mixed holds a bit of everything that is no trouble.
const mixed = `
echo one >a; echo two >b; printf 'no newline' >c; : >empty; head -c 3000 /dev/urandom >bin
mkdir d; echo x >d/x; echo run >d/run; chmod +x d/run; printf 'a\r\nb\r\n' >crlf
printf '.env\nbuild/\n' >.gitignore
git add .; git commit -qm one`

func TestWorkingTree(t *testing.T) {
	for _, tt := range []struct {
		name   string
		init   []string
		setup  string
		opts   GitOptions
		dirty  bool
		status string // of the git inside; "" means clean
		skips  []Skip
		edit   string   // in the sandbox
		except []string // differs between sandbox and applied tree, rightly
	}{
		{name: "clean", setup: mixed, edit: `echo z >>a; rm b d/x; chmod -x d/run; echo c >>c; head -c 5000 /dev/urandom >bin; echo "r" >>crlf; rm empty; : >e2`},
		{name: "nothing changed", setup: mixed, edit: `:`},
		{name: "dirty", setup: mixed + `
echo more >>a; rm b; chmod +x c; echo staged >s; git add s; git rm -q --cached empty; rm empty; echo x2 >d/x; git add d/x; echo x3 >d/x`,
			dirty: true, status: " M a\n D b\n M c\nMM d/x\nD  empty\nA  s\n",
			edit: `echo z >>a; echo b >b; chmod -x c; rm s; echo x4 >>d/x; : >empty`},
		{name: "only deleted", setup: mixed + `; rm b`, dirty: true, status: " D b\n", edit: `rm c`},
		{name: "only a mode", setup: mixed + `; chmod +x b`, dirty: true, status: " M b\n", edit: `chmod -x b; chmod +x a`},
		{name: "untracked left out", setup: mixed + `; echo u >u; mkdir v; echo v >v/w`,
			skips: []Skip{{"u", Untracked}, {"v/w", Untracked}}, edit: `echo mine >u; echo z >z; mkdir v; echo n >v/new; echo n >v/w`, except: []string{"u", "v/w"}},
		{name: "untracked taken", setup: mixed + `; echo u >u; mkdir v; echo v >v/w; echo S >.env`, opts: GitOptions{Untracked: true},
			dirty: true, status: "?? u\n?? v/\n", skips: []Skip{{".env", Ignored}}, edit: `echo more >>u; rm -r v`, except: []string{".env"}},
		{name: "committed only", setup: mixed + `; echo dirty >>a; rm b`, opts: GitOptions{CommittedOnly: true}, edit: `:`, except: []string{"a", "b"}},
		{name: "new and ignored", setup: mixed, edit: `mkdir -p build sub/build; echo o >build/o; echo p >sub/build/p; echo S >.env; echo '*' >.gitignore; echo k >kept`,
			except: []string{"build/o", "sub/build/p", ".env"}},
		{name: "submodule", setup: `git init -q ../sub; (cd ../sub; echo s >s; git add s; git commit -qm s)
git -c protocol.file.allow=always submodule --quiet add ../sub sub; echo a >a; git add .; git commit -qm one`,
			skips: []Skip{{"sub", Submodule}}, edit: `echo z >>a`, except: []string{"sub/s", "sub/.git"}},
		{name: "pointer", setup: `printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 7 >p; echo 'p filter=lfs -text' >.gitattributes; git add .; git commit -qm one`,
			skips: []Skip{{"p", LFSPointer}}, edit: `echo z >z`},
		{name: "pointer with its content", setup: `printf content >p; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 7\n' $(sha256sum <p | cut -d' ' -f1) >q
id=$(git hash-object -w q); rm q; git update-index --add --cacheinfo 100644,$id,p; git commit -qm one`, edit: `echo z >z`},
		{name: "links left out", setup: mixed + `; ln -s a l; ln -s /nowhere n; ln -s d dl; git add .; git commit -qm two`,
			skips: []Skip{{"dl", Symlink}, {"l", Symlink}, {"n", Symlink}}, edit: `mkdir dl; echo evil >dl/x; echo z >z; ln -s /etc new`, except: []string{"l", "n", "dl", "dl/x"}},
		{name: "links staged", setup: mixed + `; ln -s a l; ln -s /nowhere n; ln -s d dl; git add .; git commit -qm two; ln -sf b l`, opts: GitOptions{Links: true},
			dirty: true, status: " M l\n", edit: `rm n; ln -sfn c dl; rm l; echo file >l; rm a; ln -s b a`},
		{name: "link in the way", setup: mixed + `; rm -r d; ln -s /etc d`, dirty: true, status: " D d/run\n D d/x\n",
			skips: []Skip{{"d", Untracked}, {"d/run", Symlink}, {"d/x", Symlink}}, edit: `mkdir d; echo evil >d/passwd; echo z >z`, except: []string{"d", "d/passwd"}},
		{name: "file and directory swap", setup: mixed, edit: `rm a; mkdir a; echo 1 >a/b; rm -r d; echo file >d`},
		{name: "odd names", setup: "mkdir -- -d; echo 1 >-- -f; echo 1 >-d/-- \n" + `
printf 1 >"$(printf 'new\nline')"; printf 2 >"$(printf 'tab\tq"\\')"; printf 3 >"$(printf 'bad\377utf')"; printf 4 >"$(printf 'e\314\201')"; printf 5 >"$(printf '\303\251')"
printf 6 >"$(printf '%0255d' 1)"; printf 7 >' lead'; printf 8 >'trail '; printf 9 >'*?['; printf 1 >a:b; printf 1 >'#'; printf 1 >'"q"'; git add -A .; git commit -qm one`,
			edit: `for f in -f * ; do test -f "./$f" && echo x >>"./$f"; done; printf n >"$(printf 'n\n\r\001')"; rm -- "$(printf 'bad\377utf')"; echo 1 >"$(printf 'also\376')"`},
		{name: "unborn", setup: `echo a >a; git add a; echo b >b; git add -N b`, dirty: true, status: "A  a\nAM b\n", edit: `echo z >>a; echo n >n`},
		{name: "nothing at all", setup: `:`, edit: `echo n >n`},
		{name: "detached", setup: mixed + `; git checkout -q --detach; echo z >>a`, dirty: true, status: " M a\n", edit: `echo y >>a`},
		{name: "sparse", setup: mixed + `; git sparse-checkout set --no-cone /a`, skips: []Skip{{".gitignore", NotCheckedOut}, {"b", NotCheckedOut}, {"bin", NotCheckedOut}, {"c", NotCheckedOut},
			{"crlf", NotCheckedOut}, {"d/run", NotCheckedOut}, {"d/x", NotCheckedOut}, {"empty", NotCheckedOut}}, edit: `echo z >>a`},
		{name: "split index", setup: mixed + `; git update-index --split-index; echo s >s; git add s`, dirty: true, status: "A  s\n", edit: `echo y >>a`},
		{name: "conflict", setup: mixed + `; git checkout -qb o; echo o >a; git commit -qam o; git checkout -q main; echo m >a; git commit -qam m; git merge -q o || :`,
			dirty: true, status: "UU a\n", edit: `echo solved >a`},
		{name: "crlf attributes", setup: `printf '*.t eol=crlf\n' >.gitattributes; printf 'a\nb\nc\n' >x.t; git add .; git commit -qm one; rm x.t; git checkout -q x.t`,
			dirty: true, edit: `printf 'a\r\nB\r\nc\r\n' >x.t; printf 'n\r\n' >n.t`},
		{name: "autocrlf", setup: `git config core.autocrlf true; printf 'a\r\nb\r\nc\r\n' >x; git add x; git commit -qm one`,
			dirty: true, edit: `printf 'a\r\nB\r\nc\r\n' >x; printf 'n\r\n' >n`},
		{name: "missing blob", setup: mixed + `; id=$(git rev-parse :a); rm -f .git/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-); echo z >>b`,
			dirty: true, status: " M b\n", edit: `echo y >>a; echo y >>b`},
		{name: "sha256", init: []string{"--object-format=sha256"}, setup: mixed + `; echo m >>a; git add a`, dirty: true, status: "M  a\n", edit: `head -c 5000 /dev/urandom >bin; echo n >n; rm c`},
		{name: "second commit", setup: mixed + `; echo 2 >>a; git commit -qam two`, edit: `echo 3 >>a`},
		{name: "nested repository", setup: mixed + `; git init -q inner; echo i >inner/i`, opts: GitOptions{Untracked: true}, skips: []Skip{{"inner/", Nested}}, edit: `mkdir inner; echo j >inner/j; git init -q other; echo o >other/o`, except: []string{"inner/j", "inner/i"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.init...)
			w.sh(w.repo, tt.setup)
			p := w.plan(tt.opts)
			if p.Dirty != tt.dirty {
				t.Errorf("dirty: want %v, got %v", tt.dirty, p.Dirty)
			}
			if d := cmp.Diff(tt.skips, p.Skips); d != "" {
				t.Errorf("skips (-want +got):\n%s", d)
			}
			if strings.Contains(p.Summary, "\n") {
				t.Errorf("summary is more than one line: %q", p.Summary)
			}
			w.stage(p)
			if got := w.git(w.box, "status", "--porcelain"); got != tt.status {
				t.Errorf("status inside: want %q, got %q", tt.status, got)
			}
			if p.Commit != "" && tt.name != "missing blob" {
				w.git(w.box, "fsck", "--full", "--strict")
				if got := strings.TrimSpace(w.git(w.box, "rev-parse", "HEAD")); got != p.Commit {
					t.Errorf("HEAD inside: want %s, got %s", p.Commit, got)
				}
				if got := strings.TrimSpace(w.git(w.box, "rev-list", "--all", "--count")); got != "1" {
					t.Errorf("commits inside: want 1, got %s", got)
				}
			}
			nested := func(path string) bool { return strings.Contains(path, "/.git/") }
			for path := range treeOf(t, w.repo) {
				if nested(path) {
					tt.except = append(tt.except, path)
				}
			}
			w.sh(w.box, tt.edit)
			for path := range treeOf(t, w.box) {
				if nested(path) {
					tt.except = append(tt.except, path)
				}
			}
			w.roundTrip(p, `:`, append(tt.except, unstaged(p)...)...)
		})
	}
}

// unstaged is every path that only the user's tree holds.
func unstaged(p *Plan) (paths []string) {
	for _, s := range p.Skips {
		if s.Reason == NotCheckedOut || s.Reason == Symlink {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

func TestMissingBlob(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; id=$(git rev-parse :a); rm -f .git/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-)`)
	p := w.plan(GitOptions{CommittedOnly: true})
	if d := cmp.Diff([]Skip{{"a", Missing}}, p.Skips); d != "" {
		t.Errorf("skips (-want +got):\n%s", d)
	}
	w.stage(p)
	w.sh(w.box, `test -z "$(git status --porcelain)"; echo z >>b; git commit -qam inside`)
}

func TestCommitInside(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; head -c 17825792 /dev/urandom >d/big; ln -s a d/l; git add .; git commit -qm two`)
	p := w.plan(GitOptions{})
	w.stage(p)
	w.sh(w.box, `git status --porcelain; echo z >d/z; git add -A .; git commit -qm inside; git gc -q; git fsck; test -z "$(git status --porcelain)"; git stash list`)
	// A machine knows nobody's name; a commit must work all the same.
	w.sh(w.box, `unset GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL; export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git commit -q --allow-empty -m anonymous; test "$(git log -1 --format=%an)" = "Checkfu sandbox"`)
}

func TestSizes(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, `
head -c 16777216 /dev/zero >zero16; head -c 16777216 /dev/urandom >random16; head -c 16777217 /dev/zero >over; head -c 17825792 /dev/urandom >random17
head -c 12000000 /dev/urandom >r1; head -c 12000000 /dev/urandom >r2
echo a >a; git add .; git commit -qm one`)
	p := w.plan(GitOptions{})
	want := []Skip{{"over", TooLarge}, {"random16", NoHistory}, {"random17", TooLarge}}
	if d := cmp.Diff(want, p.Skips); d != "" {
		t.Errorf("skips (-want +got):\n%s", d)
	}
	for _, f := range p.Files {
		if f.Size > MaxFile {
			t.Errorf("%s is of %d bytes", f.Path, f.Size)
		}
	}
	w.stage(p)
	if got := w.git(w.box, "status", "--porcelain"); got != "" || p.Dirty {
		t.Errorf("status inside: want clean, got %q, dirty %v", got, p.Dirty)
	}
	w.roundTrip(p, `printf x | dd of=random16 bs=1 conv=notrunc 2>/dev/null; echo b >>a; head -c 17825792 /dev/zero >grown; head -c 17825792 /dev/zero >r1`,
		"over", "random17", "grown", "r1")
	c := w.diff(p)
	if len(c.TooLarge) != 2 || len(c.Deleted) != 0 {
		t.Errorf("want grown and r1 too large and none deleted, got %s", c.Summary())
	}
}

func TestRevisions(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; git tag v1; echo 2 >>a; git commit -qam two; echo dirty >>a
git clone -q --bare . ../bare.git; git worktree add -q ../linked v1; echo w >>../linked/b
git init -q ../super; cd ../super; git -c protocol.file.allow=always submodule --quiet add ../repo sub`)
	first := strings.TrimSpace(w.git(w.repo, "rev-parse", "v1"))
	second := strings.TrimSpace(w.git(w.repo, "rev-parse", "HEAD"))
	at := func(name string) string { return filepath.Join(w.dir, name) }
	for _, tt := range []struct {
		name, dir, revision, commit, a string
		dirty                          bool
	}{
		{"tag", w.repo, "v1", first, "one\n", false},
		{"parent", w.repo, "HEAD~1", first, "one\n", false},
		{"full id", w.repo, second, second, "one\n2\n", false},
		{"short id", w.repo, first[:10], first, "one\n", false},
		{"reflog", w.repo, "main@{1}", first, "one\n", false},
		{"working tree", w.repo, "", second, "one\n2\ndirty\n", true},
		{"bare", at("bare.git"), "", second, "one\n2\n", false},
		{"bare by id", at("bare.git"), first, first, "one\n", false},
		{"git directory", filepath.Join(w.repo, ".git"), "", second, "one\n2\n", false},
		{"linked", at("linked"), "", first, "one\n", true},
		{"linked at main", at("linked"), "main", second, "one\n2\n", false},
		{"submodule's working tree", at("super/sub"), "", second, "one\n2\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := *w
			w.T, w.box = t, t.TempDir()
			p := w.plan(GitOptions{Dir: tt.dir, Revision: tt.revision})
			i := slices.IndexFunc(p.Files, func(f File) bool { return f.Path == "a" })
			data, err := p.Files[i].Bytes()
			if err != nil || p.Commit != tt.commit || string(data) != tt.a || p.Dirty != tt.dirty {
				t.Errorf("want %s %q dirty %v, got %s %q dirty %v (%v)", tt.commit, tt.a, tt.dirty, p.Commit, data, p.Dirty, err)
			}
			w.stage(p)
			if got := w.git(w.box, "status", "--porcelain"); (got != "") != tt.dirty {
				t.Errorf("status inside: %q", got)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; mkdir ../plain; : >../file; git init -q ../empty; mkdir ../fake ../fake/.git
git init -q ../secret; (cd ../secret; echo s >s; git add s; git commit -qm s)
mkdir ../pointer; echo "gitdir: $PWD/../secret/.git" >../pointer/.git
mkdir ../symlinked; ln -s ../secret/.git ../symlinked/.git
git init -q ../common; rm -r ../common/.git/objects ../common/.git/refs; echo "$PWD/../secret/.git" >../common/.git/commondir
git init -q ../borrowed; echo "$PWD/../secret/.git/objects" >../borrowed/.git/objects/info/alternates
git init -q ../store; rm -r ../store/.git/objects/pack; ln -s ../../../secret/.git/objects/pack ../store/.git/objects/pack
git init -q ../whole; rm -r ../whole/.git/objects; ln -s ../../secret/.git/objects ../whole/.git/objects
git init -q ../malformed; echo '[[' >../malformed/.git/config
git init -q ../format; git -C ../format config extensions.objectformat md5`)
	at := func(name string) string { return filepath.Join(w.dir, name) }
	for _, tt := range []struct {
		name, dir, revision, want string
	}{
		{"no such directory", at("nowhere"), "", "no such file"},
		{"plain", at("plain"), "", "not a git repository"},
		{"file", at("file"), "", "not a git repository"},
		{"below the top", filepath.Join(w.repo, "d"), "", "not the top of a git repository"},
		{"fake", at("fake"), "", "no HEAD, objects or refs"},
		{"no commit", at("empty"), "HEAD", "no commit yet"},
		{"bad revision", w.repo, "nothing", "no commit nothing"},
		{"option as revision", w.repo, "--all", "is not one"},
		{"tree as revision", w.repo, "HEAD^{tree}", "no commit"},
		{"control characters", w.repo, "\x1b[31m", `no commit "\x1b[31m"`},
		{"git file to another's", at("pointer"), "", "does not name this directory"},
		{"git link", at("symlinked"), "", "neither a directory nor a file"},
		{"common directory of another", at("common"), "", "no working tree of"},
		{"alternates", at("borrowed"), "", "borrowed from another repository"},
		{"pack link", at("store"), "", "symbolic link"},
		{"objects link", at("whole"), "", "no HEAD, objects or refs"},
		{"malformed configuration", at("malformed"), "", "cannot be read"},
		{"object format", at("format"), "", "want sha1 or sha256"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			temp := t.TempDir()
			_, err := Git(context.Background(), GitOptions{Dir: tt.dir, Revision: tt.revision, TempDir: temp})
			if typed := (*Error)(nil); !errors.As(err, &typed) || typed.Op != "git" || typed.Path != tt.dir {
				t.Fatalf("want *Error for %s, got %v", tt.dir, err)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("want one line with %q, got %q", tt.want, err)
			}
			if left, _ := os.ReadDir(temp); len(left) != 0 {
				t.Errorf("left %v behind", left)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Git(ctx, GitOptions{Dir: w.repo}); !errors.Is(err, context.Canceled) {
		t.Errorf("want canceled, got %v", err)
	}
	if _, err := Directory(ctx, DirOptions{Dir: w.repo}); !errors.Is(err, context.Canceled) {
		t.Errorf("want canceled, got %v", err)
	}
}

// A plan is what it was when it was made, whatever happens to the user's tree.
func TestWorkingTreeMovesOn(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; echo dirty >>b`)
	p := w.plan(GitOptions{})
	w.run(w.dir, "cp", "-a", w.repo, filepath.Join(w.dir, "then"))
	w.sh(w.repo, `echo later >a; echo later >b; rm c; git add .; git commit -qm later; git gc -q`)
	w.stage(p)
	w.repo = filepath.Join(w.dir, "then")
	w.roundTrip(p, `echo 1 >>a; echo 2 >>b; echo 3 >>c`)
}

func TestConcurrentReads(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; echo dirty >>b`)
	p := w.plan(GitOptions{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for _, f := range p.Files {
				if _, err := f.Bytes(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Files[len(p.Files)-1].Bytes(); err == nil {
		t.Error("a closed plan still opens files")
	}
}

func TestFileChecks(t *testing.T) {
	f := File{Path: "x", Size: 2, Digest: Digest([]byte("ab"))}
	for _, tt := range []struct {
		got string
		ok  bool
	}{{"ab", true}, {"ac", false}, {"a", false}, {"abc", false}, {"", false}} {
		f.open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(tt.got)), nil }
		data, err := f.Bytes()
		if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ErrChanged) {
			t.Errorf("%q: got %q, %v", tt.got, data, err)
		}
	}
	if _, err := (File{}).Open(); err == nil {
		t.Error("a file of no plan opens")
	}
}

func TestManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 files")
	}
	w := newWorld(t)
	manyFiles(t, w.repo, 20_000)
	w.sh(w.repo, `git add .; git commit -qm many; echo z >>d0/f0`)
	p := w.plan(GitOptions{})
	n := 0
	for _, f := range p.Files {
		if !inGit(f.Path) {
			n++
		}
	}
	if n != 20_000 || !p.Dirty {
		t.Errorf("want 20000 files and dirty, got %d, %v", n, p.Dirty)
	}
}

func manyFiles(t testing.TB, dir string, n int) {
	t.Helper()
	for i := range n {
		d := filepath.Join(dir, fmt.Sprintf("d%d", i%100))
		if i < 100 {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%d", i)), fmt.Appendf(nil, "%d\n%s", i, strings.Repeat("line of text\n", i%200)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTooMany(t *testing.T) {
	if testing.Short() {
		t.Skip("100,001 entries")
	}
	w := newWorld(t)
	// A tree of trees: 47 names to the third power are more paths than fit,
	// from four small objects.
	w.sh(w.repo, `id=$(echo x | git hash-object -w --stdin); kind=blob; mode=100644
for level in 1 2 3; do
  id=$(for n in $(seq 47); do printf '%s %s %s\tn%s\n' $mode $kind $id $n; done | git mktree); kind=tree; mode=040000
done
git update-ref refs/heads/main $(git commit-tree -m bomb $id)`)
	_, err := Git(context.Background(), GitOptions{Dir: w.repo, Revision: "main"})
	if typed := (*Error)(nil); !errors.Is(err, ErrTooMany) || !errors.As(err, &typed) {
		t.Errorf("want ErrTooMany, got %v", err)
	}
}
