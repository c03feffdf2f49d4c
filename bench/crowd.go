package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// idlersAtOnce live at the same time, first ours and then raw containers.
const idlersAtOnce = 150

func crowdRunsc(ctx context.Context, w *world) error { return w.crowd(ctx, "runsc") }
func crowdRunc(ctx context.Context, w *world) error  { return w.crowd(ctx, "runc") }

// crowd has 150 sandboxes at once that have run a command each and then do nothing,
// and says what each holds of the memory, beside as many raw containers that sleep.
// Theirs is the root and home of one machine, which is there already; ours have their
// own each, an init, an owner and a timer.
func (w *world) crowd(ctx context.Context, driver string) (err error) {
	// What is made once for all is there before, and the raw ones are made like it.
	like, first, err := w.active(ctx, driver)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first()); reapOrphans() }()
	ours, err := w.idlers(ctx, func() (string, func() error, error) {
		id, end, err := w.active(ctx, driver)
		if err == nil {
			err = w.run(ctx, driver, id, "/bin/true")
		}
		return string(id), end, err
	})
	if err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	raw, err := w.idlers(ctx, func() (string, func() error, error) {
		id, err := w.rawStart(ctx, driver, like)
		if err != nil {
			return "", nil, err
		}
		return id, func() error { return w.rawEnd(context.WithoutCancel(ctx), driver, id) }, nil
	})
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	name := fmt.Sprintf("%s: %d idle sandboxes at once, ", driver, idlersAtOnce)
	rawName := driver + " run"
	w.rep.add(
		line{what: name + "memory of each", unit: "MB", ours: samples{ours.memory}, rawName: rawName, raw: samples{raw.memory}, note: "ours: " + ours.note + "; raw: " + raw.note},
		line{what: name + "by MemAvailable", unit: "MB", ours: samples{ours.available}, rawName: rawName, raw: samples{raw.available}},
		line{what: name + "idle CPU of each", unit: "% of a core", ours: samples{ours.cpu}, rawName: rawName, raw: samples{raw.cpu}},
		line{what: name + "until all are up, each", unit: "ms", ours: samples{ours.start}, rawName: rawName, raw: samples{raw.start}},
	)
	return nil
}

// idling is what one of many idle sandboxes costs.
type idling struct {
	memory, available float64 // MB
	cpu               float64 // % of a core
	start             float64 // ms, of the time until all were up
	note              string
}

// idlers makes all of them, two at a time, measures, and ends them.
func (w *world) idlers(ctx context.Context, begin func() (id string, end func() error, err error)) (cost idling, err error) {
	ids, ends := make([]string, idlersAtOnce), make([]func() error, idlersAtOnce)
	defer func() {
		err = errors.Join(err, each(func(i int) error {
			if ends[i] == nil {
				return nil
			}
			return ends[i]()
		}))
		reapOrphans()
	}()
	availableBefore, ownBefore := available(ctx), ownPSS()
	began := time.Now()
	err = each(func(i int) (err error) {
		if err = ctx.Err(); err == nil {
			ids[i], ends[i], err = begin()
		}
		return err
	})
	if err != nil {
		return cost, err
	}
	took, availableAfter, ownAfter := time.Since(began), available(ctx), ownPSS()
	f := w.footprint(ids)
	cpu, own := sumCPU(f.pids), ownCPU()
	if err := pause(ctx, idleSeconds*time.Second); err != nil {
		return cost, err
	}
	const count, mb = idlersAtOnce, 1e6
	return idling{
		memory:    (f.processes + f.kernel + ownAfter - ownBefore) / count / mb,
		available: (availableBefore - availableAfter) / count / mb,
		cpu:       100 * (sumCPU(f.pids) - cpu + ownCPU() - own).Seconds() / idleSeconds / count,
		start:     millis(took) / count,
		note: fmt.Sprintf("PSS of %sour own process %.2f; kernel %.2f; its memory cgroup says %.2f",
			shares(f.parts, count*mb), (ownAfter-ownBefore)/count/mb, f.kernel/count/mb, f.charged/count/mb),
	}, nil
}

// each does something for all of them, two at a time; what fails keeps the others not.
func each(do func(i int) error) error {
	failed := make([]error, idlersAtOnce)
	var next atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for i := next.Add(1) - 1; i < idlersAtOnce; i = next.Add(1) - 1 {
				failed[i] = do(int(i))
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}
