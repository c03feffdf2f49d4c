package conformance

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/suite/lab"
)

// product is the built command over a state directory with a busybox image.
func product(t *testing.T) (run func(args ...string) *exec.Cmd, dir string) {
	t.Helper()
	binary, _ := filepath.Abs("../../bin/checkfu")
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("build it first: make build: %v", err)
	}
	dir = t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o711); err != nil { // machines run under ids of their own and pass through
			t.Fatal(err)
		}
	}
	store, err := image.Open(filepath.Join(dir, "images"), image.Options{IDBase: native.IDBase})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Import(t.Context(), imagetest.Busybox(t, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, append([]string{"sandbox", "test", "builtin:native", "--image", "busybox", "--suite", "nine"}, args...)...)
		cmd.Env = append(os.Environ(), "CHECKFU_STATE="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}, dir
}

// wait ends the command within a minute and returns its exit code.
func wait(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return 0
}

// TestInterruptedLeavesNothing: Ctrl-C, which a terminal sends to every process
// of the group, and SIGTERM, while a machine is alive. A second test on the
// same directory is refused meanwhile.
func TestInterruptedLeavesNothing(t *testing.T) {
	run, dir := product(t)
	for _, c := range []struct {
		signal syscall.Signal
		group  int
	}{{syscall.SIGINT, -1}, {syscall.SIGTERM, 1}} {
		cmd := run()
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); len(lab.Census(dir)) < 3; <-time.After(5 * time.Millisecond) {
			if time.Now().After(end) {
				_ = cmd.Process.Kill()
				t.Fatalf("no machine came: %s", errs.String())
			}
		}
		second := run()
		said, _ := second.CombinedOutput()
		if code := second.ProcessState.ExitCode(); code != 2 || !strings.HasPrefix(string(said), "checkfu: --state: ") {
			t.Errorf("a second test: exit %d, %s", code, said)
		}
		if err := syscall.Kill(c.group*cmd.Process.Pid, c.signal); err != nil {
			t.Fatal(err)
		}
		if code := wait(t, cmd); code != 3 || !strings.Contains(out.String(), "interrupted by ") || !strings.Contains(errs.String(), "checkfu: interrupted; tearing down") {
			t.Errorf("%v: exit %d\n%s%s", c.signal, code, out.String(), errs.String())
		}
		if left := lab.Census(dir); len(left) > 0 {
			t.Errorf("%v left %v", c.signal, left)
		}
	}
}

// TestNobodyReads: a run whose output is closed at once goes on to its end.
func TestNobodyReads(t *testing.T) {
	run, dir := product(t)
	cmd := run("--run", "none-egress", "--repeat", "1")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := errors.Join(cmd.Start(), write.Close(), read.Close()); err != nil {
		t.Fatal(err)
	}
	if code := wait(t, cmd); code != 3 { // a filter left out a part
		t.Errorf("exit %d", code)
	}
	if left := lab.Census(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestFullDisk: what was found is shown although it cannot be kept, and no
// half of it stays.
func TestFullDisk(t *testing.T) {
	small := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no tmpfs here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	}()
	run, _ := product(t)
	cmd := run()
	cmd.Args = append(cmd.Args[:1], "sandbox", "test", "builtin:memory", "--suite", "nine", "--out", filepath.Join(small, "evidence"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if code := wait(t, cmd); code != 4 || !strings.Contains(out.String(), "9 of 9 passed") ||
		!strings.Contains(errs.String(), "no space left on device; the run itself ended with exit code 0\n") {
		t.Errorf("exit %d\n%s%s", code, out.String(), errs.String())
	}
	if left, err := os.ReadDir(filepath.Join(small, "evidence")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
