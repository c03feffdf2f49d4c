package native

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Warm says how many machines are started before anybody asks for them, for
// requests like those that were made last. The zero value is none.
//
// A machine that waits has empty homes and our init, and nothing of anybody: what
// is of a request (its identity, files, allowlist, lease) comes to it when it is
// claimed. It is claimed by one provision, and never waits again. Activation reads
// back from it what it reads back from any other.
type Warm struct {
	Each     int           // machines that wait for requests of one shape; 0 is no pool
	Shapes   int           // shapes that machines wait for, those that were asked for last; 0 is 4
	Machines int           // machines that wait in all; 0 is as many as those are
	Memory   int64         // bytes that they may hold together, by what their cgroups count; 0 is 512 MiB
	Life     time.Duration // after which one that waits is ended, and a shape that nobody asks for is forgotten; 0 is 10 minutes
	Quiet    time.Duration // for which no provision or activation may have been under way before one is started; 0 is 250 ms
	// Failed is told what could not be started; nil is told nothing. One goroutine
	// calls it.
	Failed func(error)
}

// complete is w with what it leaves open.
// Errors: *sandbox.Invalid.
func (w Warm) complete() (Warm, error) {
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"each", int64(w.Each)}, {"shapes", int64(w.Shapes)}, {"machines", int64(w.Machines)},
		{"memory", w.Memory}, {"life", int64(w.Life)}, {"quiet", int64(w.Quiet)},
	} {
		if f.n < 0 {
			return w, &sandbox.Invalid{Field: "warm." + f.name, Expected: "0 or more", Got: fmt.Sprint(f.n)}
		}
	}
	w.Shapes = orElse(w.Shapes, 4)
	w.Machines = orElse(w.Machines, w.Each*w.Shapes)
	w.Memory = orElse(w.Memory, 512<<20)
	w.Life = orElse(w.Life, 10*time.Minute)
	w.Quiet = orElse(w.Quiet, 250*time.Millisecond)
	if w.Failed == nil {
		w.Failed = func(error) {}
	}
	return w, nil
}

func orElse[T int | int64 | time.Duration](n, otherwise T) T {
	if n == 0 {
		return otherwise
	}
	return n
}

// pool holds the machines that wait, and the goroutine that starts them and ends
// those that nobody claims. A nil pool holds none.
type pool struct {
	p    *Provider
	warm Warm
	stir chan struct{}      // holds a token when there may be something to do, and has room for one
	end  context.CancelFunc // of tend
	done chan struct{}      // closed when tend has ended

	// Under the provider's mu:
	closed  bool
	shapes  []*shape             // asked for last first
	busy    int                  // provisions and activations under way
	since   time.Time            // when the last of them ended
	making  sandbox.InstanceID   // that is being started
	leaving []sandbox.InstanceID // whose end failed, to be tried again
}

// shape is what machines have in common of which any can be given to a request.
type shape struct {
	key     string
	request sandbox.ProvisionRequest // what of a request is of the machine
	asked   time.Time                // last
	ready   []waiting                // that waits longest first
	bytes   int64                    // that the last one of them held
	refused bool                     // one failed: no more before somebody asks again
}

// waiting is one machine that waits.
type waiting struct {
	in    *instance
	bytes int64
	until time.Time
}

