package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const derivedKey = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// change mounts a writable overlay over the tree of an image, has it changed, and
// gives what changed.
func change(t *testing.T, s *Store, digest string, do func(root string)) Difference {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an overlay needs root")
	}
	r, err := s.Rootfs(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	dir := t.TempDir()
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	options := "lowerdir=" + r.Path + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work,redirect_dir=off,metacopy=off,index=off"
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	}()
	began := time.Now()
	do(root)
	return Difference{Upper: filepath.Join(dir, "upper"), Began: began}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestDerive_WhatAMachineChangedAndNothingElse(t *testing.T) {
	s := openStore(t, Options{})
	base, err := s.Import(t.Context(), craft(t, gz, layerOf(t,
		e{name: "keep", body: "base"}, e{name: "gone", body: "base"}, e{name: "hidden", body: "base"},
		e{name: "dir/", kind: tar.TypeDir}, e{name: "dir/old", body: "base"}, e{name: "dir/gone", body: "base"},
		e{name: "replaced/", kind: tar.TypeDir}, e{name: "replaced/old", body: "base"},
		e{name: "cache/", kind: tar.TypeDir}, e{name: "cache/base", body: "base"},
	)).directory(t))
	must(t, err)
	packaged := time.Unix(1600000000, 0)
	do := func(root string) {
		at := func(name string) string { return filepath.Join(root, name) }
		must(t,
			os.Remove(at("gone")), os.Remove(at("dir/gone")), os.Remove(at("cache/base")),
			os.Remove(at("hidden")), unix.Mkfifo(at("hidden"), 0o644),
			os.RemoveAll(at("replaced")), os.Mkdir(at("replaced"), 0o700),
			os.WriteFile(at("replaced/new"), []byte("new"), 0o644),
			os.WriteFile(at("dir/new"), []byte("new"), 0o644), os.Chown(at("dir/new"), 7, 8),
			os.Link(at("dir/new"), at("dir/same")),
			os.WriteFile(at("suid"), []byte("x"), 0o755), os.Chmod(at("suid"), 0o755|os.ModeSetuid),
			os.Chtimes(at("suid"), packaged, packaged),
			os.Symlink("/etc/shadow", at("planted")), os.Symlink("..", at("dir/up")),
			os.WriteFile(at("cache/made"), []byte("x"), 0o644), os.Mkdir(at("log"), 0o755),
			os.WriteFile(at("odd\n\xff name"), []byte("odd"), 0o600),
		)
	}
	d := Derivation{Key: derivedKey, Base: base.Digest, Profile: derivedKey, Packages: []string{"apt:tree"}}
	var digests []string
	for range 2 {
		diff := change(t, s, base.Digest, do)
		diff.Discard = []string{"/cache", "/log"}
		img, err := s.Derive(t.Context(), d, diff)
		must(t, err)
		digests = append(digests, img.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("made twice: %v", digests)
	}
	img, err := s.Derived(t.Context(), derivedKey)
	must(t, err)
	if diff := cmp.Diff(&d, img.Derivation); diff != "" || img.Digest != digests[0] || !strings.HasPrefix(img.Reference, LocalDomain+"/derived/001122334455@") {
		t.Errorf("%+v\n%s", img, diff)
	}

	// Of a base that is unpacked a derived tree is links; without one it is the same.
	unpacked := func() (root *Root, kept unix.Stat_t) {
		r, err := s.Rootfs(t.Context(), img.Digest)
		must(t, err, unix.Lstat(r.Path+"/keep", &kept), s.Verify(t.Context(), img.Digest))
		return r, kept
	}
	under, err := s.Rootfs(t.Context(), base.Digest)
	must(t, err)
	var below unix.Stat_t
	must(t, unix.Lstat(under.Path+"/keep", &below))
	r, kept := unpacked()
	linked := r.TreeDigest
	if kept.Ino != below.Ino {
		t.Errorf("no link: %d and %d", kept.Ino, below.Ino)
	}
	must(t, s.Verify(t.Context(), base.Digest))
	var times [2]unix.Stat_t
	must(t, unix.Lstat(under.Path+"/cache", &times[0]), unix.Lstat(r.Path+"/cache", &times[1]))
	if times[0].Mtim != times[1].Mtim || times[0].Ino == times[1].Ino {
		t.Errorf("%+v", times)
	}
	r.Release()
	under.Release()
	must(t, os.RemoveAll(s.rootPath(img.Digest)))

	// The base may go: what is on top of it holds all that it needs.
	must(t, s.Remove(t.Context(), base.Digest))
	r, _ = unpacked()
	defer r.Release()
	if r.TreeDigest != linked {
		t.Errorf("%s, and of links %s", r.TreeDigest, linked)
	}
	var got []string
	must(t, filepath.WalkDir(r.Path, func(p string, _ os.DirEntry, err error) error {
		if p != r.Path {
			got = append(got, strings.TrimPrefix(p, r.Path+"/"))
		}
		return err
	}))
	want := []string{"cache", "cache/base", "dir", "dir/new", "dir/old", "dir/same", "dir/up", "keep", "odd\n\xff name", "planted", "replaced", "replaced/new", "suid"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var st, same, suid unix.Stat_t
	must(t, unix.Lstat(r.Path+"/dir/new", &st), unix.Lstat(r.Path+"/dir/same", &same), unix.Lstat(r.Path+"/suid", &suid))
	if st.Ino != same.Ino || st.Uid != 7 || st.Gid != 8 || st.Mtim.Sec != BaseEpoch.Unix() {
		t.Errorf("%+v and %+v", st, same)
	}
	if suid.Mode&0o7777 != 0o4755 || suid.Mtim.Sec != packaged.Unix() {
		t.Errorf("%o at %d", suid.Mode, suid.Mtim.Sec)
	}
}

// TestDerive_TimesOfTheBuild: the clock of files is a tick behind that of programs,
// also where a second ends in between.
func TestDerive_TimesOfTheBuild(t *testing.T) {
	s := openStore(t, Options{IDBase: uint32(min(os.Getuid(), os.Getgid()))})
	began := time.Unix(1700000000, 0)
	for _, c := range []struct {
		at, want time.Time
	}{
		{began.Add(-time.Hour), began.Add(-time.Hour)},
		{began.Add(-10 * time.Millisecond), BaseEpoch},
		{began, BaseEpoch},
		{began.Add(time.Hour), BaseEpoch},
	} {
		upper := t.TempDir()
		must(t, os.WriteFile(upper+"/f", nil, 0o644), os.Chtimes(upper+"/f", c.at, c.at))
		var layer bytes.Buffer
		must(t, s.writeDifference(t.Context(), Difference{Upper: upper, Began: began}, &layer))
		h, err := tar.NewReader(&layer).Next()
		must(t, err)
		if !h.ModTime.Equal(c.want) {
			t.Errorf("written at %v: %v, want %v", c.at, h.ModTime, c.want)
		}
	}
}

// TestDerive_OfADamagedBase: what became of a tree after it was unpacked is in no
// tree on top of it, where it would be recorded as it is and verified as whole.
func TestDerive_OfADamagedBase(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry string
		harm  func(root string) error
	}{
		{"content", "f", func(r string) error { return os.WriteFile(r+"/f", []byte("y"), 0o644) }},
		{"mode", "d/f", func(r string) error { return os.Chmod(r+"/d/f", 0o755|os.ModeSetuid) }},
		{"gone", "d/f", func(r string) error { return os.Remove(r + "/d/f") }},
		{"come", "g", func(r string) error { return os.WriteFile(r+"/g", nil, 0o644) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStore(t, Options{})
			base, err := s.Import(t.Context(), craft(t, nil, layerOf(t, e{name: "d/", kind: tar.TypeDir}, e{name: "d/f", body: "x"}, e{name: "f", body: "x"})).directory(t))
			must(t, err)
			img, err := s.Derive(t.Context(), Derivation{Key: derivedKey, Base: base.Digest}, Difference{Upper: t.TempDir()})
			must(t, err)
			r, err := s.Rootfs(t.Context(), base.Digest)
			must(t, err)
			must(t, c.harm(r.Path))
			r.Release()
			_, err = s.Rootfs(t.Context(), img.Digest)
			if bad, ok := errors.AsType[*Error](err); !ok || bad.Kind != ErrDigestMismatch || bad.Ref != base.Digest || bad.Entry != c.entry {
				t.Errorf("%v", err)
			}
			if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) > 0 {
				t.Errorf("left: %v %v", left, err)
			}
			// Without that tree the layers are unpacked, and they are whole.
			must(t, s.Remove(t.Context(), base.Digest))
			if r, err = s.Rootfs(t.Context(), img.Digest); err != nil {
				t.Fatal(err)
			}
			r.Release()
		})
	}
}

