package runc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestPause: a paused machine does nothing until it is resumed, as often as one
// likes; a second pause waits; a caller who gave up pauses nothing; and Destroy
// ends a paused one.
func TestPause(t *testing.T) {
	m := newHost(t).start(t)
	stdin, in := ends(t)
	out, stdout := ends(t)
	if _, err := m.Exec(within(t, 20*time.Second), machine.Command{Argv: []string{"cat"}, Env: env, Dir: "/", Stdin: stdin, Stdout: stdout}); err != nil {
		t.Fatal(err)
	}
	comes := func(d time.Duration) error {
		if err := out.SetReadDeadline(time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
		_, err := out.Read(make([]byte, 8))
		return err
	}
	for range 3 {
		resume, err := m.Pause(within(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		if err := comes(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("of a paused machine came something: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := m.Pause(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second pause: %v", err)
		}
		cancel()
		if err := errors.Join(resume(), resume()); err != nil {
			t.Error(err)
		}
		if err := comes(time.Minute); err != nil {
			t.Errorf("it did not go on: %v", err)
		}
	}
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Pause(gaveUp); err == nil {
		t.Fatal("paused for one who had given up")
	}
	if _, err := in.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if err := comes(time.Minute); err != nil {
		t.Errorf("it did not go on: %v", err)
	}
	freezer := filepath.Join(m.(*instance).tree, "cgroup.freeze")
	if err := os.WriteFile(freezer, []byte("1"), 0); err != nil { // somebody else's
		t.Fatal(err)
	}
	theirs, err := m.Pause(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs(); err != nil {
		t.Error(err)
	}
	if held, err := os.ReadFile(freezer); err != nil || string(held) != "1\n" {
		t.Errorf("what another holds still was set going: %q, %v", held, err)
	}
	if err := os.WriteFile(freezer, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	resume, err := m.Pause(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	if err := resume(); err != nil {
		t.Error(err)
	}
	if _, err := m.Pause(within(t, 20*time.Second)); err == nil {
		t.Error("a machine that is gone was paused")
	}
}

func ends(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}