// shapeOf is what of a request is of the machine, if one can be started before the
// request is there. One with a link cannot: the link is made for its instance. One
// with a mount inside of a mount cannot: what is staged may lie in its way. A durable
// one cannot: its home can be one that was kept. Nor one with packages: which image
// they are is found when they are asked for.
func shapeOf(r sandbox.ProvisionRequest) (of sandbox.ProvisionRequest, ok bool) {
	switch r.Profile.NetworkPolicy.Mode {
	case sandbox.NetworkNone, sandbox.NetworkAllowlist:
	default:
		return of, false
	}
	if r.Profile.RetentionMode != sandbox.RetentionEphemeralZDR || len(r.Profile.Packages) > 0 {
		return of, false
	}
	all := trees(r.Mounts)
	for _, t := range all {
		if _, nested := parentTree(all, t.guest); nested {
			return of, false
		}
	}
	limits := r.Profile.ResourceLimits
	limits.MaxDurationSeconds = 0 // the commands', not the machine's
	of = sandbox.ProvisionRequest{
		Target: r.Target, Platform: r.Platform, RootImage: r.RootImage, Mounts: []sandbox.Mount{},
		Profile: sandbox.Profile{
			Tier: r.Profile.Tier, BaseImage: r.Profile.BaseImage, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: r.Profile.NetworkPolicy.Mode},
			ResourceLimits: limits, RetentionMode: r.Profile.RetentionMode,
		},
	}
	for _, m := range r.Mounts {
		of.Mounts = append(of.Mounts, sandbox.Mount{MountPath: m.MountPath, Access: m.Access})
	}
	return of, true
}

// keyOf is what two requests of one shape have in common, and no two others.
func keyOf(of sandbox.ProvisionRequest) (string, bool) {
	key, err := canonical.Encode(of)
	return string(key), err == nil
}

// shapeFor is the shape of a request that machines wait for, and its place. The
// caller has the provider's mu.
func (w *pool) shapeFor(key string) (int, *shape) {
	i := slices.IndexFunc(w.shapes, func(s *shape) bool { return s.key == key })
	if i < 0 {
		return i, nil
	}
	return i, w.shapes[i]
}

// learn notes that somebody asked for a machine like this, so that more will wait.
func (w *pool) learn(r sandbox.ProvisionRequest) {
	if w == nil {
		return
	}
	of, ok := shapeOf(r)
	key, encoded := keyOf(of)
	if !ok || !encoded {
		return
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.closed {
		return
	}
	i, s := w.shapeFor(key)
	if s == nil {
		s = &shape{key: key, request: of}
	} else {
		w.shapes = slices.Delete(w.shapes, i, i+1)
	}
	s.asked, s.refused = w.p.opt.Now(), false
	w.shapes = slices.Insert(w.shapes, 0, s)
	w.forget()
}

// forget forgets the shapes of which no machine is wanted and none waits. The
// caller has the provider's mu.
func (w *pool) forget() {
	i := -1
	w.shapes = slices.DeleteFunc(w.shapes, func(s *shape) bool {
		i++
		return len(s.ready) == 0 && !w.wanted(i, s)
	})
}

// wanted reports whether machines wait for a shape at a place in the order.
func (w *pool) wanted(i int, s *shape) bool {
	return i < w.warm.Shapes && w.p.opt.Now().Before(s.asked.Add(w.warm.Life))
}

// each calls visit with every shape and how many of its machines are wanted. The
// caller has the provider's mu.
func (w *pool) each(visit func(s *shape, want int)) {
	left := w.warm.Machines
	for i, s := range w.shapes {
		want := 0
		if w.wanted(i, s) {
			want = min(w.warm.Each, left)
		}
		left -= want
		visit(s, want)
	}
}

// makes reports whether an instance is being started to wait. The caller has the
// provider's mu.
func (w *pool) makes(id sandbox.InstanceID) bool { return w != nil && w.making == id }

// held is how much memory the machines that wait hold. The caller has the
// provider's mu.
func (w *pool) held() (bytes int64) {
	for _, s := range w.shapes {
		for _, r := range s.ready {
			bytes += r.bytes
		}
	}
	return bytes
}

// work notes that a provision or an activation is under way: nothing is started
// beside it that it would have to share the processors with.
func (w *pool) work() (done func()) {
	if w == nil {
		return func() {}
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.busy++
	return func() {
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		w.busy--
		w.since = time.Now()
		w.nudge()
	}
}

// nudge wakes the goroutine that tends the pool.
func (w *pool) nudge() {
	select {
	case w.stir <- struct{}{}:
	default:
	}
}

// Waiting is how many machines wait to be claimed.
func (p *Provider) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	if p.pool != nil {
		for _, s := range p.pool.shapes {
			n += len(s.ready)
		}
	}
	return n
}
