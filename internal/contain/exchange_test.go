//go:build linux

package contain

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// text is what a file holds, "" if there is none.
func text(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// pair makes two Roots on one mount, the second with the file "staged".
func pair(t *testing.T) (root, other *Root, dir, from string) {
	t.Helper()
	top, outside := t.TempDir(), t.TempDir()
	dir, from = top+"/tree", top+"/from"
	must(t, os.Mkdir(dir, 0o755), os.Mkdir(from, 0o755))
	hostileTree(t, dir, outside)
	write(t, from+"/staged", "new")
	t.Cleanup(func() {
		if got := text(outside + "/file"); got != "outside" {
			t.Errorf("outside holds %q", got)
		}
	})
	return open(t, dir), open(t, from), dir, from
}

func TestStat(t *testing.T) {
	root, _, dir, _ := pair(t)
	for path, want := range map[string]Type{
		"file": Regular, "hard": Regular, "dir": Directory, "link": Symlink, "linkfile": Symlink, "fifo": FIFO, "socket": Socket,
	} {
		got, err := root.Stat(path)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(dir+"/"+path, &st))
		if got != (Node{want, st.Ino}) {
			t.Errorf("%s: %+v, want %s %d", path, got, want, st.Ino)
		}
	}
	for path, want := range map[string]Refusal{
		"missing": ErrNotFound, "missing/file": ErrNotFound, "file/below": ErrNotDirectory, "link/file": ErrOutsideRoot,
		"innerdir/file": ErrOutsideRoot, "../x": ErrOutsideRoot, "": ErrInvalidPath, ".": ErrInvalidPath,
	} {
		_, err := root.Stat(path)
		refused(t, err, want)
	}
}

func TestExchange(t *testing.T) {
	root, other, dir, from := pair(t)
	before, err := root.Stat("dir/file")
	must(t, err)
	held, err := os.Open(dir + "/dir/file")
	must(t, err)
	defer held.Close()
	must(t, root.Exchange("dir/file", other, "staged"))
	if got := text(dir+"/dir/file") + text(from+"/staged"); got != "newinside" {
		t.Errorf("exchanged to %q", got)
	}
	after, err := other.Stat("staged")
	must(t, err)
	if after != before {
		t.Errorf("the old file is %+v, was %+v", after, before)
	}
	var b [6]byte
	if n, _ := held.Read(b[:]); string(b[:n]) != "inside" {
		t.Errorf("who had it open reads %q", b[:n])
	}
	must(t, root.Exchange("file", root, "dir/file")) // both of one Root
	if got := text(dir+"/file") + text(dir+"/dir/file"); got != "newinside" {
		t.Errorf("exchanged to %q", got)
	}
	must(t, root.Take("dir/made", other, "staged"))
	if got := text(dir + "/dir/made"); got != "inside" {
		t.Errorf("made %q", got)
	}
	if _, err := other.Stat("staged"); !errors.Is(err, ErrNotFound) {
		t.Errorf("what was taken is still there: %v", err)
	}
}

func TestReplace(t *testing.T) {
	root, other, dir, from := pair(t)
	for _, name := range []string{"dir/made", "file", "linkfile", "fifo", "loop"} {
		write(t, from+"/staged", name)
		must(t, root.Replace(name, other, "staged"))
		if node, err := root.Stat(name); err != nil || node.Type != Regular || text(dir+"/"+name) != name {
			t.Errorf("%s: %+v, %v", name, node, err)
		}
		if _, err := other.Stat("staged"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: what took its place is still there: %v", name, err)
		}
	}
	must(t, root.Symlink("elsewhere", "dir/new"), root.Replace("file", root, "dir/new")) // both of one Root
	if node, err := root.Stat("file"); err != nil || node.Type != Symlink {
		t.Errorf("%+v, %v", node, err)
	}
}

func TestExchangeRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		with func(root, other *Root) error
		want Refusal
	}{
		{"no such name", func(r, o *Root) error { return r.Exchange("missing", o, "staged") }, ErrNotFound},
		{"no such other", func(r, o *Root) error { return r.Exchange("file", o, "missing") }, ErrNotFound},
		{"below a link", func(r, o *Root) error { return r.Exchange("link/file", o, "staged") }, ErrOutsideRoot},
		{"out of a link", func(r, o *Root) error { return o.Exchange("staged", r, "link/file") }, ErrOutsideRoot},
		{"below a file", func(r, o *Root) error { return r.Exchange("file/x", o, "staged") }, ErrNotDirectory},
		{"above", func(r, o *Root) error { return r.Exchange("../from/staged", o, "staged") }, ErrOutsideRoot},
		{"other above", func(r, o *Root) error { return r.Exchange("file", o, "../tree/file") }, ErrOutsideRoot},
		{"a taken name", func(r, o *Root) error { return r.Take("file", o, "staged") }, ErrExists},
		{"a dangling link's name", func(r, o *Root) error { return r.Take("loop", o, "staged") }, ErrExists},
		{"below a link", func(r, o *Root) error { return r.Take("link/new", o, "staged") }, ErrOutsideRoot},
		{"a directory", func(r, o *Root) error { return r.Replace("dir", o, "staged") }, ErrNotRegular},
		{"below a link", func(r, o *Root) error { return r.Replace("link/file", o, "staged") }, ErrOutsideRoot},
		{"closed", func(r, o *Root) error { return errors.Join(o.Close(), r.Take("new", o, "staged")) }, ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, other, dir, from := pair(t)
			refused(t, c.with(root, other), c.want)
			if got := text(dir+"/file") + text(from+"/staged"); got != "insidenew" {
				t.Errorf("a refusal left %q", got)
			}
		})
	}
}

// TestExchangeLeavesTheTreeToNobody: while a parent is swapped with a link to
// another directory, nothing comes to lie there.
func TestExchangeLeavesTheTreeToNobody(t *testing.T) {
	root, dir, outside, stop := swapTree(t)
	must(t, os.Mkdir(dir+"/from", 0o755))
	other := open(t, dir+"/from")
	write(t, dir+"/from/staged", "new")
	exchanged := 0
	for range 2000 {
		if root.Exchange("x/file", other, "staged") == nil {
			exchanged++
		}
	}
	stop()
	if got := text(outside + "/file"); got != "outside" {
		t.Fatalf("outside holds %q", got)
	}
	t.Logf("%d of 2000 exchanged", exchanged)
}
