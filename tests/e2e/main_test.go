// Package e2e runs the built command, as a person would: real gVisor, real
// runc, real git, real signals. `make build` first.
package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image/imagetest"
)

var (
	binary string // the product
	state  string // its state directory, one for all tests
)

func TestMain(m *testing.M) {
	binary, _ = filepath.Abs("../../bin/checkfu")
	if os.Geteuid() != 0 {
		fmt.Println("SKIP e2e: needs root")
		os.Exit(0)
	}
	if _, err := os.Stat(binary); err != nil {
		fmt.Println("FAIL: build it first: make build:", err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "checkfu-e2e-")
	if err != nil {
		panic(err)
	}
	os.Chmod(dir, 0o711) // machines run under ids of their own and pass through
	state = filepath.Join(dir, "state")
	code := m.Run()
	if left := census(); len(left) > 0 {
		fmt.Printf("FAIL: left behind:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

var imported bool

// result is one finished command.
type result struct {
	code           int
	stdout, stderr string
}

// command prepares the product on a store that holds a busybox image.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if !imported {
		imported = true
		mustRun(t, "image", "import", imagetest.Busybox(t, t.TempDir()))
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "CHECKFU_STATE="+state)
	cmd.Dir = t.TempDir()
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...))
}

func mustRun(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("checkfu %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r
}

// boxed is a run of a shell script on the busybox image.
func boxed(provider, script string, flags ...string) []string {
	args := append([]string{"run", "--image", "busybox", "--provider", provider}, flags...)
	return append(args, "--", "sh", "-c", script)
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=e2e", "-c", "user.email=e2e@example.invalid"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// repository makes a repository with the given files, committed.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	for name, content := range files {
		write(t, filepath.Join(dir, name), content, 0o644)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "start")
	return dir
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		t.Fatal(err)
	}
}

// census names what of our state is still alive on the host.
func census() []string {
	var left []string
	self := os.Getpid()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), state) && file != fmt.Sprintf("/proc/%d/cmdline", self) {
			left = append(left, "process "+file+" "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, state) && strings.Contains(line, "/instances/") {
			left = append(left, "mount "+line)
		}
	}
	filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Base(filepath.Dir(path)) == "instances" {
			left = append(left, "instance "+path)
		}
		return nil
	})
	return left
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func kill(cmd *exec.Cmd, s syscall.Signal) { cmd.Process.Signal(s) }
