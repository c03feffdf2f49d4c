package store

import (
	"errors"
	"testing"
)

// A commit that fails is told to who waits for it and to everybody after them,
// and nothing is committed behind it.
func TestAFailedCommitIsTheLast(t *testing.T) {
	broken := errors.New("broken")
	entered, leave := make(chan struct{}), make(chan struct{})
	commits := 0
	b := NewBatch(func([]Change) error {
		commits++
		close(entered) // a second commit would panic
		<-leave
		return broken
	})
	change := Set(Leases, "l", []byte("1"))
	if err := b.Queue(change); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 2)
	go func() { waited <- b.Sync() }()
	<-entered
	if err := b.Queue(change); err != nil { // pending while the first one runs
		t.Fatal(err)
	}
	go func() { waited <- b.Sync() }()
	close(leave)
	for range 2 {
		if err := <-waited; !errors.Is(err, broken) {
			t.Errorf("waited: %v", err)
		}
	}
	for name, err := range map[string]error{"queue": b.Queue(change), "sync": b.Sync()} {
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if first, err := b.Close(); !first || !errors.Is(err, broken) {
		t.Errorf("close: %v, %v", first, err)
	}
	if commits != 1 {
		t.Errorf("%d commits", commits)
	}
}

// What nobody waits for is committed all the same, and a failure of that is
// remembered.
func TestAChangeThatNobodyWaitsForIsCommitted(t *testing.T) {
	broken := errors.New("broken")
	done := make(chan []Change, 1)
	b := NewBatch(func(all []Change) error {
		done <- all
		return broken
	})
	if err := b.Queue(Set(Leases, "l", []byte("1"))); err != nil {
		t.Fatal(err)
	}
	if all := <-done; len(all) != 1 {
		t.Errorf("%d changes", len(all))
	}
	if _, err := b.Close(); !errors.Is(err, broken) {
		t.Errorf("close: %v", err)
	}
}
