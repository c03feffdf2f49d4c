package image

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/lock"
)

func openStore(t testing.TB, opt Options) *Store {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("unpacking gives files away, which needs root")
	}
	s, err := Open(filepath.Join(t.TempDir(), "store"), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// snapshot names every file below dir with its type, mode and content, so that a
// comparison of two calls shows any change.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = digestOf(b).Hex
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		all[path] = info.Mode().String() + " " + content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestImportBusybox(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	tarball := imagetest.Busybox(t, dir)
	var stages []string
	const base = 100000
	s := openStore(t, Options{IDBase: base, Progress: func(p Progress) {
		if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
		if p.Done > p.Total {
			t.Errorf("progress %+v: done passes total", p)
		}
	}})
	img, err := s.Import(ctx, tarball)
	if err != nil {
		t.Fatal(err)
	}
	if want := LocalDomain + "/busybox@" + img.Digest; img.Reference != want {
		t.Errorf("reference %s, want %s", img.Reference, want)
	}
	if img.Config.User != "10001:10001" || img.Platform != platform() || img.Created.IsZero() || img.Size == 0 {
		t.Errorf("image %+v", img)
	}
	again, err := s.Import(ctx, tarball)
	if err != nil || again.Digest != img.Digest {
		t.Fatalf("second import: %+v, %v", again, err)
	}
	all, err := s.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Image{img}, all); diff != "" {
		t.Errorf("list: %s", diff)
	}

	r, err := s.Rootfs(ctx, img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for name, want := range map[string]string{
		"bin/sh":              "Lrwxrwxrwx 100000:100000",
		"bin/setuid-id":       "urwxr-xr-x 100000:100000",
		"home/checkfu":        "drwxr-xr-x 110001:110001",
		"tmp":                 "dtrwxrwxrwx 100000:100000",
		"mnt/session/outputs": "drwxr-xr-x 110001:110001",
	} {
		out, err := exec.Command("stat", "-c", "%u:%g", filepath.Join(r.Path, name)).Output()
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(filepath.Join(r.Path, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().String() + " " + strings.TrimSpace(string(out)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	out, err := exec.Command("chroot", r.Path, "/bin/sh", "-c", "id -u checkfu").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "10001" {
		t.Errorf("in the root: %q, %v", out, err)
	}
	if err := s.Verify(ctx, img.Digest); err != nil {
		t.Error(err)
	}
	if want := []string{"fetch", "unpack"}; !slices.Equal(slices.Compact(stages), want) {
		t.Errorf("stages %v, want %v", stages, want)
	}
	if info, _ := os.Stat(s.path("roots")); info.Mode().Perm() != 0o700 {
		t.Errorf("roots is %v: setuid files within reach of the host", info.Mode())
	}
}

func TestBusyboxIsReproducible(t *testing.T) {
	a, err := os.ReadFile(imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(imagetest.Busybox(t, t.TempDir()))
	if err != nil || !bytes.Equal(a, b) {
		t.Fatal("two archives differ", err)
	}
}

func TestTreeDigestIgnoresIDBase(t *testing.T) {
	tarball := imagetest.Busybox(t, t.TempDir())
	var digests []string
	for _, base := range []uint32{0, 200000} {
		s := openStore(t, Options{IDBase: base})
		img, err := s.Import(t.Context(), tarball)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Rootfs(t.Context(), img.Digest)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
		digests = append(digests, r.TreeDigest)
	}
	if digests[0] != digests[1] {
		t.Errorf("tree digests %v", digests)
	}
}

// TestRootfsOfAnotherBase: a tree in ids that machines no longer have goes when the
// image is unpacked in those that they have, but not while somebody holds it.
func TestRootfsOfAnotherBase(t *testing.T) {
	old := openStore(t, Options{IDBase: 100000})
	img, err := old.Import(t.Context(), imagetest.Busybox(t, t.TempDir()))
	must(t, err)
	held, err := old.Rootfs(t.Context(), img.Digest)
	must(t, err)
	var names []string
	for _, base := range []uint32{200000, 300000} {
		s, err := Open(old.dir, Options{IDBase: base})
		must(t, err)
		r, err := s.Rootfs(t.Context(), img.Digest)
		must(t, err, s.Verify(t.Context(), img.Digest))
		r.Release()
		roots, err := s.rootsOf(img.Digest)
		must(t, err)
		for _, r := range roots {
			names = append(names, strings.TrimPrefix(filepath.Base(r), strings.Replace(img.Digest, ":", "-", 1)))
		}
		held.Release()
		if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) > 0 {
			t.Errorf("left: %v %v", left, err)
		}
	}
	if diff := cmp.Diff([]string{"-100000", "-200000", "-300000"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestVerifyNamesTheFirstDifference(t *testing.T) {
	tarball := imagetest.Busybox(t, t.TempDir())
	for _, c := range []struct {
		name, change, entry, expected, got string
	}{
		{"content", "echo x >> etc/passwd", "etc/passwd", "file 0644", "file 0644"},
		{"mode", "chmod 0700 tmp", "tmp", "dir 1777", "dir 0700"},
		{"owner", "chown 5 etc/group", "etc/group", "0:0", "5:0"},
		{"gone", "rm bin/ls", "bin/ls", "link", "absent"},
		{"gone at the end", "rmdir workspace", "workspace", "dir", "absent"},
		{"new", "mkdir aaa", "aaa", "absent", "dir"},
		{"new at the end", "touch zzz", "zzz", "absent", "file"},
		{"new in a directory", "touch etc/x", "etc/x", "absent", "file"},
		{"special", "mkfifo etc/fifo", "etc/fifo", "absent", "special"},
		{"link", "ln -sfn /etc bin/sh", "bin/sh", `"busybox"`, `"/etc"`},
		{"type", "rmdir home/checkfu && ln -s / home/checkfu", "home/checkfu", "dir", "link"},
		{"nothing", "true", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStore(t, Options{})
			img, err := s.Import(t.Context(), tarball)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(t.Context(), img.Digest); !errors.Is(err, ErrNotFound) {
				t.Fatalf("before unpacking: %v", err)
			}
			r, err := s.Rootfs(t.Context(), img.Digest)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Release()
			cmd := exec.Command("sh", "-c", c.change)
			cmd.Dir = r.Path
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatal(string(out), err)
			}
			err = s.Verify(t.Context(), img.Digest)
			if c.entry == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || !errors.Is(err, ErrDigestMismatch) {
				t.Fatalf("got %v", err)
			}
			if e.Entry != c.entry || !strings.Contains(e.Expected, c.expected) || !strings.Contains(e.Got, c.got) {
				t.Errorf("got %v", e)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	s := openStore(t, Options{})
	ctx := t.Context()
	img, err := s.Import(ctx, imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	hex := strings.TrimPrefix(img.Digest, "sha256:")
	for _, ref := range []string{
		"busybox", "checkfu.local/busybox", "busybox@" + img.Digest, img.Reference,
		img.Digest, hex, hex[:12], "sha256:" + hex[:12],
	} {
		got, err := s.Resolve(ctx, ref)
		if err != nil || got.Digest != img.Digest {
			t.Errorf("%s: %v, %v", ref, got.Digest, err)
		}
	}
	for _, ref := range []string{
		"", "busy", "busybox:latest", hex[:11], strings.ToUpper(hex), "sha256:" + strings.Repeat("0", 64),
		"busybox@sha256:" + strings.Repeat("0", 64), "other@" + img.Digest, "..", "sha256:",
	} {
		if _, err := s.Resolve(ctx, ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", ref, err)
		}
	}
}

func TestRemove(t *testing.T) {
	ctx := t.Context()
	s := openStore(t, Options{})
	empty := snapshot(t, s.dir)
	a, err := s.Import(ctx, imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	onlyA := snapshot(t, s.dir)
	// b shares a's layer: another configuration, the same blob.
	b := variant(t, s, a)
	r, err := s.Rootfs(ctx, b.Digest)
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, s.dir)
	if err := s.Remove(ctx, b.Digest); !errors.Is(err, ErrInUse) {
		t.Fatalf("removed a held root: %v", err)
	}
	if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
		t.Errorf("a refused removal changed the store: %s", diff)
	}
	r.Release()
	r.Release()
	if err := s.Remove(ctx, b.Reference); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(onlyA, snapshot(t, s.dir)); diff != "" {
		t.Errorf("b left something, or took something of a's: %s", diff)
	}
	ra, err := s.Rootfs(ctx, a.Digest)
	if err != nil {
		t.Fatal(err)
	}
	ra.Release()
	if err := s.Remove(ctx, "busybox"); err != nil {
		t.Fatal(err)
	}
	left := snapshot(t, s.dir)
	maps.DeleteFunc(left, func(path, _ string) bool { _, ok := empty[path]; return ok })
	delete(left, s.path(indexFile))
	delete(left, s.path("import.lock"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := s.Rootfs(ctx, a.Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("root of a removed image: %v", err)
	}
}

// What needs an image and holds none of its trees is asked for last, when nobody else
// can take the image up any more.
func TestRemoveUnused(t *testing.T) {
	ctx := t.Context()
	s := openStore(t, Options{})
	img, err := s.Import(ctx, imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Rootfs(ctx, img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveUnused(ctx, img.Digest, func() error { t.Error("asked while a root is held"); return nil }); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	r.Release()
	before := snapshot(t, s.dir)
	needed := errors.New("needed")
	asked := false
	err = s.RemoveUnused(ctx, img.Digest, func() error {
		asked = true
		for _, path := range []string{s.path("store.lock"), s.rootPath(img.Digest)} {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := lock.Try(f, lock.Shared); got || err != nil {
				t.Errorf("%s can be had meanwhile: %v, %v", path, got, err)
			}
			f.Close()
		}
		return needed
	})
	if !errors.Is(err, needed) || !asked {
		t.Errorf("got %v, asked: %v", err, asked)
	}
	if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
		t.Errorf("a refused removal changed the store: %s", diff)
	}
	if err := s.RemoveUnused(ctx, img.Digest, func() error { return nil }); err != nil {
		t.Error(err)
	}
	if _, err := s.Resolve(ctx, img.Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// variant brings in an image that differs from img in its configuration only.
func variant(t testing.TB, s *Store, img Image) Image {
	t.Helper()
	one, err := s.byDigest(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := s.document(one.manifest.Config.Digest)
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	config = bytes.Replace(config, []byte("/workspace"), []byte("/home/checkfu"), 1)
	got, err := st.assemble(t.Context(), config, one.manifest.Layers, "variant")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestManyProcesses has several processes import and unpack one image at once;
// the tests themselves are the program, told so by the environment.
func TestManyProcesses(t *testing.T) {
	if dir := os.Getenv("IMAGE_TEST_STORE"); dir != "" {
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		img, err := s.Import(t.Context(), os.Getenv("IMAGE_TEST_TAR"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Rootfs(t.Context(), img.Digest)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("tree " + r.TreeDigest + " " + strconv.FormatInt(info.ModTime().UnixNano(), 10) + "\n")
		return
	}
	s := openStore(t, Options{})
	tarball := imagetest.Busybox(t, t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outs := make(chan string)
	const processes = 6
	for range processes {
		cmd := exec.CommandContext(ctx, self, "-test.run=^TestManyProcesses$")
		cmd.Env = append(os.Environ(), "IMAGE_TEST_STORE="+s.dir, "IMAGE_TEST_TAR="+tarball)
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				outs <- err.Error() + string(out)
				return
			}
			outs <- string(out)
		}()
	}
	trees := map[string]int{}
	for range processes {
		line, _, _ := strings.Cut(<-outs, "\n")
		trees[line]++
	}
	if len(trees) != 1 || !strings.HasPrefix(slices.Collect(maps.Keys(trees))[0], "tree sha256:") {
		t.Errorf("processes saw different trees: %v", trees)
	}
	for _, d := range []string{"roots", "tmp"} {
		names, _ := os.ReadDir(s.path(d))
		if want := map[string]int{"roots": 1, "tmp": 0}[d]; len(names) != want {
			t.Errorf("%s holds %v", d, names)
		}
	}
}
