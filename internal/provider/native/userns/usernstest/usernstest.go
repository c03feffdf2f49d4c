// Package usernstest starts programs as an ordinary user with subordinate ids, for
// tests that run as root.
//
// The user is in no file of the host: each program has a mount namespace of its own,
// in which /etc/passwd, /etc/group, /etc/subuid and /etc/subgid are a test's files.
// Nothing is to be undone.
// Concurrency: every call makes a user of its own, also beside other test processes.
package usernstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Name is what every user is called, each in their own /etc/passwd.
const Name = "checkfu-ordinary"

const (
	users   = 256        // at once on one host
	firstID = 900000     // of the users themselves
	block   = 1000000000 // the first of the first user's subordinate ids
	size    = 65536      // of a block
)

// must is set where nothing may be skipped.
const must = "CHECKFU_TEST_USERS"

// User is one such person.
type User struct {
	Home   string // closed to everybody else; its parent is root's and open
	UID    int    // and the group's number
	First  int    // of the 65,536 subordinate ids that only this user can have
	parent string
}

// New makes a user and their home, which the test's end removes, and gives them their
// subordinate ids, or none.
//
// It skips t where newuidmap is missing (Debian: uidmap), unless CHECKFU_TEST_USERS is
// set, and fails it where who runs it is not root.
func New(t testing.TB, ids bool) *User {
	t.Helper()
	if _, err := exec.LookPath("newuidmap"); err != nil {
		if os.Getenv(must) != "" {
			t.Fatalf("%s is set, and there is no newuidmap in PATH", must)
		}
		t.Skip("no newuidmap in PATH; Debian has it in uidmap")
	}
	slot := reserve(t)
	dir, err := os.MkdirTemp("", "checkfu-ordinary-") // t.TempDir's parents are root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	u := &User{Home: filepath.Join(dir, "home"), UID: firstID + slot, First: block + slot*size, parent: dir}
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(u.Home, 0o700), os.Chown(u.Home, u.UID, u.UID), os.Mkdir(u.etc(), 0o755))
	subids := ""
	if ids {
		subids = fmt.Sprintf("%s:%d:%d\n", Name, u.First, size)
	}
	for name, line := range map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", Name, u.UID, u.UID, u.Home), "group": fmt.Sprintf("%s:x:%d:\n", Name, u.UID),
		"subuid": subids, "subgid": subids,
	} {
		var have []byte
		if !strings.HasPrefix(name, "sub") {
			var readErr error
			have, readErr = os.ReadFile("/etc/" + name)
			err = errors.Join(err, readErr)
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(u.etc(), name), append(have, line...), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *User) etc() string { return filepath.Join(u.parent, "etc") }

// reserve takes a number that no other user has until the test's end. An abstract
// socket is taken by one process and ends with it; what a test left that was killed may
// live on, and its number is not given out.
func reserve(t testing.TB) int {
	t.Helper()
	for slot := range users {
		l, err := net.Listen("unix", "@checkfu-ordinary-"+strconv.Itoa(slot))
		if err != nil {
			continue
		}
		if len((&User{UID: firstID + slot, First: block + slot*size}).Left(t)) > 0 {
			l.Close()
			continue
		}
		t.Cleanup(func() { l.Close() })
		return slot
	}
	t.Fatalf("%d tests have such a user already", users)
	return 0
}

// script makes the files of the user the host's and becomes the user. A host without
// files of subordinate ids gets empty ones.
const script = `set -e
for f in passwd group subuid subgid; do
	[ -e /etc/$f ] || : >/etc/$f
	mount --bind "$1/$f" /etc/$f
done
cd "$2"
id=$3
shift 3
exec setpriv --reuid $id --regid $id --clear-groups "$@"`

// Command is a program that is to run as the user, in their home and with an
// environment of their own.
func (u *User) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", script, "sh", u.etc(), u.Home, strconv.Itoa(u.UID), program}, args...)...)
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
	if err := errors.Join(os.WriteFile(to, content, mode), os.Chmod(to, mode), os.Chown(to, u.UID, u.UID)); err != nil {
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
		if len(f) < 3 || f[2][0] == 'Z' {
			continue
		}
		if id, err := strconv.Atoi(f[0]); err == nil && (id == u.UID || id >= u.First && id < u.First+size) {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return left
}
