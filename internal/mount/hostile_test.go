package mount

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// canaries is every setting we know of that names a program to run, or leads
// to other settings that do. CANARY becomes a program that leaves its name.
const canaries = `
[core]
	fsmonitor = CANARY fsmonitor
	sshCommand = CANARY ssh
	pager = CANARY pager
	editor = CANARY editor
	askPass = CANARY askpass
	gitProxy = CANARY proxy
	alternateRefsCommand = CANARY alternates
	hooksPath = HOOKS
	attributesFile = ATTRIBUTES
	worktree = /etc
[include]
	path = INCLUDED
[includeIf "gitdir:**"]
	path = INCLUDED
[filter "x"]
	clean = CANARY clean
	smudge = CANARY smudge
	process = CANARY process
	required = true
[diff]
	external = CANARY external
[diff "x"]
	command = CANARY command
	textconv = CANARY textconv
[merge "x"]
	driver = CANARY driver
[interactive]
	diffFilter = CANARY diffFilter
[gpg]
	program = CANARY gpg
[uploadpack]
	packObjectsHook = CANARY pack
[credential]
	helper = !CANARY credential
[pager]
	status = CANARY pager
	diff = CANARY pager
[trailer "x"]
	command = CANARY trailer
[alias]
	ls-files = !CANARY alias
	ls-tree = !CANARY alias
	cat-file = !CANARY alias
[submodule "s"]
	update = !CANARY submodule
[remote "origin"]
	url = ext::CANARY remote
	uploadpack = CANARY uploadpack
	promisor = true
[extensions]
	partialClone = origin
	worktreeConfig = true
[log]
	showSignature = true
[trace2]
	eventTarget = TRACE
`

