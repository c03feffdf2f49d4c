package keeper

import (
	"errors"
	"os"
	"slices"
	"testing"

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
	begin := func(from sandbox.SnapshotID) *Fork {
		t.Helper()
		f, err := BeginFork(dir, "s")
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
		slices.Sort(f.CutOff)
		if f.Running != running || !slices.Equal(f.CutOff, cutOff) {
			t.Errorf("%+v, want %v, %q", f, running, cutOff)
		}
		return f
	}
	whole, cut, early, left := begin("a"), begin("b"), begin(""), begin("c")
	err = errors.Join(marks(true).Close(), cut.mark.Close(), early.mark.Close(), left.Leave())
	first := marks(true, "b", "c")
	second := marks(true) // they are in other hands
	err = errors.Join(err, second.Remove(), first.Close(), marks(true, "b", "c").Remove(), marks(true).Close(), whole.Close(), marks(false).Remove())
	if found, _ := os.ReadDir(placeOf(dir, "s").dir); err != nil || len(found) != 2 { // lock and record
		t.Errorf("%v, %v", found, err)
	}

	var none *sandbox.Invalid
	if _, err := BeginFork(dir, "../s"); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	if _, err := TakeForks(dir, "../s"); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	if _, err := BeginFork(dir, "t"); !NotFound.Is(err) {
		t.Errorf("%v", err)
	}
	if f, err := TakeForks(dir, "t"); err != nil || f.Running || len(f.CutOff) > 0 {
		t.Errorf("%+v, %v", f, err)
	}
}
