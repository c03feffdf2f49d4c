package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func directoryPlan(t *testing.T, o DirOptions) *Plan {
	t.Helper()
	p, err := Directory(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestDirectory(t *testing.T) {
	w := newWorld(t)
	w.repo = filepath.Join(w.dir, "plain")
	w.sh(w.dir, `mkdir plain; cd plain; echo a >a; echo x >x; chmod +x x; : >none; mkdir -p d/e empty ro; echo e >d/e/f; echo r >ro/r; chmod 0555 ro
ln -s a l; ln -s /nowhere dangling; ln -s d dl; ln -s . loop; mkfifo pipe; head -c 16777217 /dev/zero >over; head -c 16777216 /dev/zero >fits
mkdir -p .git/hooks d/.GIT sub; echo "url = https://token@host" >.git/config; echo "gitdir: /x" >sub/.git; echo s >sub/s
printf 1 >"$(printf 'new\nline')"; printf 2 >-dash; printf 3 >"$(printf 'bad\377')"; printf 4 >"$(printf 'e\314\201')"; printf 5 >"$(printf '\303\251')"; printf 6 >"$(printf '%0255d' 1)"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 7 >ptr`)
	p := directoryPlan(t, DirOptions{Dir: w.repo})
	want := []Skip{{".git", Nested}, {"d/.GIT", UnsafePath}, {"dangling", Symlink}, {"dl", Symlink}, {"empty/", EmptyDir}, {"l", Symlink}, {"loop", Symlink},
		{"over", TooLarge}, {"pipe", Special}, {"ptr", LFSPointer}, {"sub/.git", Nested}}
	if d := cmp.Diff(want, p.Skips); d != "" {
		t.Errorf("skips (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Link{{"dangling", "/nowhere"}, {"dl", "d"}, {"l", "a"}, {"loop", "."}}, p.Links); d != "" {
		t.Errorf("links (-want +got):\n%s", d)
	}
	stage(t, p, w.box)
	var only []string // in the user's tree
	for _, s := range want {
		only = append(only, s.Path)
	}
	w.roundTrip(p, `:`, append(only, ".git/config", "d/.GIT")...)
	c := w.roundTrip(p, `echo z >>a; chmod -x x; rm ro/r; echo n >empty; for f in new* -dash bad* ; do echo m >>"./$f"; done; echo no >l; mkdir dl; echo no >dl/x`, append(only, "dl/x", "empty")...)
	if d := cmp.Diff([]string{"dl/x", "l"}, c.Conflicts); d != "" {
		t.Errorf("conflicts (-want +got):\n%s", d)
	}
	if _, err := os.Stat(filepath.Join(w.repo, "ro", "r")); err != nil {
		t.Error("the user's tree was touched")
	}
}

// A tree deeper than the longest path is cut by name, and costs no
// descriptors.
func TestDirectoryDepth(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, `d=$(printf '%0200d' 0); chain=$d; for i in $(seq 14); do chain=$chain/$d; done
mkdir -p $chain ../half/$chain; echo deep >../half/$chain/f; mv ../half/$d $chain/`)
	p := directoryPlan(t, DirOptions{Dir: w.repo})
	if p.Counts[UnsafePath] != 1 || len(p.Files) != 0 {
		t.Errorf("want one unsafe path and no file, got %s", p.Summary)
	}
}

func TestDirectoryChanges(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("then")
	p := directoryPlan(t, DirOptions{Dir: dir, Links: true})
	for _, change := range []func(){
		func() { write("also") },
		func() { write("longer than it was") },
		func() { os.Remove(name) },
		func() { os.Symlink("/etc/passwd", name) },
	} {
		change()
		data, err := p.Files[0].Bytes()
		if typed := (*Error)(nil); err == nil || !errors.As(err, &typed) || typed.Path != "f" {
			t.Errorf("want *Error for f, got %q, %v", data, err)
		}
	}
	c := &Change{Deleted: []string{"f"}}
	if err := p.Patch(context.Background(), c, nil, os.Stderr); err == nil {
		t.Error("a patch was made against bytes that are gone")
	}
}

func TestDirectoryErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "none"), file, ""} {
		_, err := Directory(context.Background(), DirOptions{Dir: path})
		if typed := (*Error)(nil); !errors.As(err, &typed) || typed.Path != path || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: want *Error in one line, got %v", path, err)
		}
	}
}
