package e2e

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAnOrdinaryUser: who is not root can do what needs no machine of this host, with
// a state directory of their own; the rest is refused by name, with what to do, and
// nothing of it is begun.
func TestAnOrdinaryUser(t *testing.T) {
	const user = 12345
	home, err := os.MkdirTemp("", "checkfu-e2e-user-") // t.TempDir's parents are root's
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	program := filepath.Join(home, "checkfu")
	copied(t, binary, program)
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{home, program} {
		if err := os.Chown(path, user, user); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		code int
		says string // on either output
	}{
		{"doctor", 1, "run it with sudo"},
		{"version", 0, ""},
		{"schema ProvisionRequest", 0, "2020-12"},
		{"run --provider memory -- echo hello", 0, "hello"},
		{"runs ls", 0, "echo hello"},
		{"sandbox test builtin:memory --suite nine --repeat 1", 0, "9 of 9 passed"},
		{"sandbox init acme --lang python --name acme", 0, ""},
		{"session ls", 0, "SESSION"},
		{"ps", 0, "INSTANCE"},
		{"image ls", 0, "REFERENCE"},
		{"run -- true", 125, "run it as root"},
		{"run --provider native:runc -- true", 125, "needs root"},
		{"run --provider native:rootless -- true", 2, "--provider: native:rootless cannot run here: "},
		{"session start", 125, "run it as root"},
		{"sandbox test builtin:native", 4, "run it as root"},
		{"egress test", 125, "sudo"},
	} {
		cmd := exec.Command(program, strings.Fields(c.args)...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		r := finish(t, cmd)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.says) {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", c.args, r.code, c.code, c.says, r.stdout, r.stderr)
		}
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
