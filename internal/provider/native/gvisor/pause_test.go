package gvisor

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestPause: a paused machine does nothing until it is resumed, as often as one
// likes; a second pause waits; a caller who gave up pauses nothing; and Destroy
// ends a paused one.
func TestPause(t *testing.T) {
	m := start(t)
	stdin, in := pipe(t)
	out, stdout := pipe(t)
	if _, err := m.Exec(bounded(t), machine.Command{Argv: []string{"cat"}, Env: env, Dir: "/", Stdin: stdin, Stdout: stdout}); err != nil {
		t.Fatal(err)
	}
	comes := func(within time.Duration) error {
		if err := out.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		_, err := out.Read(make([]byte, 8))
		return err
	}
	for range 3 {
		resume, err := m.Pause(bounded(t))
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
	resume, err := m.Pause(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(bounded(t)); err != nil {
		t.Error(err)
	}
	if err := resume(); err != nil {
		t.Error(err)
	}
	if _, err := m.Pause(bounded(t)); err == nil {
		t.Error("a machine that is gone was paused")
	}
}
