package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native/userns/usernstest"
)

// rootless is an ordinary user with an image, and the product as theirs.
func rootless(t *testing.T) (u *usernstest.User, checkfu func(args ...string) *exec.Cmd) {
	t.Helper()
	u = usernstest.New(t, true)
	program := u.Give(t, binary, 0o755)
	checkfu = func(args ...string) *exec.Cmd { return u.Command(program, args...) }
	archive := u.Give(t, imagetest.Busybox(t, t.TempDir()), 0o644)
	if r := finish(t, checkfu("image", "import", archive)); r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	return u, checkfu
}

// onRootless is a run of a shell script on one of the user's machines.
func onRootless(script string, flags ...string) []string {
	return boxed("native:rootless", script, flags...)
}

// TestRootless: an ordinary user with ids of their own runs a command on a repository
// and gets its patch, its outputs and its exit code, as root does; what needs root is
// refused by name, and the weaker posture is nobody's who did not name it.
func TestRootless(t *testing.T) {
	u, checkfu := rootless(t)
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "repo"}, {"-C", "repo", "config", "user.name", "e2e"}, {"-C", "repo", "config", "user.email", "e2e@example.invalid"},
		{"-C", "repo", "commit", "-q", "--allow-empty", "-m", "start"},
	} {
		if r := finish(t, u.Command("git", args...)); r.code != 0 {
			t.Fatalf("git %v: %s", args, r.stderr)
		}
	}
	work := onRootless("echo new >file; ln -s file link; echo out >/mnt/session/outputs/result; id -u; exit 7",
		"--repo", "repo", "--out", "out", "--patch", "fix.patch")
	for _, c := range []struct {
		args []string
		code int
		says string // on either output
	}{
		{work, 7, "10001\n"},
		{[]string{"runs", "ls"}, 0, "echo new >file"},
		{onRootless("true"), 0, "not_enforced: resource_limits"},
		{onRootless("echo x >/etc/x || echo refused"), 0, "refused"},
		{onRootless("printf 'CONNECT 10.0.0.1:80 HTTP/1.1\\r\\n\\r\\n' | nc 127.0.0.1 3128", "--allow", "example.invalid:443"), 0, "10.0.0.1:80 (literal, 1×)"},
		{[]string{"doctor"}, 1, "native:rootless ready (gVisor for an ordinary user; resource limits are not enforced)"},
		{[]string{"image", "verify", "busybox"}, 0, "is as it was unpacked"},
		{[]string{"ps"}, 0, "INSTANCE"},
		{[]string{"sweep"}, 0, "nothing to remove"},

		{boxed("native", "true"), 125, "name the provider native:rootless"},
		{boxed("native:runc", "true"), 125, "needs root"},
		{onRootless("true", "--keep"), 2, "--keep"},
		{onRootless("true", "--memory", "1GiB"), 2, "takes no limit that does not hold"},
		{onRootless("true", "--network", "unrestricted"), 125, "for the host's root to make"},
		{[]string{"session", "start", "--provider", "native:rootless", "--image", "busybox"}, 2, "checkfu run alone has them"},
		{[]string{"provider", "serve", "--provider", "native:rootless", "--listen", "unix:s"}, 2, "checkfu run alone has them"},
		{[]string{"sandbox", "test", "builtin:native:rootless"}, 2, "checkfu run alone has them"},
		{[]string{"egress", "test", "--provider", "native:rootless"}, 2, "--provider"},

		{[]string{"prune", "--all-images"}, 0, "busybox"},
	} {
		r := finish(t, checkfu(c.args...))
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.says) {
			t.Errorf("%q: exit %d, want %d and %q\n%s%s", c.args, r.code, c.code, c.says, r.stdout, r.stderr)
		}
	}
	if out, err := os.ReadFile(filepath.Join(u.Home, "out", "result")); err != nil || string(out) != "out\n" {
		t.Errorf("%q %v", out, err)
	}
	if patch, err := os.ReadFile(filepath.Join(u.Home, "fix.patch")); err != nil || !strings.Contains(string(patch), "\n+new\n") || !strings.Contains(string(patch), "new file mode 120000") {
		t.Errorf("%s %v", patch, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(u.Home, "out", "result"), &st); err != nil || int(st.Uid) != u.UID {
		t.Errorf("the outputs are user %d's, %v", st.Uid, err)
	}
	nothingOf(t, u)

	// Root has no use for it.
	if r := finish(t, command(t, onRootless("true")...)); r.code != 2 || !strings.Contains(r.stderr, "it is run as root") {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
}

// builder takes mmdebstrap's place: it holds that it is root among ids of the build's
// own, in namespaces that it can mount in, whose shells can name their pipes.
const builder = `#!/bin/sh
set -e
test "$(id -u)" = 0
grep -q '^ *0 *[1-9][0-9]* *65536$' /proc/self/uid_map
at=$(mktemp -d)
mount -t tmpfs build "$at"
mkdir "$at/etc" "$at/dev"
echo built >"$at/etc/marker"
chown 42:65534 "$at/etc/marker"
if ls /proc/self/fd | grep -v '^10$' | grep -q '^[1-9][0-9]$'; then ls -l /proc/self/fd >&2; exit 1; fi
tar --numeric-owner -C "$at" -cf - .
`

// TestRootlessBase: an ordinary user builds a base image, as root would, and nothing of
// the build is left.
func TestRootlessBase(t *testing.T) {
	u, checkfu := rootless(t)
	programs := filepath.Dir(u.Home) // where the build's ids come
	write(t, filepath.Join(programs, "mmdebstrap"), builder, 0o755)
	cmd := checkfu("image", "build-base")
	cmd.Env = append(cmd.Env, "PATH="+programs+":"+os.Getenv("PATH"))
	if r := finish(t, cmd); r.code != 0 || !strings.Contains(r.stdout, "checkfu.local/base@sha256:") {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if left, err := filepath.Glob(filepath.Join(u.Home, ".local/state/checkfu/images/tmp/*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q %v", left, err)
	}
	nothingOf(t, u)
}

// TestRootlessEnds: Ctrl-C reaches the command, and whoever is killed in the middle of
// a run leaves nothing but files, which the next sweep removes, those of the machine's
// users too.
func TestRootlessEnds(t *testing.T) {
	u, checkfu := rootless(t)
	begin := func(script string) (*exec.Cmd, *bufio.Reader) {
		cmd := checkfu(onRootless(script, "--allow", "example.invalid:443")...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		said := bufio.NewReader(out)
		if line, err := said.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		return cmd, said
	}
	cmd, said := begin("trap 'echo trapped; exit 3' INT; echo ready; while :; do sleep 0.05; done")
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if line, err := said.ReadString('\n'); line != "trapped\n" {
		t.Errorf("%q %v", line, err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("after Ctrl-C: %v", err)
	}
	nothingOf(t, u)

	cmd, _ = begin("mkdir -m 0 /tmp/closed; echo ready; sleep 1000")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	const patience = 60 * time.Second
	for deadline := time.Now().Add(patience); len(u.Left(t)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left after %s: %q", patience, u.Left(t))
		}
	}
	if machines := instances(t, u); len(machines) != 1 {
		t.Errorf("%q", machines)
	}
	if r := finish(t, checkfu("sweep")); r.code != 0 {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	nothingOf(t, u)
}

// nothingOf holds that no process of a user is left, and no machine of theirs.
func nothingOf(t *testing.T, u *usernstest.User) {
	t.Helper()
	if left := append(u.Left(t), instances(t, u)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// instances are the directories of a user's machines, and of what their runs staged.
func instances(t *testing.T, u *usernstest.User) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(u.Home, ".local/state/checkfu/*/instances/*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
