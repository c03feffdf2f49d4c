package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// What a fork copies from is in use while its process lives, and a leftover after that.
func TestTheMarkOfAFork(t *testing.T) {
	dir := stateDir(t)
	h, err := Reserve(dir, Record{SessionID: "s", Provider: "memory", ExpiresAt: inAnHour(), KeepMillis: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Discard()
	const until = sandbox.Timestamp("2030-01-01T00:00:00.123Z")
	begin := func(from sandbox.SnapshotID) *Fork {
		t.Helper()
		f, err := BeginFork(dir, "s", until)
		if err == nil && from != "" {
			err = f.From(from)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	marks := func(running bool, cutOff ...sandbox.SnapshotID) *Forks {
		t.Helper()
		f, err := TakeForks(dir, "s")
		if err != nil {
			t.Fatal(err)
		}
		var from []sandbox.SnapshotID
		for _, c := range f.CutOff {
			if from = append(from, c.From); c.Until != until || time.Since(c.Since).Abs() > time.Hour {
				t.Errorf("%+v", c)
			}
		}
		slices.Sort(from)
		if f.Running != running || !slices.Equal(from, cutOff) {
			t.Errorf("%+v, want %v, %q", f, running, cutOff)
		}
		return f
	}
	whole, cut, early, left := begin("a"), begin("b"), begin(""), begin("c")
	err = errors.Join(marks(true).Close(), cut.mark.Close(), early.mark.Close(), left.Leave())
	first := marks(true, "", "b", "c")
	second := marks(true) // they are in other hands
	err = errors.Join(err, second.Remove(), first.Close(), marks(true, "", "b", "c").Remove(), marks(true).Close(), whole.Close(), marks(false).Remove())
	if found, _ := os.ReadDir(placeOf(dir, "s").dir); err != nil || len(found) != 2 { // lock and record
		t.Errorf("%v, %v", found, err)
	}

	var none *sandbox.Invalid
	if _, err := BeginFork(dir, "../s", until); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	if _, err := TakeForks(dir, "../s"); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	if _, err := BeginFork(dir, "t", until); !NotFound.Is(err) {
		t.Errorf("%v", err)
	}
	if f, err := TakeForks(dir, "t"); err != nil || f.Running || len(f.CutOff) > 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// What the version before this one wrote, and what a mark may be where its writer died.
func TestReadMark(t *testing.T) {
	for text, want := range map[string]CutOff{
		"":                             {},
		"snap":                         {From: "snap"},
		"until 2030-01-01T00:00:00.1Z": {Until: "2030-01-01T00:00:00.1Z"},
		"until x\nsnap":                {Until: "x", From: "snap"},
	} {
		path := filepath.Join(t.TempDir(), "mark")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		mark, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readMark(mark)
		if want.Since = got.Since; err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		mark.Close()
	}
}
