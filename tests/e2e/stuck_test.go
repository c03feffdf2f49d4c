package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stick makes one file of a machine's directory impossible to remove until free is
// called.
func stick(t *testing.T, instance string) (free func()) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(state, "native-*", "instances", instance, "home.image"))
	if len(found) != 1 {
		t.Fatalf("expected one image of %s, got %q", instance, found)
	}
	if err := syscall.Mount(found[0], found[0], "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	stuck := true
	free = func() {
		if stuck {
			stuck = false
			if err := syscall.Unmount(found[0], syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(free)
	return free
}

// A machine that is kept and cannot be removed is said to be so, and the session can be
// paused again, by a command and by its keeper.
func TestAPauseThatCouldNotRemoveTheMachineIsRepeated(t *testing.T) {
	keepable(t)
	for name, again := range map[string]func(id string, s keeping){
		"by a command": func(id string, s keeping) {
			if r := mustRun(t, "session", "pause", id, "--expires=1h"); !strings.Contains(r.stderr, "--expires changes nothing") {
				t.Errorf("%q", r.stderr)
			}
		},
		"by its keeper": func(id string, s keeping) {
			if err := syscall.Kill(s.KeeperPID, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is paused", func() bool { return sessions(t)[id].State == "paused" })
		},
	} {
		id := session(t, providers[1], "--keep=48h", "--disk", "16MiB")
		s := is(t, id, "active")
		inside(t, id, "echo kept > n")
		free := stick(t, s.InstanceID)
		for range 2 {
			if r := run(t, "session", "pause", id); r.code != 125 || strings.Contains(r.stderr, "goes on") || !strings.Contains(r.stderr, "could not be removed: checkfu session pause "+id+" tries again") {
				t.Errorf("%s: %d, %s", name, r.code, r.stderr)
			}
		}
		if r := run(t, "session", "exec", id, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "checkfu session pause "+id+" tries again") {
			t.Errorf("%s: %d, %s", name, r.code, r.stderr)
		}
		free()
		again(id, s)
		if now := is(t, id, "paused"); !within(now.ExpiresAt, 47*time.Hour, 48*time.Hour) {
			t.Errorf("%s: %+v", name, now)
		}
		resume(t, id)
		if got := inside(t, id, "cat n"); got != "kept\n" {
			t.Errorf("%s: %q", name, got)
		}
		remove(t, id)
	}
	nothingKept(t)
}
