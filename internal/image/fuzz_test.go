package image

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// FuzzLayer applies arbitrary bytes as two layers to a tree beside a canary.
// No input may reach the canary, panic, leak a descriptor, make a special
// file, or leave a tree that cannot be recorded and removed.
func FuzzLayer(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("unpacking gives files away, which needs root")
	}
	seeds := [][]e{
		{{name: "d", kind: tar.TypeDir}, {name: "d/f", body: "x"}, {name: "h", kind: tar.TypeLink, link: "d/f"}},
		{{name: "out", kind: tar.TypeSymlink, link: "../canary"}, {name: "out/file", body: "x"}, {name: "out/.wh.file"}},
		{{name: "d/a", body: "a"}, {name: "d/.wh..wh..opq"}, {name: ".wh.d"}, {name: "d", kind: tar.TypeSymlink, link: "/"}},
		{{name: "dev", kind: tar.TypeChar}, {name: "p", kind: tar.TypeFifo}, {name: "..", kind: tar.TypeDir}},
	}
	for _, s := range seeds {
		f.Add(layerOf(f, s...), layerOf(f, s...))
		f.Add(gz(layerOf(f, s...)), []byte{})
		f.Add(zst(layerOf(f, s...)), []byte("x"))
	}
	dir := f.TempDir()
	canary := filepath.Join(dir, "canary")
	if err := os.Mkdir(canary, 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(canary, "file"), []byte("canary"), 0o600); err != nil {
		f.Fatal(err)
	}
	want := snapshot(f, canary)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		top, err := os.MkdirTemp(dir, "tree-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(top)
		root, err := os.Open(top)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		before := descriptors(t)
		u := newUnpacker(int(root.Fd()), Options{MaxBytes: 1 << 20, MaxEntries: 1000})
		for _, l := range [][]byte{first, second} {
			// The digest is wrong almost always; entries come before it.
			u.layer(t.Context(), bytes.NewReader(l), v1.Hash{Algorithm: "sha256"})
		}
		u.tree.forget()
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
		if diff := cmp.Diff(want, snapshot(t, canary)); diff != "" {
			t.Errorf("ESCAPE: %s", diff)
		}
		var lines bytes.Buffer
		if _, _, err := writeRecord(context.Background(), int(root.Fd()), 0, &lines); err != nil {
			t.Error(err)
		}
		for line := range bytes.Lines(lines.Bytes()) {
			if quoted, _ := strconv.QuotedPrefix(string(line)); bytes.HasPrefix(line[len(quoted):], []byte(" special")) {
				t.Errorf("special file: %s", line)
			}
		}
		names, err := list(int(root.Fd()), ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := remove(int(root.Fd()), n); err != nil {
				t.Error(err)
			}
		}
	})
}

func descriptors(t testing.TB) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
