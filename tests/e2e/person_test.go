package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a person meets who makes a mistake, or whose machine lacks something:
// one line that names the thing and what to do next.
func TestAMistakeIsAnsweredWithWhatToDoNext(t *testing.T) {
	repo := repository(t, map[string]string{"d/a": "a"})
	closed := t.TempDir() // 0700: nobody but root passes
	for _, c := range []struct {
		name  string
		args  []string
		code  int
		wants string
	}{
		{"an unset variable", []string{"run", "--repo", "", "--", "true"}, 2, "--repo: expected a value"},
		{"a state directory that cannot be", []string{"--state", "/proc/none", "ps"}, 2, "--state: expected a directory that can be made"},
		{"a state directory that machines cannot reach", []string{"--state", closed + "/s", "run", "--", "true"}, 125, "chmod o+x"},
		{"no image yet", []string{"--state", filepath.Dir(state) + "/empty", "run", "--", "true"}, 2, "checkfu image build-base"},
		{"a subdirectory", []string{"run", "--image", "busybox", "--repo", repo + "/d", "--", "true"}, 2, "which is " + repo},
		{"a size in the wrong range", []string{"run", "--image", "busybox", "--memory", "1MiB", "--", "true"}, 2, "--memory: expected 32.0MiB to "},
		{"no such directory inside", []string{"run", "-q", "--image", "busybox", "--workdir", "/none", "--", "true"}, 126, "/none"},
		{"a mistyped flag", []string{"run", "--repos", ".", "--", "true"}, 2, "see checkfu run --help"},
		{"a mistyped command", []string{"runn"}, 2, "see checkfu --help"},
	} {
		r := run(t, c.args...)
		if r.code != c.code || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "checkfu: ") || !strings.Contains(r.stderr, c.wants) {
			t.Errorf("%s: exit %d\n%s%s", c.name, r.code, r.stdout, r.stderr)
		}
	}
}

func TestWhoIsNotRootIsToldSo(t *testing.T) {
	copied := filepath.Join(filepath.Dir(state), "checkfu") // where everyone passes
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	write(t, copied, string(data), 0o755)
	t.Cleanup(func() { os.Remove(copied) })
	own, err := os.MkdirTemp(filepath.Dir(state), "own-")
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	os.Chown(own, nobody, nobody)
	for _, c := range []struct {
		dir   string
		args  []string
		code  int
		wants string
	}{
		{own, []string{"run", "--", "true"}, 125, "root"},
		{own, []string{"image", "build-base"}, 2, "needs root"},
		{own, []string{"doctor"}, 1, "root"},
		{state, []string{"run", "--", "true"}, 2, "with sudo"},
		{state, []string{"ps"}, 2, "with sudo"},
		{state, []string{"sweep"}, 2, "with sudo"},
		{own, []string{"run", "-q", "--provider", "memory", "--", "echo", "with sudo"}, 0, "with sudo"},
	} {
		command(t) // the store
		cmd := exec.Command(copied, c.args...)
		cmd.Env, cmd.Dir = []string{"CHECKFU_STATE=" + c.dir, "PATH=" + os.Getenv("PATH")}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if r := finish(t, cmd); r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.wants) {
			t.Errorf("%v: exit %d\n%s%s", c.args, r.code, r.stdout, r.stderr)
		}
	}
}

func TestAFullDiskForTheResultsIsNamedAndTheRestIsKept(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("none", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	r := run(t, boxed("native", "head -c 200000 /dev/zero > /mnt/session/outputs/big; echo small > /mnt/session/outputs/small", "--out", small+"/out")...)
	if r.code != 125 || !strings.Contains(r.stderr, small+"/out") || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	if got, _ := os.ReadFile(small + "/out/small"); string(got) != "small\n" {
		t.Errorf("the small output: %q", got)
	}
	repo := repository(t, map[string]string{"a": "a"})
	r = run(t, boxed("native", "head -c 200000 /dev/urandom > big", "--repo", repo, "--patch", small+"/patch")...)
	if r.code != 125 || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	if left, _ := filepath.Glob(small + "/*patch*"); len(left) > 0 {
		t.Errorf("half a patch: %v", left)
	}
}

// A value that one driver cannot carry is quoted by its refusal.
func TestARefusedValueStaysInside(t *testing.T) {
	for _, provider := range []string{"native:runsc", "native:runc"} {
		record := filepath.Join(t.TempDir(), "record.json")
		r := run(t, boxed(provider, "true", "--env", "TOKEN=canary-value\xff", "--json", record)...)
		written, err := os.ReadFile(record)
		if err != nil || r.code != 0 && r.code != 126 {
			t.Errorf("%s: exit %d, %v", provider, r.code, err)
		}
		if strings.Contains(r.stdout+r.stderr+string(written), "canary-value") {
			t.Errorf("%s shows the value:\n%s%s", provider, r.stderr, written)
		}
	}
}

// On a terminal the first Ctrl-C is the command's, and says what a second does.
func TestCtrlCOnATerminal(t *testing.T) {
	ours, theirs := terminal(t)
	cmd := command(t, boxed("native", `trap "" INT; echo ready; sleep 100; sleep 100`)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	theirs.Close()
	seen := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		presses := 0
		for b := make([]byte, 4096); ; {
			n, err := ours.Read(b)
			all.Write(b[:n])
			if presses == 0 && strings.Contains(all.String(), "ready") || presses == 1 && strings.Contains(all.String(), "Ctrl-C again") {
				presses++
				io.WriteString(ours, "\x03")
			}
			if err != nil {
				break
			}
		}
		seen <- all.String()
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	if out := <-seen; cmd.ProcessState.ExitCode() != 130 || !strings.Contains(out, "interrupted") {
		t.Errorf("exit %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
	if left := census(); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// terminal makes a pseudo-terminal: our side and the program's.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}
