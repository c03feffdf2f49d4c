package guest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestMain lets this test binary be the guest init too, so that the modes run
// as real processes.
func TestMain(m *testing.M) {
	if os.Getenv("CHECKFU_TEST_GUEST") == "1" {
		os.Unsetenv("CHECKFU_TEST_GUEST")
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func guestCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "CHECKFU_TEST_GUEST=1")
	return cmd
}

func TestSpecials(t *testing.T) {
	dir := t.TempDir()
	mkdir := func(name string) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	node := func(name string, mode uint32) {
		if err := unix.Mknod(filepath.Join(dir, name), mode|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	mkdir("a/b")
	mkdir("out")
	node("a/b/pipe", unix.S_IFIFO)
	node("a/b/socket\n\twith\x01odd", unix.S_IFSOCK)
	node("a/file", unix.S_IFREG)
	node("out/unseen", unix.S_IFIFO)
	if os.Getuid() == 0 {
		node("a/device", unix.S_IFCHR)
	}
	// A link out of the root must not be walked, nor one that loops.
	os.Symlink("../../out", filepath.Join(dir, "a/b/link"))
	os.Symlink(".", filepath.Join(dir, "a/loop"))
	root := filepath.Join(dir, "a")

	want := []Special{{root + "/b/pipe", "fifo"}, {root + "/b/socket\n\twith\x01odd", "socket"}}
	if os.Getuid() == 0 {
		want = append(want, Special{root + "/device", "device"})
	}
	byPath := func(a, b Special) int { return strings.Compare(a.Path, b.Path) }
	slices.SortFunc(want, byPath)

	out, err := guestCommand(t, "specials", root, "3").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSpecials(out, root, 3)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, byPath)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}

	for _, tc := range []struct {
		name, root, limit, say string
	}{
		{"more than the limit", root, "1", "more than 1"},
		{"root is a link", filepath.Join(root, "loop"), "9", "loop"},
		{"root below a link", filepath.Join(root, "b/link/x"), "9", "link"},
		{"root is not there", filepath.Join(root, "none"), "9", "none"},
		{"root is a file", filepath.Join(root, "file"), "9", "file"},
		{"relative", "a", "9", "absolute"},
		{"parent", root + "/../a", "9", "no .."},
		{"negative limit", root, "-1", "LIMIT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := guestCommand(t, "specials", tc.root, tc.limit).Output()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 1 || len(out) != 0 || !strings.Contains(string(exit.Stderr), tc.say) {
				t.Fatalf("got %q, %v", out, err)
			}
		})
	}
}

func TestSpecialsRefusesUnreadableDirectory(t *testing.T) {
	dir := t.TempDir()
	shut := filepath.Join(dir, "shut")
	if err := os.Mkdir(shut, 0); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	os.Chmod(filepath.Dir(dir), 0o755)
	cmd := guestCommand(t, "specials", dir, "9")
	if os.Getuid() == 0 {
		// Root reads everything: the pass has to run as somebody else, from a
		// binary that somebody else may reach.
		self := filepath.Join(dir, "self")
		b, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(self, b, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.Path = self
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 10001, Gid: 10001}}
	}
	if out, err := cmd.Output(); err == nil || len(out) != 0 {
		t.Fatalf("got %q, %v", out, err)
	}
}

func TestSpecialsBounds(t *testing.T) {
	dir := t.TempDir()
	deep, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(deep) }()
	for range maxDepth {
		if err := unix.Mkdirat(deep, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(deep, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(deep)
		deep = next
	}
	top, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	if _, err := Specials(t.Context(), top, dir, 9); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("too deep: got %v", err)
	}
	if found, err := Specials(t.Context(), top, dir+"/d", 9); err != nil || len(found) != 0 {
		t.Errorf("deep enough: got %v, %v", found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Specials(ctx, top, dir+"/d", 9); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestParseSpecials(t *testing.T) {
	tests := []struct {
		name, text string
		limit      int
		want       int // -1: an error
	}{
		{"none", "", 0, 0},
		{"two", "fifo\t/a\x00socket\t/b\tc\n\x00", 2, 2},
		{"over the limit", "fifo\t/a\x00fifo\t/b\x00", 1, -1},
		{"torn", "fifo\t/a", 1, -1},
		{"no path", "fifo\t\x00", 1, -1},
		{"relative", "fifo\ta\x00", 1, -1},
		{"unknown type", "door\t/a\x00", 1, -1},
		{"the root itself", "fifo\t/\x00", 1, -1},
		{"no tab", "fifo\x00", 1, -1},
		{"empty record", "\x00", 1, -1},
	}
	for _, test := range tests {
		got, err := ParseSpecials([]byte(test.text), "/", test.limit)
		if (err != nil) != (test.want < 0) || (err == nil && len(got) != test.want) {
			t.Errorf("%s: got %v, %v", test.name, got, err)
		}
	}
}

func TestParseSpecials_OnlyBelowItsRoot(t *testing.T) {
	for _, path := range []string{"/other/a", "/w", "/wide/a", "/w/"} {
		if got, err := ParseSpecials([]byte("fifo\t"+path+"\x00"), "/w", 1); err == nil {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

// TestInit runs the reaper in a pid namespace of its own, where it is PID 1.
func TestInit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a pid namespace")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := guestCommand(t, "init")
	cmd.Env = append(cmd.Env, OwnerFDEnv+"=3")
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: 10001, Gid: 10001}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// The kernel gives a process that is not dumpable to root in /proc.
	hardened := func() bool {
		st, err := os.Stat("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/stat")
		return err == nil && st.Sys().(*syscall.Stat_t).Uid == 0
	}
	for deadline := time.Now().Add(5 * time.Second); !hardened(); {
		if time.Now().After(deadline) {
			t.Fatal("init stayed dumpable")
		}
		time.Sleep(time.Millisecond)
	}
	for s := syscall.Signal(1); s < 32; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP {
			cmd.Process.Signal(s)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("a signal ended init: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Second):
		cmd.Process.Kill()
		t.Fatal("init outlived its owner")
	}
}

func FuzzParseSpecials(f *testing.F) {
	f.Add([]byte("fifo\t/w/a\x00socket\t/w/b\tc\x00"))
	f.Add([]byte("fifo\t/w/a"))
	f.Add([]byte("file\t/w/a\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := ParseSpecials(text, "/w", 4)
		if err != nil {
			return
		}
		var again []byte
		for _, s := range found {
			again = append(again, s.Type+"\t"+s.Path+"\x00"...)
		}
		if len(found) > 4 || !bytes.Equal(again, text) {
			t.Fatalf("%q became %q", text, again)
		}
	})
}
