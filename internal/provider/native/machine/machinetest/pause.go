// Package machinetest tests what every driver of machines owes the provider, so that
// each driver's own tests call the same.
//
// Trusts: the test that calls it. Concurrency: one machine is tested by one goroutine.
// Source: contract "The operations".
package machinetest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// bound is how long a call may take on a host that is busy.
const bound = 20 * time.Second

// Pause takes a running machine through its pauses, and ends it: a paused machine does
// nothing until it is resumed, as often as one likes; a second pause waits; a caller
// who gave up pauses nothing; and Destroy ends a paused one. env is what cat needs to
// be found and run.
func Pause(t *testing.T, m machine.Machine, env []string) {
	t.Helper()
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	stdin, in := pipe(t)
	out, stdout := pipe(t)
	if _, err := m.Exec(within(bound), machine.Command{Argv: []string{"cat"}, Env: env, Dir: "/", Stdin: stdin, Stdout: stdout}); err != nil {
		t.Fatal(err)
	}
	say := func() {
		if _, err := in.WriteString("x"); err != nil {
			t.Fatal(err)
		}
	}
	comes := func(within time.Duration) error {
		if err := out.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		_, err := out.Read(make([]byte, 8))
		return err
	}
	for range 3 {
		resume, err := m.Pause(within(bound))
		if err != nil {
			t.Fatal(err)
		}
		say()
		if err := comes(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("of a paused machine came something: %v", err)
		}
		if _, err := m.Pause(within(10 * time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second pause: %v", err)
		}
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
	say()
	if err := comes(time.Minute); err != nil {
		t.Errorf("it did not go on: %v", err)
	}
	resume, err := m.Pause(within(bound))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(within(bound)); err != nil {
		t.Error(err)
	}
	if err := resume(); err != nil {
		t.Error(err)
	}
	if _, err := m.Pause(within(bound)); err == nil {
		t.Error("a machine that is gone was paused")
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}
