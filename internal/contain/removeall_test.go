//go:build linux

package contain

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// deep nests directories of one name, each with a file and, every tenth, of
// mode 0. The path of the last one is far longer than any call takes.
func deep(t *testing.T, path string, levels int, name string) {
	t.Helper()
	must(t, os.Mkdir(path, 0o755))
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for level := range levels {
		file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0)
		must(t, err, unix.Close(file), unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		if level%10 == 0 {
			must(t, unix.Fchmodat(fd, ".", 0, 0))
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

func TestRemoveAll(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	root := open(t, dir)
	write(t, outside+"/file", "outside")
	ctx := t.Context()
	gone := func(name string) {
		t.Helper()
		must(t, root.RemoveAll(ctx, name))
		if _, err := os.Lstat(dir + "/" + name); err == nil {
			t.Errorf("%q is still there", name)
		}
	}
	hostileTree(t, dir, t.TempDir())
	for _, name := range []string{"file", "link", "magic", "loop", "fifo", "socket", "device", "dir", "missing", "missing/below", "hard/below"} {
		gone(name)
	}
	must(t, os.Symlink(outside, dir+"/out"))
	refused(t, root.RemoveAll(ctx, "out/file"), ErrOutsideRoot)
	refused(t, root.RemoveAll(ctx, "../x"), ErrOutsideRoot)
	gone("out")

	deep(t, dir+"/deep", 250, strings.Repeat("long", 63))
	gone("deep")
	deep(t, dir+"/verydeep", 1000, "d")
	gone("verydeep")

	write(t, dir+"/wide/a/file", "x")
	for _, name := range []string{"\xff\n", "-rf", strings.Repeat("x", 255), "*"} {
		write(t, dir+"/wide/"+name+"/"+name, "x")
	}
	must(t, os.Symlink(outside, dir+"/wide/a/link"), os.Chmod(dir+"/wide/a", 0))
	gone("wide")

	write(t, dir+"/last/file", "x")
	must(t, root.RemoveAll(ctx, "."), root.RemoveAll(ctx, "."))
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 0 {
		t.Errorf("the root still holds %v, %v", names, err)
	}
	if _, err := os.Stat(outside + "/file"); err != nil {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	write(t, dir+"/kept/file", "x")
	if err := root.RemoveAll(cancelled, "kept"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRemoveAllImmutable(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	root := open(t, dir)
	flag := func(path string, bits int) {
		t.Helper()
		file, err := os.Open(dir + path)
		must(t, err)
		defer file.Close()
		flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags)|bits)
		}
		if err != nil {
			t.Skip("no such flags here:", err)
		}
	}
	const immutable, appendOnly = 0x10, 0x20
	for _, bits := range []int{immutable, appendOnly} {
		write(t, dir+"/tree/a/file", "x")
		write(t, dir+"/tree/b/sub/file", "x")
		flag("/tree/a/file", bits)
		flag("/tree/b/sub", bits)
		flag("/tree/b", bits)
		flag("/tree", bits)
		if err := os.RemoveAll(dir + "/tree"); err == nil {
			t.Fatal("the flags do not hold here, so this shows nothing")
		}
		must(t, root.RemoveAll(t.Context(), "tree"))
		if _, err := os.Lstat(dir + "/tree"); err == nil {
			t.Error("still there")
		}
	}
}

func TestRemoveAllMount(t *testing.T) {
	needRoot(t)
	if !inChild(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}) {
		return
	}
	dir := t.TempDir()
	root := open(t, dir)
	write(t, dir+"/tree/a/file", "x")
	write(t, dir+"/tree/z/file", "x")
	must(t, os.Mkdir(dir+"/tree/m", 0o755), unix.Mount("tmpfs", dir+"/tree/m", "tmpfs", 0, "size=1m"))
	defer unix.Unmount(dir+"/tree/m", unix.MNT_DETACH)
	write(t, dir+"/tree/m/file", "mounted")

	err := root.RemoveAll(t.Context(), "tree")
	refused(t, err, ErrBusy)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Path != "tree/m" {
		t.Errorf("the mount is not named: %v", err)
	}
	if data, err := os.ReadFile(dir + "/tree/m/file"); err != nil || string(data) != "mounted" {
		t.Errorf("the mount was entered: %q, %v", data, err)
	}
	names, err := os.ReadDir(dir + "/tree")
	if err != nil || len(names) != 1 {
		t.Errorf("left beside the mount: %v, %v", names, err)
	}
	must(t, unix.Unmount(dir+"/tree/m", 0), root.RemoveAll(t.Context(), "tree"))
}