func TestConfigRunsNothing(t *testing.T) {
	w := newWorld(t)
	canary, fired := filepath.Join(w.dir, "canary"), filepath.Join(w.dir, "fired")
	hooks := filepath.Join(w.dir, "hooks")
	w.sh(w.repo, mixed+`; ln -s a l; git add .; git commit -qm links
mkdir ../fired ../hooks
printf '#!/bin/sh\ntouch "`+fired+`/$1"\ncat\n' >../canary; chmod +x ../canary
for h in post-index-change reference-transaction pre-commit post-checkout pre-auto-gc fsmonitor-watchman; do
  printf '#!/bin/sh\ntouch "`+fired+`/hook"\n' >../hooks/$h; chmod +x ../hooks/$h; cp ../hooks/$h .git/hooks/
done
echo '* filter=x diff=x merge=x' | tee ../attributes .git/info/attributes >.gitattributes
printf '[core]\n\tfsmonitor = `+canary+` included\n' | tee ../included .git/config.worktree >/dev/null
echo z >>a; rm b; echo u >u
git init -q nested; (cd nested; echo n >n; git add n; git commit -qm n)
git -c protocol.file.allow=always submodule --quiet add ./nested sub; echo s >>sub/n`)
	config := strings.NewReplacer("CANARY", canary, "HOOKS", hooks, "ATTRIBUTES", filepath.Join(w.dir, "attributes"),
		"INCLUDED", filepath.Join(w.dir, "included"), "TRACE", filepath.Join(fired, "trace")).Replace(canaries)
	plain, err := os.ReadFile(filepath.Join(w.repo, ".git", "config"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.repo, ".git", "config"), []byte(string(plain)+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listFired := func() (names []string) {
		entries, err := os.ReadDir(fired)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
			os.RemoveAll(filepath.Join(fired, e.Name()))
		}
		return names
	}

	// The control: an ordinary git does run what the configuration names.
	control := config
	for _, line := range []string{"worktree = /etc", "partialClone = origin", "process = " + canary + " process"} {
		control = strings.Replace(control, line, "", 1)
	}
	write(control)
	for _, args := range [][]string{{"status"}, {"diff"}, {"show", "--textconv", "--no-ext-diff"}, {"add", "a"}} {
		w.try(w.repo, "git", args...)
	}
	if got := listFired(); len(got) < 4 {
		t.Fatalf("the canaries are dead: only %v fired for an ordinary git", got)
	} else {
		t.Logf("an ordinary git runs %v", got)
	}

	write(config)
	for _, other := range []string{"nested/.git/config", ".git/modules/sub/config"} {
		if err := os.WriteFile(filepath.Join(w.repo, other), []byte(string(plain)+config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []GitOptions{{}, {Untracked: true, Links: true}, {CommittedOnly: true}, {Revision: "HEAD~1"}, {Dir: filepath.Join(w.repo, ".git")}} {
		w := *w
		w.box = t.TempDir()
		p := w.plan(o)
		w.stage(p)
		w.sh(w.box, `echo y >>a; echo '* filter=x diff=x' >.gitattributes; echo n >n`)
		// HEAD~1 has no .gitattributes; either way the sandbox's counts for nothing.
		if patch := w.patch(p, w.diff(p)); !bytes.Contains(patch, []byte("\n+y\n")) {
			t.Errorf("%+v: patch lacks the change:\n%s", o, patch)
		}
		for _, f := range p.Files {
			if data, err := f.Bytes(); err != nil || f.Path == ".git/config" && bytes.Contains(data, []byte("canary")) {
				t.Errorf("%+v: %s: %v, holds %q", o, f.Path, err, data)
			}
			if strings.HasPrefix(f.Path, ".git/hooks") {
				t.Errorf("%+v: a hook was staged: %s", o, f.Path)
			}
		}
	}
	if got := listFired(); got != nil {
		t.Errorf("the repository's configuration ran %v", got)
	}
}

func TestUserIgnoresHold(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed+`; printf '*.global\n' >../ignored-by-me; git config --global core.excludesFile `+filepath.Join(w.dir, "ignored-by-me")+`
printf '*.local\n' >.git/info/exclude; printf '*.named\n' >../named; git config core.excludesFile `+filepath.Join(w.dir, "named")+`
for x in global local named none; do echo secret >s.$x; done`)
	p := w.plan(GitOptions{Untracked: true})
	want := []Skip{{"s.global", Ignored}, {"s.local", Ignored}, {"s.named", Ignored}}
	if d := cmp.Diff(want, p.Skips); d != "" {
		t.Errorf("skips (-want +got):\n%s", d)
	}
	w.stage(p)
	w.sh(w.box, `echo n >new.global; echo n >new.local; echo n >new.none`)
	if c := w.diff(p); len(c.Added) != 1 || len(c.Ignored) != 2 {
		t.Errorf("want one added and two ignored, got %s", c.Summary())
	}
}

// A pack index that maps an id to other bytes, which git does not notice.
func TestObjectsAreTheirIDs(t *testing.T) {
	for _, tt := range []struct{ name, real, forged, kind string }{
		{"blob", ":a", "forged\n", "blob"},
		{"tree", "HEAD:d", "", "tree"},
		{"commit", "HEAD", "tree ROOT\nauthor x <x> 0 +0000\ncommitter x <x> 0 +0000\n\nx", "commit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.sh(w.repo, mixed)
			real := strings.TrimSpace(w.git(w.repo, "rev-parse", tt.real))
			root := strings.TrimSpace(w.git(w.repo, "rev-parse", "HEAD^{tree}"))
			if err := os.WriteFile(filepath.Join(w.dir, "forged"), []byte(strings.ReplaceAll(tt.forged, "ROOT", root)), 0o644); err != nil {
				t.Fatal(err)
			}
			forged := strings.TrimSpace(w.git(w.repo, "hash-object", "-t", tt.kind, "--literally", "-w", "../forged"))
			loose := func(id string) string { return filepath.Join(w.repo, ".git", "objects", id[:2], id[2:]) }
			if err := os.Rename(loose(forged), loose(real)); err != nil {
				t.Fatal(err)
			}
			p, err := Git(context.Background(), GitOptions{Dir: w.repo, CommittedOnly: true})
			if typed := (*Error)(nil); !errors.As(err, &typed) {
				t.Errorf("want *Error, got %v", err)
			}
			if err == nil {
				p.Close()
			}
		})
	}
}

// What the sandbox says in .gitattributes changes its own lines of the patch
// and no others.
func TestAttributesHideNothing(t *testing.T) {
	for _, before := range []string{"", "* -diff\n", "* text=auto eol=crlf\n"} {
		for _, after := range []string{"* -diff\n", "* binary\n", "*.txt diff=evil filter=evil -text\n", "* ident working-tree-encoding=UTF-16\n", "[attr]binary diff\n* export-ignore\n"} {
			w := newWorld(t)
			if before != "" {
				if err := os.WriteFile(filepath.Join(w.repo, ".gitattributes"), []byte(before), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			w.sh(w.repo, `echo one >a.txt; head -c 9000 /dev/urandom >b.bin; git add .; git commit -qm one`)
			p := w.plan(GitOptions{})
			w.stage(p)
			w.sh(w.box, `echo two >>a.txt; head -c 9000 /dev/urandom >b.bin; mkdir d; echo n >d/n.txt`)
			plain := w.patch(p, w.diff(p))
			for _, name := range []string{".gitattributes", "d/.gitattributes"} {
				if err := os.WriteFile(filepath.Join(w.box, name), []byte(after), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			patch := w.patch(p, w.diff(p))
			if d := cmp.Diff(sections(plain), withoutAttributes(sections(patch))); d != "" {
				t.Errorf("%q then %q: the patch differs (-plain +got):\n%s", before, after, d)
			}
			if !bytes.Contains(patch, []byte("\n+two\n")) || !bytes.Contains(patch, []byte("GIT binary patch")) {
				t.Errorf("%q then %q: text and binary are not told apart by content:\n%s", before, after, patch)
			}
		}
	}
}

// sections are the files of a patch.
func sections(patch []byte) (all []string) {
	for _, s := range strings.Split("\n"+string(patch), "\ndiff --git ")[1:] {
		all = append(all, strings.TrimSuffix(s, "\n"))
	}
	return all
}

func withoutAttributes(all []string) []string {
	return slices.DeleteFunc(all, func(s string) bool {
		first, _, _ := strings.Cut(s, "\n")
		return strings.Contains(first, ".gitattributes")
	})
}

// Names that git refuses would spoil the whole patch.
func TestRefusedNames(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed)
	p := w.plan(GitOptions{Links: true})
	w.stage(p)
	w.sh(w.box, `mkdir -p s/.GIT t/.git. 'u/.git ' v/.git:x w/git~1; for d in s/.GIT t/.git. 'u/.git ' v/.git:x w/git~1; do echo evil >"$d/config"; done
ln -s a .gitmodules; mkfifo pipe; rm c; mkfifo c; mkdir -p .git/hooks; echo evil >.git/hooks/x; echo z >>a`)
	c := w.diff(p)
	want := &Change{
		Modified: c.Modified, Deleted: nil,
		Special: c.Special,
		Refused: []string{".gitmodules", "s/.GIT/config", "t/.git./config", "u/.git /config", "v/.git:x/config", "w/git~1/config"},
	}
	if d := cmp.Diff(want, c); d != "" || len(c.Modified) != 1 || len(c.Special) != 2 {
		t.Errorf("change (-want +got):\n%s", d)
	}
	patch := w.patch(p, c)
	if bytes.Contains(patch, []byte("evil")) {
		t.Errorf("patch holds a refused name:\n%s", patch)
	}
	w.apply(patch)
}

// The real git is the oracle: what it refuses, we call reserved.
func TestReserved(t *testing.T) {
	w := newWorld(t)
	id := strings.TrimSpace(w.git(w.repo, "hash-object", "-w", "/dev/null"))
	for _, name := range []string{
		".git", ".GIT", ".Git", ".git ", ".git.", ".git . .", ".git:x", ".git::$INDEX_ALLOCATION", "git~1", "GIT~1", "git~1.", "git~1 :x",
		`.git\x`, `x\.git`, `a\git~1`, ".gitx", ".git-x", "git~2", "git", ".gi", "x.git", ".gitignore", ".gitmodules", ".git\n", "...git", ". git",
		".g\u200cit", ".git\ufeff", "git~1x", " .git",
	} {
		for _, path := range []string{name, "d/" + name, name + "/f"} {
			_, err := w.try(w.repo, "git", "update-index", "--add", "--cacheinfo", "100644,"+id+","+path)
			if err != nil && !Reserved(path) {
				t.Errorf("git refuses %q and reserved does not", path)
			}
			w.try(w.repo, "git", "read-tree", "--empty")
		}
	}
	for _, path := range []string{"git", ".gitignore", "x.git", ".gitx", "a/.github/b", "git~2", "agit~1"} {
		if Reserved(path) {
			t.Errorf("%q is an ordinary name", path)
		}
	}
}

// tree objects that no git would write.
func TestHostileTrees(t *testing.T) {
	for _, tt := range []struct{ name, entries string }{
		{"parent", `100644 ..\0ID`},
		{"git", `100644 .git\0ID`},
		{"absolute", `100644 /etc\0ID`},
		{"twice", `100644 a\0ID100644 a\0ID`},
		{"link and directory", `120000 a\0ID40000 a\0TREE`},
		{"long name", `100644 ` + strings.Repeat("n", 300) + `\0ID`},
		{"dot", `100644 .\0ID`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			id := strings.TrimSpace(w.sh(w.repo, `printf /etc | git hash-object --stdin -w`))
			sub := strings.TrimSpace(w.sh(w.repo, `printf '100644 blob `+id+`\tb\n' | git mktree`))
			raw := strings.NewReplacer(`\0`, "\x00", "ID", unhex(id), "TREE", unhex(sub)).Replace(tt.entries)
			if err := os.WriteFile(filepath.Join(w.dir, "t"), []byte(raw), 0o644); err != nil {
				t.Fatal(err)
			}
			w.sh(w.repo, `git update-ref refs/heads/main $(git commit-tree -m x $(git hash-object -t tree --literally -w ../t))`)
			p, err := Git(context.Background(), GitOptions{Dir: w.repo, CommittedOnly: true, Links: true})
			if typed := (*Error)(nil); !errors.As(err, &typed) {
				t.Errorf("want *Error, got %v", err)
			}
			if err == nil {
				p.Close()
			}
		})
	}
}

func unhex(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += 2 {
		n := strings.IndexByte("0123456789abcdef", s[i])<<4 | strings.IndexByte("0123456789abcdef", s[i+1])
		b.WriteByte(byte(n))
	}
	return b.String()
}

// A FIFO where git or we would read must end with the caller's patience.
func TestFIFOs(t *testing.T) {
	for _, name := range []string{".git/index", ".git/HEAD", ".git/config", ".git/refs/heads/main", ".git/packed-refs", ".git/info/exclude", ".gitignore", ".gitattributes", "a"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sh(w.repo, mixed+`; rm -f `+name+`; mkfifo `+name)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			start := time.Now()
			p, err := Git(ctx, GitOptions{Dir: w.repo})
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if err == nil {
				defer p.Close()
				for _, f := range p.Files {
					if f.Path == name {
						t.Errorf("a FIFO was staged")
					}
				}
			}
			if typed := (*Error)(nil); err != nil && !errors.As(err, &typed) {
				t.Errorf("want *Error, got %v", err)
			}
		})
	}
}

// A directory that is swapped for a link to the outside, while it is read.
func TestNoFollow(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{root, filepath.Join(root, "d")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "d", "secret"), []byte("public"), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := openTree(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	done := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			os.Rename(filepath.Join(root, "d"), filepath.Join(root, "away"))
			os.Symlink("..", filepath.Join(root, "d"))
			os.Remove(filepath.Join(root, "d"))
			os.Rename(filepath.Join(root, "away"), filepath.Join(root, "d"))
		}
		done <- n
	}()
	reads, links := 0, 0
	for ctx.Err() == nil {
		n, err := tr.open("d/secret")
		if err != nil {
			continue
		}
		if n.kind == behindLink {
			links++
		}
		if n.kind == regular {
			reads++
			data := make([]byte, 6)
			if n.file.Read(data); string(data) != "public" {
				t.Errorf("read %q from outside", data)
			}
			n.file.Close()
		}
	}
	if swaps := <-done; swaps == 0 || reads == 0 || links == 0 {
		t.Errorf("the race did not take place: %d swaps, %d reads, %d links met", swaps, reads, links)
	}
}
