package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// lookEvery is how often a machine that waits is looked at.
const lookEvery = time.Second

// openPool begins to keep machines ready, where the options say so.
// Errors: *sandbox.Invalid.
func (p *Provider) openPool() error {
	warm, err := p.opt.Warm.complete()
	if err != nil || warm.Each == 0 {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	p.pool = &pool{p: p, warm: warm, stir: make(chan struct{}, 1), end: end, done: make(chan struct{})}
	go p.pool.tend(ctx)
	return nil
}

// tend starts machines, one at a time, and ends those that nobody claimed, until it
// is told to end.
func (w *pool) tend(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil {
		for _, id := range w.surplus() {
			w.discard(id)
		}
		s, pause := w.next()
		if s != nil {
			if err := w.fill(ctx, s); err != nil && ctx.Err() == nil {
				w.warm.Failed(fmt.Errorf("start a machine ahead: %w", err))
			}
			continue
		}
		look := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-w.stir:
		case <-look.C:
		}
		look.Stop()
	}
}

// surplus takes out of what waits what ended, has waited too long, or is more than
// is wanted, and adds what could not be ended before.
func (w *pool) surplus() []sandbox.InstanceID {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	ids := w.leaving
	w.leaving = nil
	now := w.p.opt.Now()
	w.each(func(s *shape, want int) {
		var keep []waiting
		for _, r := range s.ready {
			if len(keep) < want && now.Before(r.until) && r.in.machine.Alive() == nil {
				keep = append(keep, r)
				continue
			}
			ids = append(ids, r.in.id)
			w.part(r.in)
		}
		s.ready = keep
	})
	w.forget()
	return ids
}

// next is the shape of which a machine is to be started now, or how long to wait.
func (w *pool) next() (*shape, time.Duration) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	var next *shape
	held, wait := w.held(), time.Hour // nothing can be due before somebody asks
	w.each(func(s *shape, want int) {
		wait = lookEvery
		if next == nil && len(s.ready) < want && !s.refused && held+s.bytes <= w.warm.Memory {
			next = s
		}
	})
	if next == nil {
		return nil, wait
	}
	if w.busy > 0 {
		return nil, lookEvery // whoever works wakes us
	}
	if rest := w.warm.Quiet - time.Since(w.since); rest > 0 {
		return nil, min(rest, lookEvery)
	}
	return next, 0
}

// fill starts one machine of a shape and lets it wait. What fails is ended, and no
// other is started before somebody asks for one of the shape.
func (w *pool) fill(ctx context.Context, s *shape) error {
	p := w.p
	in, bytes, err := w.start(ctx, s)
	if err == nil {
		p.opt.Step("started ahead")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.making = ""
	if in == nil {
		s.refused = true
		return err
	}
	if err == nil && w.held()+bytes > w.warm.Memory {
		err = fmt.Errorf("it holds %d bytes, and all that wait may hold %d", bytes, w.warm.Memory)
	}
	s.bytes = bytes
	if _, there := w.shapeFor(s.key); err != nil || w.closed || there == nil {
		s.refused = true
		w.part(in)
		w.leaving = append(w.leaving, in.id) // for the next look, or Close
		return err
	}
	s.ready = append(s.ready, waiting{in: in, bytes: bytes, until: p.opt.Now().Add(w.warm.Life)})
	return nil
}

// start makes an instance of a shape and starts its machine. An instance that it
// gives with an error is to be ended.
func (w *pool) start(ctx context.Context, s *shape) (in *instance, bytes int64, err error) {
	p := w.p
	p.opt.Step("ahead")
	root, err := p.opt.Images.Rootfs(ctx, string(sandbox.ImageDigest(s.request.RootImage)))
	if err != nil {
		return nil, 0, err
	}
	r := s.request
	// Its owner ends it a minute before anybody else may: a claim in that minute
	// would be of what another process is removing.
	r.ExpiresAt = sandbox.At(p.opt.Now().Add(w.warm.Life + time.Minute))
	in = newInstance(p, newInstanceID(), r, root)
	in.ahead = true
	p.mu.Lock()
	w.making = in.id
	p.mu.Unlock()
	if err := in.allocate(ctx); err != nil {
		return in, 0, err
	}
	spec := in.spec()
	if len(in.posts()) > 0 {
		// The doors come with the claim. Until then the machine's ports lead nowhere.
		if err := os.Mkdir(in.at.egress(), 0o755); err != nil {
			return in, 0, err
		}
		in.addPosts(&spec)
	}
	m, err := p.opt.Driver.Start(ctx, spec)
	if err != nil {
		return in, 0, err
	}
	in.mu.Lock()
	in.machine = m
	in.mu.Unlock()
	seen, err := m.Observe(ctx)
	return in, memoryOf(seen, spec.Limits), err
}

// memoryOf is what the cgroups of a machine count as its memory; where they do not
// say, all that it may use.
func memoryOf(seen machine.Observed, limits machine.Limits) int64 {
	most := int64(-1)
	for _, dir := range seen.CgroupPaths {
		for _, name := range []string{"memory.current", "memory.usage_in_bytes"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				most = max(most, n)
			}
		}
	}
	if most < 0 {
		return limits.MemoryBytes
	}
	return most
}
