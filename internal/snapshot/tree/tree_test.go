package tree

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
)

func write(t testing.TB, dir string, emptied ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Write(t.Context(), &b, dir, emptied...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func extract(t testing.TB, stream []byte) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Extract(t.Context(), bytes.NewReader(stream), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCyclesLoseNothing looks by a walk that shares nothing with Write.
func TestCyclesLoseNothing(t *testing.T) {
	treetest.NeedsRoot(t)
	first := t.TempDir()
	treetest.Build(t, first)
	want, stream := treetest.Walk(t, first), write(t, first)
	if len(stream) > 2<<20 {
		t.Fatalf("%d bytes: holes were written", len(stream))
	}
	dir := first
	for cycle := range 3 { // twenty go through the store
		again := write(t, dir)
		if !bytes.Equal(again, stream) {
			t.Fatalf("cycle %d: other bytes of the same tree", cycle)
		}
		dir = extract(t, again)
	}
	if diff := cmp.Diff(want, treetest.Walk(t, dir)); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(filepath.Join(dir, "outputs/plain")); err != nil { // and what was deleted stays so
		t.Fatal(err)
	}
	if _, there := treetest.Walk(t, extract(t, write(t, dir)))["outputs/plain"]; there {
		t.Error("a deleted file came back")
	}
}

func TestTwoNamesAreOneFileAfterwards(t *testing.T) {
	treetest.NeedsRoot(t)
	from := t.TempDir()
	treetest.Build(t, from)
	dir := extract(t, write(t, from))
	if err := os.WriteFile(filepath.Join(dir, "links/two"), []byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "outputs/three")); string(got) != "new" {
		t.Errorf("got %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(from, "outputs/three")); string(got) != "three names" {
		t.Errorf("the source has %q", got)
	}
}

func TestEmptiedDirectoriesAreKeptWithoutTheirEntries(t *testing.T) {
	treetest.NeedsRoot(t)
	from := t.TempDir()
	treetest.Build(t, from)
	got := treetest.Walk(t, extract(t, write(t, from, "outputs", "not there")))
	want := treetest.Walk(t, from)
	if got["outputs"] != want["outputs"] {
		t.Errorf("got %q, want %q", got["outputs"], want["outputs"])
	}
	for name := range got {
		if strings.HasPrefix(name, "outputs/") {
			t.Errorf("%s is there", name)
		}
	}
	if got["d/d/d"] == "" || got["sticky"] == "" {
		t.Error("others are not")
	}
}

// TestNoLinkIsFollowed: a workload left links where one might expect
// directories. Nothing outside is in the stream, nothing outside is written to.
func TestNoLinkIsFollowed(t *testing.T) {
	treetest.NeedsRoot(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("a secret of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := t.TempDir()
	for _, name := range []string{"outputs", "mounts"} {
		if err := os.Symlink(outside, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := treetest.Walk(t, outside)
	stream := write(t, from)
	if bytes.Contains(stream, []byte("a secret of the host")) {
		t.Error("the secret is in the stream")
	}
	extract(t, stream)
	if diff := cmp.Diff(before, treetest.Walk(t, outside)); diff != "" {
		t.Error(diff)
	}
	root := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(from, root); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), &bytes.Buffer{}, root); err == nil {
		t.Error("a root that is a link was followed")
	}
	if _, err := Extract(t.Context(), bytes.NewReader(stream), root); err == nil {
		t.Error("a root that is a link was written to")
	}
}

func TestWriteRefuses(t *testing.T) {
	treetest.NeedsRoot(t)
	cases := []struct {
		name, path string
		make       func(dir string) error
		want       error
	}{
		{"a character device", "null", func(d string) error { return unix.Mknod(d+"/null", unix.S_IFCHR|0o666, 0x103) }, ErrRefused},
		{"a block device", "sub/disk", func(d string) error {
			return errors.Join(os.Mkdir(d+"/sub", 0o755), unix.Mknod(d+"/sub/disk", unix.S_IFBLK|0o666, 0x700))
		}, ErrRefused},
		{"another mount", "mnt", func(d string) error {
			return errors.Join(os.Mkdir(d+"/mnt", 0o755), unix.Mount("none", d+"/mnt", "tmpfs", 0, "size=64k"))
		}, ErrRefused},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Cleanup(func() {
				if c.path == "mnt" {
					treetest.Unmount(t, dir+"/mnt")
				}
			})
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Write(t.Context(), &bytes.Buffer{}, dir)
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, c.want) || e.Path != c.path || e.Op != "write" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestDeeperThanAnyPath makes a tree that no path can name: 3,000 levels of
// names of 255 bytes.
func TestDeeperThanAnyPath(t *testing.T) {
	treetest.NeedsRoot(t)
	const levels = 3000
	var b bytes.Buffer
	if err := encode(&b, func(e *encoder) {
		for range levels {
			e.entry(entry{kind: kindDirectory, name: strings.Repeat("x", maxName), meta: meta{mode: 0o700}})
		}
		e.entry(entry{kind: kindFIFO, name: "bottom", meta: meta{mode: 0o600}})
		for range levels {
			e.entry(entry{kind: kindLeave})
		}
	}); err != nil {
		t.Fatal(err)
	}
	dir := extract(t, b.Bytes())
	var again bytes.Buffer
	done, err := Write(t.Context(), &again, dir)
	if err != nil || done.Entries != levels+2 {
		t.Fatalf("%+v, %v", done, err)
	}
	if !bytes.Equal(again.Bytes(), b.Bytes()) {
		t.Error("it came back as something else")
	}
	if open := descriptors(t); open > 100 {
		t.Errorf("%d descriptors are open", open)
	}
}

func descriptors(t testing.TB) int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// encode writes a stream whose root is mode 0700 of root, of time 0.
func encode(b *bytes.Buffer, body func(*encoder)) error {
	e := encoder{w: bufio.NewWriter(b)}
	e.write([]byte(magic))
	e.entry(entry{kind: kindDirectory, meta: meta{mode: 0o700}})
	body(&e)
	e.entry(entry{kind: kindLeave})
	e.entry(entry{kind: kindEnd})
	return errors.Join(e.err, e.w.Flush())
}

func TestExtractRefuses(t *testing.T) {
	treetest.NeedsRoot(t)
	file := func(name string, alias uint64) entry { return entry{kind: kindFIFO, name: name, alias: alias} }
	cases := map[string]struct {
		field string
		body  func(e *encoder)
	}{
		"a way up":              {"name", func(e *encoder) { e.entry(file("..", 0)) }},
		"itself":                {"name", func(e *encoder) { e.entry(file(".", 0)) }},
		"a path":                {"name", func(e *encoder) { e.entry(file("a/b", 0)) }},
		"an absolute path":      {"name", func(e *encoder) { e.entry(file("/etc", 0)) }},
		"no name":               {"name", func(e *encoder) { e.entry(file("", 0)) }},
		"a zero byte":           {"name", func(e *encoder) { e.entry(file("a\x00", 0)) }},
		"a name too long":       {"name length", func(e *encoder) { e.entry(file(strings.Repeat("n", 256), 0)) }},
		"a name twice":          {"name", func(e *encoder) { e.entry(file("a", 0)); e.entry(file("a", 0)) }},
		"a file through a link": {"name", func(e *encoder) { e.entry(entry{kind: kindSymlink, name: "a", target: "/tmp"}); e.entry(file("a", 0)) }},
		"a directory over a link": {"name", func(e *encoder) {
			e.entry(entry{kind: kindSymlink, name: "a", target: "/tmp"})
			e.entry(entry{kind: kindDirectory, name: "a"})
		}},
		"an alias of nothing":      {"alias", func(e *encoder) { e.entry(entry{kind: kindLink, name: "a", alias: 1}) }},
		"alias 0":                  {"alias", func(e *encoder) { e.entry(entry{kind: kindLink, name: "a"}) }},
		"an alias out of turn":     {"alias", func(e *encoder) { e.entry(file("a", 2)) }},
		"an unknown kind":          {"kind", func(e *encoder) { e.entry(entry{kind: 'x', name: "a"}) }},
		"an end too early":         {"kind", func(e *encoder) { e.entry(entry{kind: kindEnd}) }},
		"a leave too many":         {"kind", func(e *encoder) { e.entry(entry{kind: kindLeave}) }},
		"a mode with a type":       {"mode", func(e *encoder) { e.entry(entry{kind: kindFIFO, name: "a", meta: meta{mode: 0o10000}}) }},
		"a user that means nobody": {"uid", func(e *encoder) { e.entry(entry{kind: kindFIFO, name: "a", meta: meta{uid: 1<<32 - 1}}) }},
		"too many nanoseconds":     {"nanoseconds", func(e *encoder) { e.entry(entry{kind: kindFIFO, name: "a", meta: meta{nanos: 1e9}}) }},
		"a link to nowhere":        {"target", func(e *encoder) { e.entry(entry{kind: kindSymlink, name: "a"}) }},
		"an attribute of no name":  {"attribute", func(e *encoder) { e.entry(entry{kind: kindFIFO, name: "a", meta: meta{attributes: []attribute{{}}}}) }},
		"bytes beyond the size":    {"length", func(e *encoder) { e.entry(entry{kind: kindFile, name: "a", size: 3}); e.part(0, 4) }},
		"a gap beyond the size":    {"gap", func(e *encoder) { e.entry(entry{kind: kindFile, name: "a", size: 3}); e.part(4, 0) }},
		"a gap before nothing":     {"length", func(e *encoder) { e.entry(entry{kind: kindFile, name: "a", size: 3}); e.part(2, 0) }},
		"a negative size":          {"size", func(e *encoder) { e.entry(entry{kind: kindFile, name: "a", size: -1}); e.part(0, 0) }},
		"a value that is too large": {"value length", func(e *encoder) {
			e.entry(entry{kind: kindFIFO, name: "a", meta: meta{attributes: []attribute{{"user.a", strings.Repeat("v", maxValue+1)}}}})
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := encode(&b, c.body); err != nil {
				t.Fatal(err)
			}
			_, err := Extract(t.Context(), &b, t.TempDir())
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrMalformed) || e.Field != c.field {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestExtractTruncated cuts a stream after every byte: each cut is an error,
// and none but those of the form.
func TestExtractTruncated(t *testing.T) {
	treetest.NeedsRoot(t)
	from := t.TempDir()
	for _, err := range []error{
		os.WriteFile(from+"/f", []byte("body"), 0o644), os.Link(from+"/f", from+"/g"),
		os.Symlink("f", from+"/l"), os.Mkdir(from+"/d", 0o755), unix.Lsetxattr(from+"/f", "user.a", []byte("v"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stream := write(t, from)
	for n := range stream {
		if _, err := Extract(t.Context(), bytes.NewReader(stream[:n]), t.TempDir()); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	if _, err := Extract(t.Context(), bytes.NewReader(append(stream, 0)), t.TempDir()); !errors.Is(err, ErrMalformed) {
		t.Errorf("one byte more: %v", err)
	}
}

func TestACancelledCallEnds(t *testing.T) {
	from := t.TempDir()
	if err := os.WriteFile(from+"/f", []byte("body"), 0o644); err != nil {
		t.Fatal(err)
	}
	stream := write(t, from)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, &bytes.Buffer{}, from); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Extract(ctx, bytes.NewReader(stream), t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestAFullDisk: the error of the disk comes back, with the place.
func TestAFullDisk(t *testing.T) {
	treetest.NeedsRoot(t)
	from := t.TempDir()
	if err := os.WriteFile(from+"/big", bytes.Repeat([]byte{1}, 256<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := unix.Mount("none", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer treetest.Unmount(t, full)
	_, err := Extract(t.Context(), bytes.NewReader(write(t, from)), full)
	var e *Error
	if !errors.Is(err, unix.ENOSPC) || !errors.As(err, &e) || e.Path != "big" {
		t.Errorf("got %v", err)
	}
}

// TestAFilesystemThatCallsUnwrittenBytesHoles is ext4 without extents: bytes that
// it has not written out yet are holes to whoever asks it for them.
func TestAFilesystemThatCallsUnwrittenBytesHoles(t *testing.T) {
	treetest.NeedsRoot(t)
	disk, at := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	treetest.Sparse(t, disk, 8<<20, nil)
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-O", "^has_journal,^extent,^64bit,^flex_bg", disk}, {"mount", "-o", "loop", disk, at}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", args[0], err, out)
		}
	}
	defer treetest.Unmount(t, at)
	treetest.Sparse(t, at+"/f", 1<<20, map[int64]string{1<<20 - 3: "end"})
	got, err := os.ReadFile(extract(t, write(t, at)) + "/f")
	if err != nil || !bytes.HasSuffix(got, []byte("\x00end")) {
		t.Errorf("%d bytes, %q at their end, %v", len(got), got[max(0, len(got)-4):], err)
	}
}

// FuzzExtract: whatever the stream, nothing but the directory is written to, and
// what was accepted comes back as the same tree.
func FuzzExtract(f *testing.F) {
	treetest.NeedsRoot(f)
	var b bytes.Buffer
	if err := encode(&b, func(e *encoder) {
		e.entry(entry{kind: kindFile, name: "f", size: 9, alias: 1, meta: meta{mode: 0o644, attributes: []attribute{{"user.a", "v"}}}})
		e.part(2, 3)
		e.write([]byte("abc"))
		e.part(0, 0)
		e.entry(entry{kind: kindLink, name: "g", alias: 1})
		e.entry(entry{kind: kindSymlink, name: "l", target: "../x"})
		e.entry(entry{kind: kindDirectory, name: "d", meta: meta{mode: 0o700}})
		e.entry(entry{kind: kindLeave})
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, stream []byte) {
		around := t.TempDir()
		dir := filepath.Join(around, "tree")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Extract(t.Context(), bytes.NewReader(stream), dir)
		if left, _ := os.ReadDir(around); len(left) != 1 {
			t.Fatalf("beside the tree: %v", left)
		}
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		if _, err := Write(t.Context(), &once, dir); err != nil {
			t.Fatal(err)
		}
		other := t.TempDir()
		if _, err := Extract(t.Context(), bytes.NewReader(once.Bytes()), other); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(t.Context(), &twice, other); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Error("the same tree has two forms")
		}
	})
}
