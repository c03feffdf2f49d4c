package snapshot

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestJoint_BeginsAfterItWasAsked: as the sync of a directory, a call serves whoever
// made their change before it began, and nobody else.
func TestJoint_BeginsAfterItWasAsked(t *testing.T) {
	var j joint
	var changes, synced atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				mine := changes.Add(1)
				err := j.do(func() error {
					synced.Store(changes.Load())
					return nil
				})
				if have := synced.Load(); err != nil || have < mine {
					t.Errorf("change %d is not among %d that are synced, %v", mine, have, err)
				}
			}
		})
	}
	group.Wait()
}

// TestJoint_OneForAllWhoWait, and its error is everybody's.
func TestJoint_OneForAllWhoWait(t *testing.T) {
	var j joint
	begun, goOn, failed := make(chan struct{}), make(chan struct{}), errors.New("failed")
	var group sync.WaitGroup
	group.Go(func() {
		if err := j.do(func() error { close(begun); <-goOn; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-begun
	const many = 10
	var calls, asking atomic.Int64
	for range many {
		group.Go(func() {
			asking.Add(1)
			if err := j.do(func() error { calls.Add(1); return failed }); err != failed {
				t.Error(err)
			}
		})
	}
	for asking.Load() < many {
		runtime.Gosched()
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls beside the one under way", n)
	}
	close(goOn)
	group.Wait()
	if n := calls.Load(); n < 1 || n > many {
		t.Errorf("%d calls", n)
	}
}
