package native

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// B45: a caller gives up at each millisecond of a provision, and at each twelfth of a
// start ten callers release and destroy at once. Each is told something that the
// contract knows, and there is no more on the host than before: no process, mount,
// cgroup, file, link, table, descriptor or goroutine.
func TestRelease_AtEachMomentOfAStart(t *testing.T) {
	_, path := world(t)
	drivers(t, func(t *testing.T, p *Provider) {
		r := unrestricted(opening(p, path))
		nothing := func(when time.Duration) {
			t.Helper()
			if left := census(t, p); len(left) > 0 {
				t.Fatalf("after %s, left:\n%s", when, strings.Join(left, "\n"))
			}
		}
		began := time.Now()
		if err := p.Destroy(t.Context(), activate(t, p, r)); err != nil { // what is made once is made now
			t.Fatal(err)
		}
		moment := max(time.Since(began)/12, time.Millisecond)
		descriptors, routines := held(t)

		for after, done := time.Duration(0), false; !done; after += time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			h, err := p.Provision(ctx, r)
			cancel()
			switch done = err == nil; {
			case done:
				err = p.Destroy(t.Context(), h.Value.InstanceID)
			case errors.Is(err, context.DeadlineExceeded):
				err = nil
			}
			if err != nil {
				t.Errorf("given up after %s: %v", after, err)
			}
			nothing(after)
		}

		for after, done := time.Duration(0), false; !done; after += moment {
			id := provision(t, p, r)
			started := make(chan error, 1)
			go func() {
				_, err := p.Activate(context.Background(), id)
				started <- err
			}()
			select {
			case err := <-started:
				done = true
				started <- err
			case <-time.After(after):
			}
			var all sync.WaitGroup
			for n := range 10 {
				all.Go(func() {
					if n%2 == 0 {
						if err := p.Destroy(t.Context(), id); err != nil {
							t.Errorf("destroy after %s: %v", after, err)
						}
						return
					}
					_, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{})
					early := sandbox.Conflict(sandbox.OpRelease, string(sandbox.StateActive), string(sandbox.StateProvisioning))
					if err != nil && !errors.Is(err, early) && !errors.Is(err, sandbox.NoInstance(sandbox.OpRelease, id)) {
						t.Errorf("release after %s: %v", after, err)
					}
				})
			}
			all.Wait()
			if err := <-started; err != nil {
				if _, typed := errors.AsType[*sandbox.Error](err); !typed {
					t.Errorf("the start that was cut short after %s: %v", after, err)
				}
			}
			nothing(after)
		}
		eventually(t, "no more descriptors and goroutines than before", func() bool {
			d, g := held(t)
			return d <= descriptors+2 && g <= routines+2
		})
	})
}

// held counts what this process holds: its descriptors, of which each link's namespace
// is one, and goroutines.
func held(t *testing.T) (descriptors, routines int) {
	t.Helper()
	runtime.GC()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open), runtime.NumGoroutine()
}