// TestShare_MoreNamesThanAFileCanHave: the hundreds and first image of one base. Where
// there are no more names the kernel says EMLINK, and the tree is the same.
func TestShare_MoreNamesThanAFileCanHave(t *testing.T) {
	s := openStore(t, Options{IDBase: 100000})
	base, err := s.Import(t.Context(), craft(t, nil, layerOf(t,
		e{name: "f", body: "x", mode: 0o4750, uid: 7}, e{name: "d/", kind: tar.TypeDir, mode: 0o700},
		e{name: "d/l", kind: tar.TypeSymlink, link: "/etc/shadow"}, e{name: "other", body: "x"},
	)).directory(t))
	must(t, err)
	under, err := s.Rootfs(t.Context(), base.Digest)
	must(t, err)
	defer under.Release()
	from, err := os.Open(under.Path)
	must(t, err)
	defer from.Close()
	to, err := os.Open(t.TempDir())
	must(t, err)
	defer to.Close()
	u := newUnpacker(int(to.Fd()), s.opt)
	defer u.tree.forget()
	link := u.linkTo
	u.linkTo = func(from, to int, name string) error {
		if name != "other" {
			return unix.EMLINK
		}
		return link(from, to, name)
	}
	must(t, u.share(t.Context(), int(from.Fd()), int(to.Fd())), s.compare(t.Context(), under, int(to.Fd())))
	for name, linked := range map[string]bool{"f": false, "d/l": false, "other": true} {
		var a, b unix.Stat_t
		must(t, unix.Fstatat(int(from.Fd()), name, &a, unix.AT_SYMLINK_NOFOLLOW), unix.Fstatat(int(to.Fd()), name, &b, unix.AT_SYMLINK_NOFOLLOW))
		if a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Mtim != b.Mtim || (a.Ino == b.Ino) != linked {
			t.Errorf("%s: %+v and %+v", name, a, b)
		}
	}
}

