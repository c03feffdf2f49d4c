package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// claim gives a request a machine that waits for one like it, as an instance in
// provisioning; nil where none does. Whatever is wrong with one it ends, and what is
// wrong with the request the cold way finds too, and tells.
func (p *Provider) claim(ctx context.Context, r sandbox.ProvisionRequest) *instance {
	for {
		in, settled := p.pool.take(ctx, r)
		if in == nil {
			return nil
		}
		unfit := in.unfit()
		err := unfit
		if err == nil {
			p.opt.Step("claimed")
			err = in.enroll(ctx)
		}
		if ending := settled(); err == nil && !ending {
			return in
		}
		p.pool.discard(in.id)
		if unfit == nil {
			return nil
		}
	}
}

// take takes the machine that waits longest for a request of this shape, and gives
// it to the request: from here on it is the instance of nobody else. A removal cuts
// short what follows and waits for it until settled is called, which says whether
// one is under way.
func (w *pool) take(ctx context.Context, r sandbox.ProvisionRequest) (in *instance, settled func() (ending bool)) {
	if w == nil {
		return nil, nil
	}
	of, ok := shapeOf(r)
	key, encoded := keyOf(of)
	if !ok || !encoded {
		return nil, nil
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	_, s := w.shapeFor(key)
	if s == nil {
		return nil, nil
	}
	// A host that slept has a wall clock, by which sweeps go, far ahead of the one by
	// which a waiting machine's life is counted.
	now := sandbox.At(w.p.opt.Now())
	i := slices.IndexFunc(s.ready, func(r waiting) bool { return now.Before(r.in.request.ExpiresAt) })
	if i < 0 {
		return nil, nil
	}
	in = s.ready[i].in
	s.ready = slices.Delete(s.ready, i, i+1)
	in.request, in.digest = r, profileDigest(r.Profile)
	moving := &activation{cancel: func() {}, done: make(chan struct{})}
	in.mu.Lock()
	in.moving = moving
	in.mu.Unlock()
	w.p.instances[in.id] = in
	return in, func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.moving = nil
		close(moving.done)
		return in.ending
	}
}

// unfit says why a machine that waited cannot be given to anybody: it ended, or
// something lies where a session's files will be, which nothing can have put there.
func (in *instance) unfit() error {
	in.mu.Lock()
	m := in.machine
	in.mu.Unlock()
	if err := m.Alive(); err != nil {
		return err
	}
	for _, t := range in.trees {
		path := filepath.Join(in.at.home(), t.home)
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("%s: expected nothing in it, got %d entries", path, len(entries))
		}
	}
	return nil
}

// enroll makes a machine that waited the request's own: what its guard and its relay
// will be told, and on disk whose it is. Until that is there the record says that it
// waits, and a sweep takes it for what it is to everybody else: nobody's.
func (in *instance) enroll(ctx context.Context) (err error) {
	if in.guarded() {
		if in.policy, err = in.p.compile(in.id, in.request); err != nil {
			return err
		}
	}
	if err := in.takeLease(ctx); err != nil {
		return err
	}
	if err := in.at.rewrite(in.record(false)); err != nil {
		return err
	}
	in.p.opt.Step("enrolled")
	return ctx.Err()
}

// begin starts the machine, or is the one that was started ahead. Of one that ended
// since it was claimed another is started, as if none had waited.
func (in *instance) begin(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	in.mu.Lock()
	m := in.machine
	in.mu.Unlock()
	if m != nil {
		if m.Alive() == nil {
			return m, nil
		}
		if err := m.Destroy(ctx); err != nil {
			return nil, err
		}
		in.mu.Lock()
		in.machine = nil
		in.mu.Unlock()
	}
	return in.bringUp(ctx, spec)
}

// pull makes an instance that waits one of the provider's, whose end can be asked
// for. The caller has the provider's mu.
func (w *pool) pull(id sandbox.InstanceID) {
	if w == nil {
		return
	}
	for _, s := range w.shapes {
		for i, r := range s.ready {
			if r.in.id == id {
				s.ready = append(s.ready[:i:i], s.ready[i+1:]...)
				w.part(r.in)
				return
			}
		}
	}
}

// part makes what waited an instance that only its end is left for. The caller has
// the provider's mu.
func (w *pool) part(in *instance) {
	in.mu.Lock()
	in.ending = true
	in.mu.Unlock()
	w.p.instances[in.id] = in
}

// discard ends an instance that nobody was told of. What fails is tried again by
// who tends the pool.
func (w *pool) discard(id sandbox.InstanceID) {
	ctx, cancel := context.WithTimeout(context.Background(), sandbox.RollbackSeconds*time.Second)
	defer cancel()
	if err := w.p.Destroy(ctx, id); err != nil {
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		w.leaving = append(w.leaving, id)
	}
}

// Close ends the machines that wait, and starts no more; without any it does
// nothing. Instances are not touched. It may be called again, and waits for what it
// ends no longer than a rollback may take for each.
// Errors: what could not be ended, which a sweep then can when this process is gone.
func (p *Provider) Close() error {
	w := p.pool
	if w == nil {
		return nil
	}
	p.mu.Lock()
	w.closed = true
	p.mu.Unlock()
	w.end()
	<-w.done
	p.mu.Lock()
	ids := w.leaving
	for _, s := range w.shapes {
		for _, r := range s.ready {
			ids = append(ids, r.in.id)
			w.part(r.in)
		}
	}
	w.leaving, w.shapes = nil, nil
	p.mu.Unlock()
	var failures []error
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(context.Background(), sandbox.RollbackSeconds*time.Second)
		if err := p.Destroy(ctx, id); err != nil {
			failures = append(failures, fmt.Errorf("a machine that waited: %w", err))
		}
		cancel()
	}
	return errors.Join(failures...)
}
