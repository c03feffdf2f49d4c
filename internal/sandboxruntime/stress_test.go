package sandboxruntime_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// TestLifecycleAndStates_UnderContention drives random members of few
// instances from many goroutines, some of them interrupted, some answered with
// lies. Whatever the order, every error is typed, nothing is rolled back that
// is owned, and after a destroy of all nothing is left.
func TestLifecycleAndStates_UnderContention(t *testing.T) {
	b := newBench(t, func(f *fake) {
		f.lieInstance = func(op sandbox.Operation, i *sandbox.Instance) {
			if op == sandbox.OpProvision && rand.IntN(4) == 0 {
				i.LeaseEpoch++
			}
		}
		f.lieSnapshot = func(op sandbox.Operation, s *sandbox.Snapshot) {
			if rand.IntN(4) == 0 {
				s.WorkspaceID = "w2"
			}
		}
	})
	before := runtime.NumGoroutine()
	var mu sync.Mutex
	var ids []sandbox.InstanceID
	pick := func() sandbox.InstanceID {
		mu.Lock()
		defer mu.Unlock()
		if len(ids) == 0 {
			return "none"
		}
		return ids[rand.IntN(len(ids))]
	}
	members := []func(ctx context.Context, id sandbox.InstanceID) error{
		func(ctx context.Context, _ sandbox.InstanceID) error {
			i, err := b.runtime.Provision(ctx, request(b.fake, durable))
			if err == nil {
				mu.Lock()
				ids = append(ids, i.InstanceID)
				mu.Unlock()
			}
			return err
		},
		func(ctx context.Context, id sandbox.InstanceID) error {
			_, err := b.runtime.Activate(ctx, id)
			return err
		},
		func(ctx context.Context, id sandbox.InstanceID) error {
			_, err := b.runtime.Execute(ctx, id, command)
			return err
		},
		func(ctx context.Context, id sandbox.InstanceID) error {
			return b.runtime.WriteFile(ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/a"})
		},
		func(ctx context.Context, id sandbox.InstanceID) error {
			s, err := b.runtime.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
			if err == nil {
				err = b.runtime.DestroySnapshot(b.ctx, s.SnapshotID)
			}
			return err
		},
		func(ctx context.Context, id sandbox.InstanceID) error {
			r, err := b.runtime.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
			if err == nil {
				err = b.runtime.DestroySnapshot(b.ctx, r.Snapshot.SnapshotID)
			}
			return err
		},
		func(ctx context.Context, id sandbox.InstanceID) error {
			p, err := b.runtime.OpenProcess(ctx, id, program)
			if err == nil {
				err = p.Destroy(b.ctx)
			}
			return err
		},
		func(ctx context.Context, id sandbox.InstanceID) error { return b.runtime.Destroy(ctx, id) },
	}
	// A fake that meets an instance that was destroyed beside the call says so.
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 150 {
				ctx, cancel := context.WithCancel(b.ctx)
				if rand.IntN(10) == 0 {
					cancel()
				}
				err := members[rand.IntN(len(members))](ctx, pick())
				cancel()
				_, adapter := errors.AsType[*sandbox.Error](err)
				_, own := errors.AsType[*sandboxruntime.Error](err)
				if err != nil && !adapter && !own && !errors.Is(err, context.Canceled) {
					t.Errorf("%T: %v", err, err)
				}
			}
		})
	}
	group.Wait()
	for _, id := range ids {
		if err := b.runtime.Destroy(b.ctx, id); err != nil {
			t.Error(err)
		}
	}
	if instances, snapshots := b.alive(); instances != 0 || snapshots != 0 {
		t.Errorf("%d instances and %d snapshots are left", instances, snapshots)
	}
	if n := b.clock.Timers(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
	for _, p := range b.fake.processes {
		p.end(sandbox.Exited(0))
		_ = p.input.Close()
	}
	b.eventually(func() bool { return runtime.NumGoroutine() <= before })
}