func TestDerive_Refusals(t *testing.T) {
	s := openStore(t, Options{IDBase: 100000})
	base, err := s.Import(t.Context(), craft(t, nil, layerOf(t, e{name: "f", body: "x"})).directory(t))
	must(t, err)
	owned := func(name string, errs ...error) error {
		return errors.Join(append(errs, os.Chown(name, 100000, 100000))...)
	}
	for _, c := range []struct {
		name string
		do   func(root string) error
		max  int64
		want error
	}{
		{"a name that is a mark", func(r string) error { return owned(r+"/.wh.f", os.WriteFile(r+"/.wh.f", nil, 0o644)) }, 0, ErrUnsupported},
		{"an owner outside the block", func(r string) error { return os.WriteFile(r+"/g", nil, 0o644) }, 0, ErrUnsupported},
		{"a hole larger than the disk", func(r string) error {
			return owned(r+"/g", os.WriteFile(r+"/g", nil, 0o644), os.Truncate(r+"/g", 1<<40))
		}, 1 << 20, ErrTooLarge},
		{"too deep", func(r string) error {
			p := r
			for range MaxDepth + 2 {
				p += "/d"
				if err := owned(p, os.Mkdir(p, 0o755)); err != nil {
					return err
				}
			}
			return nil
		}, 0, ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			diff := change(t, s, base.Digest, func(root string) { must(t, c.do(root)) })
			diff.MaxBytes = c.max
			_, err := s.Derive(t.Context(), Derivation{Key: derivedKey, Base: base.Digest}, diff)
			if !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
		})
	}
	empty := t.TempDir()
	for _, d := range []Derivation{{Key: derivedKey, Base: "sha256:" + strings.Repeat("0", 64)}, {Key: "x", Base: base.Digest}} {
		if _, err := s.Derive(t.Context(), d, Difference{Upper: empty}); err == nil {
			t.Errorf("%+v was derived", d)
		}
	}
	if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

