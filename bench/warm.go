package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native"
)

func warmRunsc(ctx context.Context, w *world) error { return w.warm(ctx, "runsc") }
func warmRunc(ctx context.Context, w *world) error  { return w.warm(ctx, "runc") }

// warm measures what a machine saves that was started before it was asked for:
// provision, activate and the first execute of one that waited beside one that did
// not. The next is started when the round is over, on nobody's clock and beside
// nobody's round.
func (w *world) warm(ctx context.Context, driver string) (err error) {
	opt := w.options[driver]
	opt.Warm = native.Warm{Each: 1, Quiet: time.Millisecond}
	p, err := native.New(opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var cold, ready phases
	learn := w.freshOf(p, driver, false, &phases{})
	if _, err := learn(ctx); err != nil {
		return err
	}
	if err := untilReady(ctx, p); err != nil {
		return err
	}
	claim := w.freshOf(p, driver, false, &ready)
	got, err := interleave(ctx, w.n, func(ctx context.Context) (time.Duration, error) {
		if p.Waiting() != 1 {
			return 0, errors.New("no machine waits: what is measured is a cold start")
		}
		took, err := claim(ctx)
		return took, errors.Join(err, untilReady(ctx, p))
	}, w.freshOf(w.providers[driver], driver, false, &cold))
	if err != nil {
		return err
	}
	w.rep.note("%s that waited, ms: %s; cold: %s", driver, ready, cold)
	w.rep.add(line{what: driver + ": claim of a machine that waits → activate → first execute", unit: "ms", ours: got[0], rawName: "cold start", raw: got[1], bound: 0.4})
	return nil
}

// untilReady waits until a machine does.
func untilReady(ctx context.Context, p *native.Provider) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for p.Waiting() == 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("no machine waits: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
