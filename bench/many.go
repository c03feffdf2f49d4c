package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// crowd is how many sandboxes manyAtOnce has at the same time.
const crowd = 50

// manyAtOnce provisions, activates and uses 50 sandboxes side by side; all of
// them live at the same time, none may fail.
func manyAtOnce(ctx context.Context, w *world) error {
	var first error // of the failures
	for _, driver := range []string{"runsc", "runc"} {
		p := w.providers[driver]
		var mu sync.Mutex
		var took samples
		var ids []sandbox.InstanceID
		var failures []error
		var all sync.WaitGroup
		begin := time.Now()
		for range crowd {
			all.Go(func() {
				start := time.Now()
				id, _, err := w.active(ctx, driver)
				if err == nil {
					err = w.run(ctx, driver, id, "/bin/true")
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, millis(time.Since(start)))
				failures = append(failures, err)
				if id != "" {
					ids = append(ids, id)
				}
			})
		}
		all.Wait()
		wall := millis(time.Since(begin))
		begin = time.Now()
		for _, id := range ids {
			all.Go(func() {
				err := p.Destroy(context.WithoutCancel(ctx), id)
				mu.Lock()
				failures = append(failures, err)
				mu.Unlock()
			})
		}
		all.Wait()
		down := millis(time.Since(begin))
		failed := samples{0}
		for _, err := range failures {
			if err != nil {
				first = cmp.Or(first, fmt.Errorf("%s: %w", driver, err))
				failed[0]++
			}
		}
		if ctx.Err() != nil {
			return errors.Join(first, ctx.Err())
		}
		w.rep.add(
			line{what: fmt.Sprintf("%s: failures of %d sandboxes at once", driver, crowd), unit: "failures", ours: failed, strict: true},
			line{what: fmt.Sprintf("%s: each of %d at once", driver, crowd), note: fmt.Sprintf("slowest %.0f ms, all up in %.0f ms, all gone in %.0f ms", took.max(), wall, down), unit: "ms", ours: took},
		)
	}
	return first
}