// TestDerived_OnlyWhatWasDerived: neither name nor labels make an image that was
// brought in one of the cache's.
func TestDerived_OnlyWhatWasDerived(t *testing.T) {
	s := openStore(t, Options{})
	c := craft(t, nil, layerOf(t, e{name: "f", body: "x"}))
	c.config.Config.Labels = map[string]string{deriveAnnotation: `{"key":"` + derivedKey + `"}`}
	c.seal(t)
	c.index.Manifests[0].Annotations = map[string]string{deriveAnnotation: `{"key":"` + derivedKey + `"}`, refAnnotation: derivedName + "001122334455"}
	img, err := s.Import(t.Context(), c.directory(t))
	must(t, err)
	if img.Derivation != nil {
		t.Errorf("%+v", img.Derivation)
	}
	if found, err := s.Derived(t.Context(), derivedKey); !errors.Is(err, ErrNotFound) {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestTurn_OneAtATime(t *testing.T) {
	s := openStore(t, Options{})
	other, err := Open(s.dir, Options{})
	must(t, err)
	var at, all atomic.Int32
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			end, err := []*Store{s, other}[i%2].Turn(t.Context(), derivedKey)
			if err != nil {
				t.Error(err)
				return
			}
			if at.Add(1) != 1 {
				t.Error("two had the turn")
			}
			all.Add(1)
			at.Add(-1)
			end()
		})
	}
	group.Wait()
	if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) > 0 || all.Load() != 10 {
		t.Errorf("%d turns, left: %v %v", all.Load(), left, err)
	}
	if _, err := s.Turn(t.Context(), "sha256:../../x"); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

// FuzzDifference: whatever lies in an upper directory, what comes out is a layer
// that unpacks, or an error.
func FuzzDifference(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "a->b", ".wh.x", "a/.wh..wh..opq", "a->../../x\nb/c", "x|y", strings.Repeat("d/", 40)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		for line := range strings.SplitSeq(text, "\n") {
			name, target, link := strings.Cut(line, "->")
			name = filepath.Clean("/" + name)
			if len(name) > 200 || strings.IndexByte(line, 0) >= 0 {
				continue
			}
			root, err := os.OpenRoot(dir)
			must(t, err)
			if link {
				_ = root.Symlink(target, name[1:])
			} else if root.MkdirAll(filepath.Dir(name)[1:], 0o755) == nil || filepath.Dir(name) == "/" {
				_ = root.WriteFile(name[1:], []byte(line), 0o644)
			}
			root.Close()
		}
		s := openStore(t, Options{IDBase: uint32(os.Getuid())})
		var layer bytes.Buffer
		if err := s.writeDifference(t.Context(), Difference{Upper: dir}, &layer); err != nil {
			if e, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%T %v", err, err)
			} else if e.Kind != ErrUnsupported && e.Kind != ErrTooLarge {
				t.Fatal(err)
			}
			return
		}
		r := tar.NewReader(&layer)
		for last := ""; ; {
			h, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil || strings.HasPrefix(h.Name, "/") {
				t.Fatal(h, err)
			}
			if name := strings.TrimSuffix(h.Name, "/"); strings.ReplaceAll(name, "/", "\x00") <= strings.ReplaceAll(last, "/", "\x00") {
				t.Fatalf("%q after %q", name, last)
			} else {
				last = name
			}
		}
	})
}
