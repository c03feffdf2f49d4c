//go:build linux

package contain

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriteRefusals(t *testing.T) {
	tests := []struct {
		path string
		want Refusal // "" is written
	}{
		{"new", ""},
		{"a/b/c/new", ""},
		{"file", ""},
		{"hard", ""},
		{"out/real/new", ""},
		{"out/link/new", ErrOutsideRoot},
		{"out/link", ErrOutsideRoot},
		{"link/new", ErrOutsideRoot},
		{"link/a/b", ErrOutsideRoot},
		{"linkfile", ErrOutsideRoot},
		{"inner", ErrOutsideRoot},
		{"innerdir/new", ErrOutsideRoot},
		{"loop", ErrOutsideRoot},
		{"magic/tmp/new", ErrOutsideRoot},
		{"out/../x", ErrOutsideRoot},
		{"/etc/new", ErrOutsideRoot},
		{"file/new", ErrNotDirectory},
		{"file/a/new", ErrNotDirectory},
		{"fifo/new", ErrNotDirectory},
		{"dir", ErrNotRegular},
		{"fifo", ErrNotRegular},
		{"socket", ErrNotRegular},
		{"a//./b", ErrInvalidPath},
		{"dir/", ErrInvalidPath},
		{"new\x00", ErrInvalidPath},
		{strings.Repeat("n", 256), ErrInvalidPath},
		{strings.Repeat("n", 255), ""},
		{longPath(4096), ""},
		{longPath(4097), ErrInvalidPath},
	}
	for _, test := range tests {
		name := test.path
		if len(name) > 20 {
			name = name[:20]
		}
		t.Run(name, func(t *testing.T) {
			dir, outside := t.TempDir(), t.TempDir()
			hostileTree(t, dir, outside)
			must(t, os.MkdirAll(dir+"/out/real", 0o755), os.Symlink(outside, dir+"/out/link"))
			root := open(t, dir)
			err := root.WriteFile(t.Context(), test.path, []byte("data"), 0o640)
			if test.want != "" {
				refused(t, err, test.want)
			} else {
				must(t, err)
				data, err := root.ReadFile(t.Context(), test.path, 100)
				if err != nil || string(data) != "data" {
					t.Errorf("read back %q, %v", data, err)
				}
			}
			names, err := os.ReadDir(outside)
			must(t, err)
			if data, _ := os.ReadFile(outside + "/file"); len(names) != 1 || string(data) != "outside" {
				t.Errorf("outside was touched: %v %q", names, data)
			}
			list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 100})
			must(t, err)
			for _, entry := range list {
				if strings.Contains(entry.Path, TemporaryPrefix) {
					t.Errorf("left behind: %q", entry.Path)
				}
			}
		})
	}
}

// Writing to one name of a hard link leaves the other as it was.
func TestWriteHardLink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "old")
	must(t, os.Link(dir+"/file", dir+"/hard"), open(t, dir).WriteFile(t.Context(), "hard", []byte("new"), 0o600))
	if data, err := os.ReadFile(dir + "/file"); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestWriteModes(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	mode := func(path string) fs.FileMode {
		info, err := os.Lstat(dir + "/" + path)
		must(t, err)
		return info.Mode()
	}
	for _, perm := range []fs.FileMode{0, 0o400, 0o644, 0o666, 0o777} {
		must(t, root.WriteFile(t.Context(), "file", nil, perm), root.RemoveAll(t.Context(), "dir"), root.Mkdir("dir", perm))
		if mode("file") != perm || mode("dir") != perm|fs.ModeDir {
			t.Errorf("%o: file %v, directory %v", perm, mode("file"), mode("dir"))
		}
	}
	must(t, root.Mkdir("dir", 0o700)) // it is there: left as it is
	if mode("dir") != 0o777|fs.ModeDir {
		t.Errorf("an existing directory became %v", mode("dir"))
	}
	for _, perm := range []fs.FileMode{fs.ModeSetuid | 0o755, fs.ModeDir | 0o755} {
		refused(t, root.WriteFile(t.Context(), "file", nil, perm), ErrDenied)
		refused(t, root.Mkdir("new", perm), ErrDenied)
	}
}

// A full filesystem leaves the old file, and nothing half-written.
func TestWriteFull(t *testing.T) {
	needRoot(t)
	if !inChild(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}) {
		return
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	root := open(t, dir)
	defer root.Close()
	must(t, root.WriteFile(t.Context(), "file", []byte("old"), 0o600))
	err := root.WriteFile(t.Context(), "file", make([]byte, 1<<20), 0o600)
	refused(t, err, ErrFailed)
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 9})
	if err != nil || len(list) != 1 || list[0].Size != 3 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// What is written by somebody else's hands is there whole, or not at all.
