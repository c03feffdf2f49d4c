package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// file makes a file and opens it as often as asked: each a holder of its own.
func file(t *testing.T, n int) (path string, all []*os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lock")
	for range n {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		all = append(all, f)
	}
	return path, all
}

func TestTry(t *testing.T) {
	for _, c := range []struct {
		name        string
		held, asked int
		want        bool
	}{
		{"two share", Shared, Shared, true},
		{"alone beside a sharer", Shared, Exclusive, false},
		{"a sharer beside one alone", Exclusive, Shared, false},
		{"two alone", Exclusive, Exclusive, false},
	} {
		_, f := file(t, 2)
		if got, err := Try(f[0], c.held); err != nil || !got {
			t.Fatal(got, err)
		}
		if got, err := Try(f[1], c.asked); err != nil || got != c.want {
			t.Errorf("%s: %v, want %v, %v", c.name, got, c.want, err)
		}
		f[0].Close()
		if got, err := Try(f[1], c.asked); err != nil || !got {
			t.Errorf("%s: after the first is closed: %v, %v", c.name, got, err)
		}
	}
	_, f := file(t, 1)
	f[0].Close()
	if got, err := Try(f[0], Shared); err == nil || got {
		t.Errorf("a closed file: %v, %v", got, err)
	}
}

// TestWait_NoLongerThanAllowed: a holder that hangs hangs nobody else.
func TestWait_NoLongerThanAllowed(t *testing.T) {
	path, f := file(t, 2)
	if err := Wait(t.Context(), f[0], Exclusive); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Wait(gone, f[1], Shared); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(gone, path, os.O_RDWR, Shared); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- Wait(t.Context(), f[1], Shared) }()
	f[0].Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestOpen_NotWhatWasReplaced: whoever waited for a file that was removed and made
// again meanwhile holds the new one.
func TestOpen_NotWhatWasReplaced(t *testing.T) {
	path, f := file(t, 1)
	if err := Wait(t.Context(), f[0], Exclusive); err != nil {
		t.Fatal(err)
	}
	type result struct {
		f   *os.File
		err error
	}
	opened := make(chan result, 1)
	go func() {
		f, err := Open(t.Context(), path, os.O_RDWR, Exclusive)
		opened <- result{f, err}
	}()
	if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if Names(path, f[0]) {
		t.Error("the old one has the name")
	}
	f[0].Close()
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.f.Close()
	if !Names(path, r.f) {
		t.Error("holds a file that nobody else will find")
	}
}
