package mount

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	x := Digest([]byte("x"))
	file := func(path string) Entry { return Entry{Path: path, Type: TypeFile, Size: 1, Digest: x} }
	base := Baseline{
		Files: map[string]File{"a": {Path: "a", Size: 1, Digest: x}, "b": {Path: "b", Size: 1, Digest: x, Executable: true}},
		Links: map[string]string{"l": "a"},
		leftOut: map[string]Reason{"big": TooLarge, "link": Symlink, "mod": Submodule, "node/": Ignored, ".env": Ignored,
			"dir/": Unreadable},
	}
	same := []Entry{file("a"), {Path: "b", Type: TypeFile, Size: 1, Digest: x, Executable: true}, {Path: "l", Type: TypeSymlink, Target: "a"}}
	for _, tt := range []struct {
		name string
		edit func([]Entry) []Entry
		want Change
	}{
		{"same", func(e []Entry) []Entry { return e }, Change{}},
		{"same without digest", func(e []Entry) []Entry { e[0].Digest = ""; return e }, Change{}},
		{"all gone", func([]Entry) []Entry { return nil }, Change{Deleted: []string{"a", "b", "l"}}},
		{"git directory", func(e []Entry) []Entry { return append(e, file(".git/config"), file(".git/hooks/x")) }, Change{}},
		{"mode", func(e []Entry) []Entry { e[0].Executable = true; return e }, Change{ModeChanged: []Entry{{Path: "a", Type: TypeFile, Size: 1, Digest: x, Executable: true}}}},
		{"left out", func(e []Entry) []Entry {
			return append(e, file("big"), file("link/x"), file("mod/y"), file("node/m/x"), file(".env"), file("dir/z"), file("node2"), file("linked"))
		}, Change{Conflicts: []string{"big", "dir/z", "link/x", "mod/y"}, Ignored: []string{".env", "node/m/x"}, Added: []Entry{file("linked"), file("node2")}}},
		{"became directory", func(e []Entry) []Entry { e[0].Type = TypeDirectory; return append(e, file("a/b")) }, Change{Deleted: []string{"a"}, Added: []Entry{file("a/b")}}},
		{"became special", func(e []Entry) []Entry { e[0].Type = "fifo"; return e }, Change{Special: []Entry{{Path: "a", Type: "fifo", Size: 1, Digest: x}}}},
		{"became link", func(e []Entry) []Entry { e[0] = Entry{Path: "a", Type: TypeSymlink, Target: "/etc"}; return e }, Change{Links: []Link{{"a", "/etc"}}}},
		{"unknown target", func(e []Entry) []Entry { e[0] = Entry{Path: "a", Type: TypeSymlink}; return e }, Change{Special: []Entry{{Path: "a", Type: TypeSymlink}}}},
		{"link became file", func(e []Entry) []Entry { e[2] = file("l"); return e }, Change{Modified: []Entry{file("l")}}},
		{"grew too large", func(e []Entry) []Entry { e[0].Size = MaxFile + 1; return e }, Change{TooLarge: []Entry{{Path: "a", Type: TypeFile, Size: MaxFile + 1, Digest: x}}}},
		{"refused names", func(e []Entry) []Entry {
			return append(e, file("s/.git/config"), file("git~1"), Entry{Path: "d/.gitmodules", Type: TypeSymlink, Target: "x"}, file(".gitmodules"))
		}, Change{Refused: []string{"d/.gitmodules", "git~1", "s/.git/config"}, Added: []Entry{file(".gitmodules")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			after := tt.edit(append([]Entry(nil), same...))
			c, err := Diff(context.Background(), base, after, func(string) ([]byte, error) { return []byte("x"), nil })
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&tt.want, c); d != "" {
				t.Errorf("change (-want +got):\n%s", d)
			}
			if strings.Contains(c.Summary(), "\n") {
				t.Errorf("summary: %q", c.Summary())
			}
		})
	}
	for _, path := range []string{"", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\x00b", strings.Repeat("n", 256)} {
		if _, err := Diff(context.Background(), base, []Entry{file(path)}, nil); err == nil {
			t.Errorf("a listing with %q was taken", path)
		}
	}
	if _, err := Diff(context.Background(), base, []Entry{file("q"), file("q")}, nil); err == nil {
		t.Error("a listing with a path twice was taken")
	}
	if _, err := Diff(context.Background(), base, []Entry{file("q/r/s"), file("q")}, nil); err == nil {
		t.Error("a listing with a path below a file was taken")
	}
}

// The provider's second answer is held to its first.
func TestPatchChecksWhatItReads(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, mixed)
	p := w.plan(GitOptions{})
	w.stage(p)
	w.sh(w.box, `echo z >>a; echo n >n`)
	c := w.diff(p)
	for _, tt := range []struct {
		name string
		read ReadFunc
		want error
	}{
		{"other bytes", func(path string) ([]byte, error) { return []byte("??????"), nil }, ErrChanged},
		{"no bytes", func(path string) ([]byte, error) { return nil, nil }, ErrChanged},
		{"failure", func(path string) ([]byte, error) { return nil, os.ErrPermission }, os.ErrPermission},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			err := p.Patch(context.Background(), c, tt.read, &b)
			if typed := (*Error)(nil); !errors.Is(err, tt.want) || !errors.As(err, &typed) {
				t.Errorf("want *Error with %v, got %v", tt.want, err)
			}
			if b.Len() != 0 {
				t.Errorf("part of a patch was written: %q", b.String())
			}
		})
	}
}
