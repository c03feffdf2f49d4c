//go:build linux

package contain

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hostileTree fills dir with everything that must not be read, and "file",
// "dir/file", "hard" (a second name of "file").
func hostileTree(t testing.TB, dir, outside string) {
	t.Helper()
	write(t, dir+"/file", "inside")
	write(t, dir+"/dir/file", "inside")
	write(t, outside+"/file", "outside")
	must(t,
		os.Symlink(outside, dir+"/link"),
		os.Symlink("file", dir+"/inner"),
		os.Symlink("dir", dir+"/innerdir"),
		os.Symlink("loop", dir+"/loop"),
		os.Symlink("/proc/self/root", dir+"/magic"),
		os.Symlink(outside+"/file", dir+"/linkfile"),
		os.Link(dir+"/file", dir+"/hard"),
		unix.Mkfifo(dir+"/fifo", 0o666))
	// A socket's address is short: bind relative to the directory's descriptor.
	parent, err := os.Open(dir)
	must(t, err)
	defer parent.Close()
	socket, err := net.Listen("unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(parent.Fd())), "socket"))
	must(t, err)
	socket.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, socket.Close())
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(dir+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // zero: endless
	}
}

func TestReadRefusals(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	hostileTree(t, dir, outside)
	root := open(t, dir)
	tests := []struct {
		path string
		want Refusal // "" is read
	}{
		{"file", ""},
		{"dir/file", ""},
		// A hard link is just another name; see the package comment.
		{"hard", ""},
		{"missing", ErrNotFound},
		{"missing/file", ErrNotFound},
		{"file/below", ErrNotFound},
		{"link/file", ErrOutsideRoot},
		{"linkfile", ErrOutsideRoot},
		{"inner", ErrOutsideRoot}, // links are not followed even to the inside
		{"innerdir/file", ErrOutsideRoot},
		{"loop", ErrOutsideRoot},
		{"magic/etc/passwd", ErrOutsideRoot},
		{"dir/../file", ErrOutsideRoot},
		{"../" + filepath.Base(outside) + "/file", ErrOutsideRoot},
		{outside + "/file", ErrOutsideRoot},
		{"dir", ErrNotRegular},
		{"fifo", ErrNotRegular},
		{"socket", ErrNotRegular},
		{"device", ErrNotRegular},
		{"dir//file", ErrInvalidPath},
		{"file/", ErrInvalidPath},
		{".", ErrInvalidPath},
		{"", ErrInvalidPath},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			if test.path == "device" {
				needRoot(t)
			}
			data, err := root.ReadFile(t.Context(), test.path, 100)
			file, size, openErr := root.OpenFile(test.path)
			if test.want != "" {
				refused(t, err, test.want)
				refused(t, openErr, test.want)
				return
			}
			must(t, err, openErr)
			defer file.Close()
			streamed, err := io.ReadAll(file)
			must(t, err)
			if string(data) != "inside" || string(streamed) != "inside" || size != 6 {
				t.Errorf("read %q, streamed %q of %d", data, streamed, size)
			}
		})
	}
}

// The links of /proc lead anywhere without being symbolic links.
func TestReadMagicLinks(t *testing.T) {
	root := open(t, "/proc/"+strconv.Itoa(os.Getpid()))
	for _, path := range []string{"root/etc/passwd", "exe", "cwd/doc.go", "fd/0"} {
		_, err := root.ReadFile(t.Context(), path, 1<<20)
		refused(t, err, ErrOutsideRoot)
	}
}

func TestReadOtherMount(t *testing.T) {
	needRoot(t)
	if !inChild(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}) {
		return
	}
	dir := t.TempDir()
	root := open(t, dir)
	write(t, dir+"/bound", "target")
	must(t, os.Mkdir(dir+"/mount", 0o755),
		unix.Mount("tmpfs", dir+"/mount", "tmpfs", 0, "size=1m"),
		unix.Mount("/etc/passwd", dir+"/bound", "", unix.MS_BIND, ""))
	defer unix.Unmount(dir+"/mount", unix.MNT_DETACH)
	defer unix.Unmount(dir+"/bound", unix.MNT_DETACH)
	write(t, dir+"/mount/file", "other")
	for _, path := range []string{"mount/file", "bound"} {
		_, err := root.ReadFile(t.Context(), path, 1<<20)
		refused(t, err, ErrOutsideRoot)
	}
	refused(t, root.WriteFile(t.Context(), "mount/new", nil, 0o600), ErrOutsideRoot)
	for _, path := range []string{"mount", "."} {
		_, err := root.List(t.Context(), path, ListOptions{MaximumEntries: 9})
		refused(t, err, ErrOutsideRoot)
	}
	must(t, unix.Unmount(dir+"/mount", 0)) // a mount on a file alone is noticed too
	_, err := root.List(t.Context(), ".", ListOptions{MaximumEntries: 9})
	refused(t, err, ErrOutsideRoot)
}

