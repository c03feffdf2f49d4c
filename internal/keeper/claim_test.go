package keeper

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// Who is told of a session finds it after a power loss: its name is forced to the
// disk after the rename that gives it, and so is that of the directory of all.
func TestTheNameOfASessionIsForcedToTheDisk(t *testing.T) {
	dir := stateDir(t)
	if err := os.MkdirAll(sessionsDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	of := map[uint32]string{}
	for _, path := range []string{dir, sessionsDir(dir)} {
		wd, err := unix.InotifyAddWatch(watch, path, unix.IN_OPEN|unix.IN_MOVED_TO)
		if err != nil {
			t.Fatal(err)
		}
		of[uint32(wd)] = path
	}
	h, err := Reserve(dir, Record{SessionID: "s", Provider: "memory", ExpiresAt: sandbox.Timestamp("2030-01-01T00:00:00.000Z"), KeepMillis: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Discard(); err != nil {
			t.Error(err)
		}
	}()
	events := make([]byte, 64<<10)
	n, err := unix.Read(watch, events)
	if err != nil {
		t.Fatal(err)
	}
	named, opened := false, map[string]bool{}
	for at := events[:n]; len(at) > 0; {
		wd, mask, size := binary.NativeEndian.Uint32(at), binary.NativeEndian.Uint32(at[4:]), binary.NativeEndian.Uint32(at[12:])
		switch {
		case mask&unix.IN_MOVED_TO != 0:
			named = true
		case named && size == 0: // the directory itself: what is in it has a name
			opened[of[wd]] = true
		}
		at = at[unix.SizeofInotifyEvent+size:]
	}
	for _, path := range of {
		if !opened[path] {
			t.Errorf("%s: not synced after the session was named", path)
		}
	}
}
