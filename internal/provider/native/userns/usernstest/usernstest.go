// Package usernstest starts programs as an ordinary user with subordinate ids, for
// tests that run as root.
//
// The user is in no file of the host: each program has a mount namespace of its own,
// in which /etc/passwd, /etc/group, /etc/subuid and /etc/subgid are a test's files.
// Nothing is to be undone.
// Concurrency: every call makes files of its own.
package usernstest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The user, their ids on the host, and the first of their subordinate ids. No test of
// others uses them.
const (
	Name  = "checkfu-ordinary"
	UID   = 12346
	First = 1000000000
)

// User is one such person: a home of their own, closed to everybody else.
type User struct {
	Home string
	etc  string
}

// New makes the user's home, which the test's end removes. subids is the line of both
// files of subordinate ids after the name and a colon, "" for none.
//
// It skips t where newuidmap is missing (Debian: uidmap), and fails it where who runs
// it is not root.
func New(t testing.TB, subids string) *User {
	t.Helper()
	if _, err := exec.LookPath("newuidmap"); err != nil {
		t.Skip("no newuidmap in PATH; Debian has it in uidmap")
	}
	dir, err := os.MkdirTemp("", "checkfu-ordinary-") // t.TempDir's parents are root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	u := &User{Home: filepath.Join(dir, "home"), etc: filepath.Join(dir, "etc")}
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(u.Home, 0o700), os.Chown(u.Home, UID, UID), os.Mkdir(u.etc, 0o755))
	if subids != "" {
		subids = Name + ":" + subids + "\n"
	}
	for name, line := range map[string]string{
		"passwd": Name + ":x:12346:12346::" + u.Home + ":/bin/sh\n", "group": Name + ":x:12346:\n", "subuid": subids, "subgid": subids,
	} {
		have, readErr := os.ReadFile("/etc/" + name)
		if strings.HasPrefix(name, "sub") {
			have = nil
		} else {
			err = errors.Join(err, readErr)
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(u.etc, name), append(have, line...), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// script makes the files of the user the host's and becomes the user. A host without
// files of subordinate ids gets empty ones in a mount of its own.
const script = `set -e
for f in passwd group subuid subgid; do
	[ -e /etc/$f ] || : >/etc/$f
	mount --bind "$1/$f" /etc/$f
done
cd "$2"
shift 2
exec setpriv --reuid 12346 --regid 12346 --clear-groups "$@"`

// Command is a program that is to run as the user, in their home and with an
// environment of their own. What it starts may stay in its namespace.
func (u *User) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", script, "sh", u.etc, u.Home, program}, args...)...)
	cmd.Env = []string{"HOME=" + u.Home, "PATH=" + os.Getenv("PATH"), "USER=" + Name}
	return cmd
}

// Give puts a copy of a file of root's into the user's home and returns its path.
func (u *User) Give(t testing.TB, path string, mode os.FileMode) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(u.Home, filepath.Base(path))
	if err := errors.Join(os.WriteFile(to, content, mode), os.Chmod(to, mode), os.Chown(to, UID, UID)); err != nil {
		t.Fatal(err)
	}
	return to
}

// Left names the live processes that are the user's or of one of their ids.
func (u *User) Left(t testing.TB) []string {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "uid=,pid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 2 && (f[0] == "12346" || len(f[0]) == len("1000000000") && strings.HasPrefix(f[0], "10000")) && f[2][0] != 'Z' {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return left
}
