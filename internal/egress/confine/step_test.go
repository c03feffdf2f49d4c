package confine

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Each step forbids something. It is tried in a process that took the step, and
// in a twin that left it out: what fails in the first and works in the second is
// the step's doing. Steps that would forbid it too are lifted in both.
func TestEachStepForbids(t *testing.T) {
	dir := openDir(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	readable := filepath.Join(dir, "readable")
	if err := os.WriteFile(readable, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	listed, listedPort := listen(t)
	unlisted, _ := listen(t)
	abstract := fmt.Sprintf("checkfu-confine-%d", os.Getpid())
	socket, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	stranger := begin(t, order{Without: without("landlock seccomp"), Do: "nothing", Waits: true}, nil)

	for _, c := range []struct {
		step, lifted, do, with string
		errno                  syscall.Errno // 0 is any
	}{
		{"descriptors", "", "write descriptor", "3", syscall.EBADF},
		{"files", "", "open sockets", "200", syscall.EMFILE},
		{"identity", "landlock seccomp", "read file", secret, syscall.EACCES},
		{"identity", "landlock seccomp", "change owner", readable, syscall.EPERM},
		{"identity", "landlock seccomp", "bind", "127.0.0.1:80", syscall.EACCES},
		{"identity", "seccomp", "become root", "", syscall.EPERM},
		{"landlock", "seccomp", "read file", readable, syscall.EACCES},
		{"landlock", "seccomp", "read directory", "/", syscall.EACCES},
		{"landlock", "seccomp", "make file", filepath.Join(dir, "made"), syscall.EACCES},
		{"landlock", "seccomp", "connect", unlisted, syscall.EACCES},
		{"landlock", "seccomp", "bind", "127.0.0.1:0", syscall.EACCES},
		{"landlock", "seccomp", "connect abstract", abstract, syscall.EPERM},
		{"landlock", "seccomp", "signal", fmt.Sprint(stranger.Process.Pid), syscall.EPERM},
		{"landlock", "seccomp", "every thread reads", readable, syscall.EACCES},
		{"seccomp", "landlock", "read file", readable, syscall.EPERM},
		{"seccomp", "landlock", "every thread reads", readable, syscall.EPERM},
		{"seccomp", "landlock", "bind", "127.0.0.1:0", syscall.EPERM},
		{"seccomp", "landlock", "connect abstract", abstract, syscall.EPERM},
		{"seccomp", "landlock", "signal", fmt.Sprint(stranger.Process.Pid), syscall.EPERM},
	} {
		t.Run(c.step+" "+c.do, func(t *testing.T) {
			// The twin that keeps root is lifted of nothing else by that.
			o := order{Needs: Needs{Ports: []uint16{listedPort}}, Do: c.do, With: c.with, Waits: true}
			pass := passing(readFile(t))
			o.Without = without(c.lifted)
			got, _ := beginRun(t, o, pass)
			o.Without = without(c.lifted, c.step)
			twin, _ := beginRun(t, o, pass)
			if got.Error == "" || c.errno != 0 && got.Errno != c.errno {
				t.Errorf("it may: %+v", got)
			}
			if twin.Error != "" {
				t.Errorf("without the step it may not either: %+v", twin)
			}
		})
	}

	for what, o := range map[string]order{
		"a listed port":  {Needs: Needs{Ports: []uint16{listedPort}}, Do: "connect", With: listed},
		"a socket file":  {Needs: Needs{Unix: true}, Do: "connect file", With: socketFile(t, dir)},
		"its own memory": {Do: "fault"},
	} {
		if got, _ := run(t, o); got.Error != "" {
			t.Errorf("%s: %s", what, got.Error)
		}
	}
	if got, _ := run(t, order{Do: "connect file", With: socketFile(t, dir)}); got.Errno != syscall.EPERM {
		t.Errorf("a socket file that is not needed: %+v", got)
	}
}

// What is wrong is refused by name, and nothing is served.
func TestAStepThatCannotBeTakenIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		order  order
		change func(*exec.Cmd)
		step   string
		got    string
	}{
		"an environment":               {order{}, func(c *exec.Cmd) { c.Env = []string{"TOKEN=secret"} }, "environment", `1 variables, the first is "TOKEN"`},
		"a descriptor that is closed":  {order{Needs: Needs{Descriptors: []int{0, 1, 2, 77}}}, nil, "descriptors", "bad file descriptor"},
		"too few files":                {order{Needs: Needs{Files: 3}}, nil, "files", "3"},
		"more files than there can be": {order{Needs: Needs{Files: 1 << 40}}, nil, "files", "not permitted"},
		"root":                         {order{Needs: Needs{UID: -1}}, nil, "identity", "none, as root"},
		"a user without a group":       {order{Needs: Needs{UID: 5}}, nil, "identity", "5 and 0"},
		"another user than one's own":  {order{Needs: Needs{UID: testUID, GID: testUID}}, as(testUID + 1), "identity", "user 65520"},
		"no privileges to take":        {order{Without: without("no_new_privs landlock")}, nil, "seccomp", "permission denied"},
		"nor for Landlock":             {order{Without: without("no_new_privs")}, nil, "landlock", "operation not permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			c.order.Do = "nothing"
			r := begin(t, c.order, c.change)
			if r.Confined.Step != c.step || !contains(r.Confined.Error, "confine: "+c.step+": expected ", c.got) {
				t.Errorf("%+v", r.Confined)
			}
			if strings.Contains(r.Confined.Error, "secret") {
				t.Error("it tells the secret")
			}
		})
	}

	// An ordinary user stays who he is.
	r := begin(t, order{Needs: Needs{UID: -1}, Do: "nothing"}, as(testUID))
	if r.Confined.Error != "" {
		t.Errorf("%+v", r.Confined)
	}
}

// Before and after: the notes are what the kernel shows of the process.
func TestNotes(t *testing.T) {
	got := Notes(Needs{UID: testUID, GID: testUID})
	if len(got) != 3 || got[0] != fmt.Sprint("user ", testUID) || !strings.HasPrefix(got[1], "landlock ") || got[2] != "seccomp "+runtime.GOARCH {
		t.Errorf("%q", got)
	}
	if got := Notes(Needs{})[0]; got != fmt.Sprint("user ", os.Geteuid()) {
		t.Errorf("%q", got)
	}
}

// What a version of Landlock does not know is not asked of it, and what it knows
// is taken away.
func TestFileAccess(t *testing.T) {
	for version, want := range map[int]uint64{1: 0x1fff, 2: 0x3fff, 3: 0x7fff, 4: 0x7fff, 5: 0xffff, 8: 0xffff, 9: 0x1ffff} {
		if got := fileAccess(version, false); got != want {
			t.Errorf("version %d: %#x", version, got)
		}
	}
	if got := fileAccess(9, true); got != 0xffff {
		t.Errorf("with a socket file: %#x", got)
	}
}

func beginRun(t *testing.T, o order, change func(*exec.Cmd)) (outcome, syscall.WaitStatus) {
	t.Helper()
	r := begin(t, o, change)
	if r.Confined.Error != "" {
		t.Fatalf("not confined: %s", r.Confined.Error)
	}
	return r.act(t)
}

// passing adds descriptor 3.
func passing(f *os.File) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.ExtraFiles = []*os.File{f} }
}

// readFile is a file that can be written.
func readFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "passed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// openDir is a directory that every user may use.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "confine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func listen(t *testing.T) (string, uint16) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), uint16(l.Addr().(*net.TCPAddr).Port)
}

func socketFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "socket")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
