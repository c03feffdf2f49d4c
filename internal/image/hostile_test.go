package image

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHostileLayers unpacks crafted layers beside a canary. Whatever a layer
// says, the canary is the same afterwards; the layer is refused with the kind
// given and the store is as it was, or the tree holds just the files and links
// given.
func TestHostileLayers(t *testing.T) {
	const (
		dir, sym, hard = tar.TypeDir, tar.TypeSymlink, tar.TypeLink
	)
	long := strings.Repeat("n", 255)
	for _, c := range []struct {
		name   string
		layers [][]e // CANARY in a name or link is the canary's host path
		refuse error
		want   []string // "path =content" or "path ->target", CANARY for the path without its slash
		opt    Options
	}{
		{name: "absolute path", layers: [][]e{{{name: "/CANARY/file", body: "x"}, {name: "/etc/passwd", body: "y"}}},
			want: []string{"CANARY/file =x", "etc/passwd =y"}},
		{name: "dot dot", layers: [][]e{{{name: "../escape"}}}, refuse: ErrHostile},
		{name: "dot dot inside", layers: [][]e{{{name: "a/../../escape"}}}, refuse: ErrHostile},
		{name: "dot dot at the end", layers: [][]e{{{name: "a/..", kind: dir}}}, refuse: ErrHostile},
		{name: "dot dot directory", layers: [][]e{{{name: "..", kind: dir, mode: 0o777}}}, refuse: ErrHostile},
		{name: "root is a file", layers: [][]e{{{name: ".", body: "x"}}}, refuse: ErrHostile},
		{name: "root is a link", layers: [][]e{{{name: "/", kind: sym, link: "CANARY"}}}, refuse: ErrHostile},

		{name: "file through a link, same layer", layers: [][]e{{{name: "out", kind: sym, link: "CANARY"}, {name: "out/file", body: "x"}}},
			want: []string{"CANARY/file =x", "out ->/CANARY"}},
		{name: "file through a link, later layer", layers: [][]e{{{name: "out", kind: sym, link: "CANARY"}}, {{name: "out/file", body: "x"}}},
			want: []string{"CANARY/file =x", "out ->/CANARY"}},
		{name: "file through a relative link", layers: [][]e{{{name: "a/out", kind: sym, link: "../../../../../../../../../../../..CANARY"}, {name: "a/out/file", body: "x"}}},
			want: []string{"CANARY/file =x", "a/out ->../../../../../../../../../../../../CANARY"}},
		{name: "file through a chain of links", layers: [][]e{{{name: "a", kind: sym, link: "b/.."}, {name: "b", kind: sym, link: "c"}, {name: "c", kind: sym, link: "/.."}, {name: "a/x", body: "x"}}},
			want: []string{"a ->b/..", "b ->c", "c ->/..", "x =x"}},
		{name: "links in a circle", layers: [][]e{{{name: "a", kind: sym, link: "b"}, {name: "b", kind: sym, link: "a"}, {name: "a/x"}}}, refuse: ErrHostile},
		{name: "link to itself", layers: [][]e{{{name: "a", kind: sym, link: "a/a"}, {name: "a/x"}}}, refuse: ErrHostile},
		{name: "magic link", layers: [][]e{{{name: "out", kind: sym, link: "/proc/self/cwd"}, {name: "out/x", body: "x"}}},
			want: []string{"out ->/proc/self/cwd", "proc/self/cwd/x =x"}},
		{name: "file over a link", layers: [][]e{{{name: "f", kind: sym, link: "CANARY/file"}, {name: "f", body: "x"}}}, want: []string{"f =x"}},
		{name: "directory over a link", layers: [][]e{{{name: "d", kind: sym, link: "CANARY"}}, {{name: "d", kind: dir, mode: 0o777}, {name: "d/x", body: "x"}}},
			want: []string{"d/x =x"}},
		{name: "directory becomes a link, then is written through", layers: [][]e{{{name: "d", kind: dir}, {name: "d/a", body: "a"}, {name: "d", kind: sym, link: "CANARY"}, {name: "d/b", body: "b"}}},
			want: []string{"CANARY/b =b", "d ->/CANARY"}},
		{name: "a parent becomes a link between two files", layers: [][]e{{{name: "d/e/a", body: "a"}, {name: "d", kind: sym, link: "CANARY"}, {name: "d/e/b", body: "b"}}},
			want: []string{"CANARY/e/b =b", "d ->/CANARY"}},
		{name: "link becomes a directory between two files", layers: [][]e{{{name: "d", kind: sym, link: "CANARY"}, {name: "d/a", body: "a"}, {name: "d", kind: dir}, {name: "d/b", body: "b"}}},
			want: []string{"CANARY/a =a", "d/b =b"}},
		{name: "file as a parent", layers: [][]e{{{name: "f", body: "x"}, {name: "f/x", body: "y"}}}, refuse: ErrHostile},
		{name: "link to a file as a parent", layers: [][]e{{{name: "g", body: "x"}, {name: "f", kind: sym, link: "g"}, {name: "f/x", body: "y"}}}, refuse: ErrHostile},
		{name: "entry that removes a part of its own path", layers: [][]e{{{name: "d/s", kind: dir}, {name: "l", kind: sym, link: "d/s/.."}, {name: "l/s", body: "x"}}},
			want: []string{"d/s =x", "l ->d/s/.."}},
		{name: "path that an entry before removed", layers: [][]e{{{name: "d/s", kind: dir}, {name: "l", kind: sym, link: "d/s/.."}, {name: "l/s", body: "x"}, {name: "l/z", body: "z"}}}, refuse: ErrHostile},
		{name: "empty link", layers: [][]e{{{name: "f", kind: sym, link: ""}}}, refuse: ErrHostile},
		{name: "endless link", layers: [][]e{{{name: "f", kind: sym, link: strings.Repeat("a/", 2500)}}}, refuse: ErrHostile},

		{name: "hard link to outside", layers: [][]e{{{name: "h", kind: hard, link: "CANARY/file"}}}, refuse: ErrHostile},
		{name: "hard link to outside by dot dot", layers: [][]e{{{name: "h", kind: hard, link: "../../../../../../../../CANARY/file"}}}, refuse: ErrHostile},
		{name: "hard link through a link", layers: [][]e{{{name: "out", kind: sym, link: "CANARY"}, {name: "h", kind: hard, link: "out/file"}}}, refuse: ErrHostile},
		{name: "hard link to a link is the link", layers: [][]e{{{name: "out", kind: sym, link: "CANARY/file"}, {name: "h", kind: hard, link: "out"}, {name: "h", body: "x"}}},
			want: []string{"h =x", "out ->/CANARY/file"}},
		{name: "hard link to a directory", layers: [][]e{{{name: "d", kind: dir}, {name: "h", kind: hard, link: "d"}}}, refuse: ErrHostile},
		{name: "hard link to itself", layers: [][]e{{{name: "f", body: "x"}, {name: "f", kind: hard, link: "f"}}}, refuse: ErrHostile},
		{name: "hard link below what it replaces", layers: [][]e{{{name: "d/f", body: "x"}, {name: "d", kind: hard, link: "d/f"}}}, refuse: ErrHostile},
		{name: "hard link to the root", layers: [][]e{{{name: "h", kind: hard, link: "/"}}}, refuse: ErrHostile},
		{name: "write to one of two hard links", layers: [][]e{{{name: "f", body: "x"}, {name: "h", kind: hard, link: "f"}}, {{name: "h", body: "y"}}},
			want: []string{"f =x", "h =y"}},
		{name: "hard link over a link", layers: [][]e{{{name: "f", body: "x"}, {name: "h", kind: sym, link: "CANARY/file"}, {name: "h", kind: hard, link: "f"}}},
			want: []string{"f =x", "h =x"}},

		{name: "devices and FIFOs are left out", layers: [][]e{{
			{name: "dev/null", kind: tar.TypeChar, mode: 0o666}, {name: "dev/sda", kind: tar.TypeBlock}, {name: "fifo", kind: tar.TypeFifo}, {name: "cont", kind: tar.TypeCont}, {name: "f", body: "x"}}},
			want: []string{"f =x"}},
		{name: "device as an overlay whiteout", layers: [][]e{{{name: "f", body: "x"}}, {{name: "f", kind: tar.TypeChar}}}, want: []string{"f =x"}},
		{name: "setuid is kept", layers: [][]e{{{name: "s", body: "x", mode: 0o6755}}}, want: []string{"s =x 6755"}},
		{name: "owners outside the map", layers: [][]e{{{name: "f", uid: MaxIDs}}}, refuse: ErrUnsupported},
		{name: "negative owner", layers: [][]e{{{name: "f", uid: -1}}}, refuse: ErrUnsupported},
		{name: "extended attributes are left out", layers: [][]e{{{name: "f", body: "x", extra: func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00", "SCHILY.xattr.user.overlay.opaque": "y"}
		}}}}, want: []string{"f =x"}},

		{name: "whiteout", layers: [][]e{{{name: "d/a", body: "a"}, {name: "d/b", body: "b"}}, {{name: "d/.wh.a"}}}, want: []string{"d/b =b"}},
		{name: "whiteout of a directory", layers: [][]e{{{name: "d/e/a", body: "a"}, {name: "b", body: "b"}}, {{name: ".wh.d"}}}, want: []string{"b =b"}},
		{name: "whiteout spares its own layer, before it", layers: [][]e{{{name: "a", body: "old"}, {name: "d/x", body: "old"}}, {{name: "a", body: "new"}, {name: "d/y", body: "new"}, {name: ".wh.a"}, {name: ".wh.d"}}},
			want: []string{"a =new", "d/y =new"}},
		{name: "whiteout spares its own layer, after it", layers: [][]e{{{name: "a", body: "old"}, {name: "d/x", body: "old"}}, {{name: ".wh.a"}, {name: ".wh.d"}, {name: "a", body: "new"}, {name: "d/y", body: "new"}}},
			want: []string{"a =new", "d/y =new"}},
		{name: "whiteout of what is not there", layers: [][]e{{{name: "d/.wh.a"}, {name: ".wh.b"}, {name: "f", body: "x"}}}, want: []string{"f =x"}},
		{name: "whiteout of the parent", layers: [][]e{{{name: "d", kind: dir}, {name: "d/.wh..."}}}, refuse: ErrHostile},
		{name: "whiteout of the directory itself", layers: [][]e{{{name: "d", kind: dir}, {name: "d/.wh.."}}}, refuse: ErrHostile},
		{name: "whiteout of nothing", layers: [][]e{{{name: ".wh."}}}, refuse: ErrHostile},
		{name: "whiteout through a link", layers: [][]e{{{name: "out", kind: sym, link: "CANARY"}}, {{name: "out/.wh.file"}}}, want: []string{"out ->/CANARY"}},
		{name: "whiteout through a link that leads inside", layers: [][]e{{{name: "d/a", body: "a"}, {name: "l", kind: sym, link: "/d"}}, {{name: "l/.wh.a"}}}, want: []string{"l ->/d"}},
		{name: "whiteout of a link", layers: [][]e{{{name: "out", kind: sym, link: "CANARY"}}, {{name: ".wh.out"}}}, want: nil},
		{name: "whiteout with something below it", layers: [][]e{{{name: ".wh.a/b"}}}, refuse: ErrHostile},
		{name: "opaque", layers: [][]e{{{name: "d/a", body: "a"}, {name: "d/e/f", body: "f"}, {name: "b", body: "b"}}, {{name: "d/.wh..wh..opq"}, {name: "d/c", body: "c"}}},
			want: []string{"b =b", "d/c =c"}},
		{name: "opaque after its own layer's files", layers: [][]e{{{name: "d/a", body: "a"}, {name: "d/e/f", body: "f"}}, {{name: "d/e/g", body: "g"}, {name: "d/.wh..wh..opq"}, {name: "d/.wh..wh..opq"}}},
			want: []string{"d/e/g =g"}},
		{name: "opaque through a link", layers: [][]e{{{name: "out", kind: sym, link: "CANARY"}}, {{name: "out/.wh..wh..opq"}}}, want: []string{"out ->/CANARY"}},
		{name: "opaque root", layers: [][]e{{{name: "a", body: "a"}}, {{name: ".wh..wh..opq"}, {name: "b", body: "b"}}}, want: []string{"b =b"}},
		{name: "opaque file", layers: [][]e{{{name: "a", body: "a"}}, {{name: "a/.wh..wh..opq"}}}, want: []string{"a =a"}},
		{name: "AUFS bookkeeping", layers: [][]e{{{name: ".wh..wh.plnk", kind: dir}, {name: ".wh..wh.plnk/1.2", body: "x"}, {name: ".wh..wh.aufs"}, {name: "f", body: "x"}}}, want: []string{"f =x"}},

		{name: "duplicates", layers: [][]e{{{name: "f", body: "1"}, {name: "f", body: "2"}, {name: "./f", body: "3"}, {name: "//f", body: "4"}}}, want: []string{"f =4"}},
		{name: "file becomes directory becomes file", layers: [][]e{{{name: "f", body: "1"}, {name: "f", kind: dir}, {name: "f/g", body: "2"}}, {{name: "f", body: "3"}}}, want: []string{"f =3"}},
		{name: "newline, invalid UTF-8, 255 bytes", layers: [][]e{{{name: "a\nb", body: "1"}, {name: "c\xff\xfe", body: "2"}, {name: long, body: "3"}, {name: "\\..\\x", body: "4"}}},
			want: []string{"\\..\\x =4", "a\nb =1", "c\xff\xfe =2", long + " =3"}},
		{name: "256 bytes", layers: [][]e{{{name: long + "n"}}}, refuse: ErrTooLarge},
		{name: "very long path", layers: [][]e{{{name: strings.Repeat("d/", 2100) + "f"}}}, refuse: ErrTooLarge},
		{name: "very deep path", layers: [][]e{{{name: strings.Repeat("d/", MaxDepth+1) + "f"}}}, refuse: ErrTooLarge},
		{name: "as deep as may be", layers: [][]e{{{name: strings.Repeat("d/", MaxDepth) + "f", body: "x"}}, {{name: ".wh.d"}, {name: "g", body: "x"}}}, want: []string{"g =x"}},
		{name: "deep by links", layers: [][]e{{{name: strings.Repeat("d/", 200) + "e", kind: dir}, {name: "l", kind: sym, link: strings.Repeat("d/", 200)}, {name: "l/" + strings.Repeat("d/", 100) + "f"}}}, refuse: ErrTooLarge},

		{name: "too many entries", opt: Options{MaxEntries: 3}, layers: [][]e{{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}}}, refuse: ErrTooLarge},
		{name: "too many entries by layers", opt: Options{MaxEntries: 3}, layers: [][]e{{{name: "a"}, {name: "b"}}, {{name: "a"}, {name: "b"}}}, refuse: ErrTooLarge},
		{name: "too many implied directories", opt: Options{MaxEntries: 3}, layers: [][]e{{{name: "a/b/c/d/e"}}}, refuse: ErrTooLarge},
		{name: "just enough entries", opt: Options{MaxEntries: 3}, layers: [][]e{{{name: "a/b", body: "x"}, {name: "c", body: "x"}}}, want: []string{"a/b =x", "c =x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			canary := plantCanary(t)
			var layers [][]byte
			for _, entries := range c.layers {
				var sharp []e
				for _, one := range entries {
					one.name = strings.ReplaceAll(one.name, "CANARY", canary)
					one.link = strings.ReplaceAll(one.link, "CANARY", canary)
					sharp = append(sharp, one)
				}
				layers = append(layers, layerOf(t, sharp...))
			}
			s := openStore(t, c.opt)
			img, err := s.Import(t.Context(), craft(t, nil, layers...).directory(t))
			if err != nil {
				t.Fatal(err)
			}
			outside, inside := snapshot(t, canary), snapshot(t, s.dir)
			r, err := s.Rootfs(t.Context(), img.Digest)
			if diff := cmp.Diff(outside, snapshot(t, canary)); diff != "" {
				t.Errorf("ESCAPE: the canary changed: %s", diff)
			}
			if c.refuse != nil {
				if !errors.Is(err, c.refuse) {
					t.Errorf("got %v, want %v", err, c.refuse)
				}
				if diff := cmp.Diff(inside, snapshot(t, s.dir)); diff != "" {
					t.Errorf("the refusal left something: %s", diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Release()
			var got []string
			for _, line := range leaves(t, r.Path) {
				got = append(got, strings.ReplaceAll(line, canary[1:], "CANARY"))
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("tree: %s", diff)
			}
			if err := s.Verify(t.Context(), img.Digest); err != nil {
				t.Error(err)
			}
		})
	}
}

// plantCanary makes a directory that no layer may reach.
func plantCanary(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"file", "passwd"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("canary"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// leaves are the files and links of a tree, in the walk's order.
func leaves(t testing.TB, root string) []string {
	t.Helper()
	var all []string
	var walk func(at, prefix string)
	walk = func(at, prefix string) {
		names, err := os.ReadDir(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			p := filepath.Join(at, n.Name())
			info, err := n.Info()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case n.IsDir():
				walk(p, prefix+n.Name()+"/")
			case info.Mode()&os.ModeSymlink != 0:
				target, err := os.Readlink(p)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, prefix+n.Name()+" ->"+target)
			case info.Mode().IsRegular():
				b, err := os.ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				line := prefix + n.Name() + " =" + string(b)
				if info.Mode()&os.ModeSetuid != 0 && info.Mode()&os.ModeSetgid != 0 {
					line += " 6755"
				}
				all = append(all, line)
			default:
				all = append(all, prefix+n.Name()+" SPECIAL "+info.Mode().String())
			}
		}
	}
	walk(root, "")
	return all
}
