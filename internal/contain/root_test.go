//go:build linux

package contain

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open opens a Root for the time of the test.
func open(tb testing.TB, dir string) *Root {
	tb.Helper()
	root, err := Open(dir, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { root.Close() })
	return root
}

// must stops the test on any of the errors.
func must(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// refused checks the reason and that the error says operation and path.
func refused(t *testing.T, err error, want Refusal) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, want) {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Op == "" || e.Path == "" && want != ErrInvalidPath {
		t.Errorf("error names no operation or path: %#v", e)
	}
}

// write makes a file without this package.
func write(tb testing.TB, path, text string) {
	tb.Helper()
	must(tb, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// inChild runs the rest of a test in a process of its own, which attr shapes.
// It returns true there, and false in the parent once the child has ended.
func inChild(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	const marker = "CONTAIN_TEST_CHILD"
	if os.Getenv(marker) == t.Name() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// By its link in /proc: the build directory is closed to other users.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), marker+"="+t.Name())
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err != nil:
		t.Fatalf("child: %v\n%s", err, text)
	case strings.Contains(text, "--- SKIP"):
		t.Skip(text)
	case !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Fatalf("the child ran nothing:\n%s", text)
	}
	return false
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "x")
	must(t, os.Symlink(dir, dir+"/link"))
	for path, want := range map[string]Refusal{
		dir + "/file":    ErrNotDirectory,
		dir + "/link":    ErrNotDirectory,
		dir + "/missing": ErrNotFound,
	} {
		_, err := Open(path, Options{})
		refused(t, err, want)
	}

	root, err := Open(dir, Options{})
	must(t, err)
	_, err = root.ReadFile(t.Context(), "file", 1)
	must(t, err, root.Close(), root.Close())
	_, err = root.ReadFile(t.Context(), "file", 1)
	refused(t, err, ErrClosed)
}

func TestSub(t *testing.T) {
	dir := t.TempDir()
	hostileTree(t, dir, t.TempDir())
	root := open(t, dir)
	sub, err := root.Sub("dir")
	must(t, err)
	defer sub.Close()
	data, err := sub.ReadFile(t.Context(), "file", 10)
	if err != nil || string(data) != "inside" {
		t.Errorf("%q, %v", data, err)
	}
	_, err = sub.ReadFile(t.Context(), "../file", 10)
	refused(t, err, ErrOutsideRoot)
	for path, want := range map[string]Refusal{
		"link": ErrOutsideRoot, "innerdir": ErrOutsideRoot, "magic": ErrOutsideRoot, "..": ErrOutsideRoot,
		"file": ErrNotDirectory, "fifo": ErrNotDirectory, "missing": ErrNotFound,
	} {
		_, err := root.Sub(path)
		refused(t, err, want)
	}
}

// A filter that refuses openat2, as container engines of before 2020 have it,
// must end in a refusal and never in a weaker way to read.
func TestOpenUnsupported(t *testing.T) {
	for _, number := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		t.Run(unix.ErrnoName(number), func(t *testing.T) {
			if !inChild(t, nil) {
				return
			}
			dir := t.TempDir()
			refuseOpenat2(t, number)
			_, err := Open(dir, Options{})
			refused(t, err, ErrUnsupported)
		})
	}
}

// refuseOpenat2 puts the whole process, for good, under a filter.
func refuseOpenat2(t *testing.T, number unix.Errno) {
	t.Helper()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPENAT2, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(number)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	runtime.LockOSThread()
	must(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if failed != 0 {
		t.Skip("seccomp:", failed)
	}
}

// No operation, whichever way it ends, leaves a descriptor open.
func TestDescriptors(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	ctx := t.Context()
	must(t, os.Symlink("/etc", dir+"/link"), unix.Mkfifo(dir+"/fifo", 0o600))
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(list)
	}
	before := count()
	for range 50 {
		for _, path := range []string{"a/b/c/file", "link/x", "fifo", "fifo/x", "..", "a/b", "a/b/c/file/x"} {
			_ = root.WriteFile(ctx, path, []byte("x"), 0o600)
			_, _ = root.ReadFile(ctx, path, 0)
			_, _ = root.ReadFile(ctx, path, 1)
			if file, _, err := root.OpenFile(path); err == nil {
				file.Close()
			}
			_ = root.Mkdir(path+"/new", 0o700)
			_ = root.Symlink("x", path+"/symlink")
			_, _ = root.List(ctx, path, ListOptions{MaximumEntries: 1, Digests: true})
			_, _ = root.List(ctx, ".", ListOptions{MaximumEntries: 9, Digests: true})
			_ = root.Remove(path)
			_ = root.RemoveAll(ctx, path)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