func TestWriteFrom(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	write(t, dir+"/file", "old")
	failed := errors.New("it ends here")
	var late io.Writer
	err := root.WriteFrom("file", 0o600, func(w io.Writer) error {
		late = w
		_, err := io.WriteString(w, "half")
		return errors.Join(err, failed)
	})
	if _, err := io.WriteString(late, "more"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("what is written late: %v", err)
	}
	if data, rerr := os.ReadFile(dir + "/file"); !errors.Is(err, failed) || rerr != nil || string(data) != "old" {
		t.Errorf("%v; %q, %v", err, data, rerr)
	}
	for _, name := range []string{"file", "a/b/new"} {
		must(t, root.WriteFrom(name, 0o640, func(w io.Writer) error {
			for range 3 {
				if _, err := io.WriteString(w, "part "); err != nil {
					return err
				}
			}
			return nil
		}))
		data, err := os.ReadFile(dir + "/" + name)
		must(t, err)
		if info, err := os.Stat(dir + "/" + name); err != nil || info.Mode() != 0o640 || string(data) != "part part part " {
			t.Errorf("%q, %v, %v", data, info, err)
		}
	}
	refused(t, root.WriteFrom("../x", 0o600, func(io.Writer) error { t.Error("it was asked for"); return nil }), ErrOutsideRoot)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestWriteOwner(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/old", 0o755))
	root, err := Open(dir, Options{Owner: &Owner{UID: 110001, GID: 110002}})
	must(t, err)
	defer root.Close()
	must(t, root.WriteFile(t.Context(), "old/a/b/file", []byte("x"), 0o640),
		root.Symlink("nowhere", "old/c/link"), root.Mkdir("old/d/e", 0o750))
	for path, owner := range map[string]uint32{
		"old": 0, "old/a": 110001, "old/a/b": 110001, "old/a/b/file": 110001,
		"old/c": 110001, "old/c/link": 110001, "old/d": 110001, "old/d/e": 110001,
	} {
		info, err := os.Lstat(dir + "/" + path)
		must(t, err)
		if st := info.Sys().(*syscall.Stat_t); st.Uid != owner || owner != 0 && st.Gid != 110002 {
			t.Errorf("%s belongs to %d:%d, want %d", path, st.Uid, st.Gid, owner)
		}
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	names := []string{"new\nline", "-rf", "\xff\xfe\x80", strings.Repeat("x", 255), "a b\tc", "*", "\\", `"'$(id)`}
	for _, name := range names {
		path := "dir" + name[:1] + "/" + name
		must(t, root.WriteFile(t.Context(), path, []byte(name), 0o600))
		data, err := root.ReadFile(t.Context(), path, 1000)
		if err != nil || !bytes.Equal(data, []byte(name)) {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
	list, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 100})
	must(t, err)
	if len(list) != len(names) {
		t.Errorf("%d of %d names are listed", len(list), len(names))
	}
	for _, entry := range list {
		must(t, root.Remove(entry.Path))
	}
	must(t, root.RemoveAll(t.Context(), "."))
}

func TestSymlinkAndRemove(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/file", "outside")
	root := open(t, dir)
	must(t, root.Symlink(outside, "a/link"), root.Symlink(outside+"/file", "file"))
	refused(t, root.Symlink("x", "file"), ErrExists)
	refused(t, root.Symlink("", "empty"), ErrInvalidPath)
	refused(t, root.Symlink("a\x00", "nul"), ErrInvalidPath)
	refused(t, root.Symlink(strings.Repeat("x", 4096), "long"), ErrInvalidPath)
	refused(t, root.Symlink("x", "a/link/new"), ErrOutsideRoot)
	refused(t, root.Mkdir("a/link/new", 0o755), ErrOutsideRoot)
	refused(t, root.Mkdir("a/link", 0o755), ErrOutsideRoot)
	refused(t, root.Remove("a/link/file"), ErrOutsideRoot)
	refused(t, root.Remove("a"), ErrNotEmpty)
	refused(t, root.Remove("missing"), ErrNotFound)
	must(t, root.Remove("file"), root.Remove("a/link"), root.Remove("a"))
	if _, err := os.Stat(outside + "/file"); err != nil {
		t.Error(err)
	}
}

// A user who is not root gets ErrDenied, and removes what modes forbid.
func TestUnprivileged(t *testing.T) {
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	if !inChild(t, attr) {
		return
	}
	unix.Umask(0o077)
	dir := t.TempDir()
	root := open(t, dir)
	for _, mode := range []fs.FileMode{0, 0o444, 0o555} {
		base := "tree/" + mode.String()
		must(t, root.WriteFile(t.Context(), base+"/sub/file", []byte("x"), 0))
		must(t, os.Chmod(dir+"/"+base+"/sub", mode), os.Chmod(dir+"/"+base, mode))
	}
	refused(t, root.WriteFile(t.Context(), "tree/-r-xr-xr-x/new", nil, 0o600), ErrDenied)
	_, err := root.ReadFile(t.Context(), "tree/-r-xr-xr-x/sub/file", 10)
	refused(t, err, ErrDenied)
	_, err = root.List(t.Context(), "tree/-r-xr-xr-x", ListOptions{MaximumEntries: 9, Digests: true})
	refused(t, err, ErrDenied)
	_, err = root.List(t.Context(), "tree", ListOptions{MaximumEntries: 9})
	refused(t, err, ErrDenied)
	must(t, os.Chmod(dir+"/tree", 0o555), root.RemoveAll(t.Context(), "tree"))
	if _, err := os.Lstat(dir + "/tree"); err == nil {
		t.Error("still there")
	}
	deep(t, dir+"/deep", 300, "d")
	must(t, root.RemoveAll(t.Context(), "deep"))
}