func TestReadBounds(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	const most = 16 << 20
	full := bytes.Repeat([]byte("0123456789abcdef"), most/16)
	must(t, os.WriteFile(dir+"/full", full, 0o644), os.WriteFile(dir+"/over", append(full, 'x'), 0o644),
		os.WriteFile(dir+"/empty", nil, 0o644))

	data, err := root.ReadFile(t.Context(), "full", most)
	if err != nil || !bytes.Equal(data, full) {
		t.Errorf("16 MiB: %d bytes, %v", len(data), err)
	}
	_, err = root.ReadFile(t.Context(), "over", most)
	refused(t, err, ErrTooLarge)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Maximum != most {
		t.Errorf("the error does not name the bound: %v", err)
	}
	data, err = root.ReadFile(t.Context(), "empty", 0)
	if err != nil || data == nil || len(data) != 0 {
		t.Errorf("empty: %v, %v", data, err)
	}
	_, err = root.ReadFile(t.Context(), "empty", -1)
	refused(t, err, ErrTooLarge)
	data, err = root.ReadFile(t.Context(), "over", 1<<63-1)
	if err != nil || len(data) != most+1 {
		t.Errorf("unbounded: %d bytes, %v", len(data), err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = root.ReadFile(ctx, "full", most)
	refused(t, err, ErrFailed)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A file that grows while it is read is given whole or refused, never above
// the bound. The reads go on until both have been seen.
func TestReadGrowing(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	const most = 64 << 10
	file, err := os.Create(dir + "/log")
	must(t, err)
	done := make(chan struct{})
	stopped := make(chan error, 1)
	go func() {
		line := bytes.Repeat([]byte("x"), 512)
		for {
			select {
			case <-done:
				stopped <- file.Close()
				return
			default:
			}
			info, err := file.Stat()
			if err == nil && info.Size() > most+4096 {
				err = file.Truncate(0)
			}
			if _, writeErr := file.WriteAt(line, max(info.Size()%(most+8192), 0)); err != nil || writeErr != nil {
				stopped <- errors.Join(err, writeErr)
				return
			}
		}
	}()
	var whole, large int
	for n := 0; n < 1_000_000 && (n < 2000 || whole == 0 || large == 0); n++ {
		data, err := root.ReadFile(t.Context(), "log", most)
		switch {
		case len(data) > most:
			t.Fatalf("%d bytes above a bound of %d", len(data), most)
		case err == nil:
			whole++
		case errors.Is(err, ErrTooLarge):
			large++
		default:
			t.Fatal(err)
		}
	}
	close(done)
	must(t, <-stopped)
	if whole == 0 || large == 0 {
		t.Errorf("the file did not grow across the bound: %d whole, %d too large", whole, large)
	}
}

// An open that breaks a lease waits for the holder, up to 45 seconds.
func TestReadLease(t *testing.T) {
	dir := t.TempDir()
	root := open(t, dir)
	write(t, dir+"/leased", "x")
	file, err := os.OpenFile(dir+"/leased", os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("no leases here:", err)
	}
	_, err = root.ReadFile(t.Context(), "leased", 10)
	refused(t, err, ErrChanged)
	_, err = root.List(t.Context(), ".", ListOptions{MaximumEntries: 9, Digests: true})
	refused(t, err, ErrChanged)
}

func FuzzReadFile(f *testing.F) {
	dir, outside := f.TempDir(), f.TempDir()
	hostileTree(f, dir, outside)
	root := open(f, dir)
	for _, seed := range []string{"file", "link/file", "dir/../file", "magic/etc/passwd", outside + "/file", "fifo"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, unsafePath string) {
		data, err := root.ReadFile(t.Context(), unsafePath, 100)
		if err == nil && string(data) != "inside" {
			t.Fatalf("%q gave %q", unsafePath, data)
		}
		if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
			t.Fatalf("untyped error %v", err)
		}
	})
}
