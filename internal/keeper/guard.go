package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// guard is the provider as a session serves it: one machine, for one lease, that
// expires with the session. It knows that machine, and when it is gone.
type guard struct {
	sandbox.Provider
	in   Inputs
	hold func(sandbox.Instance) error // makes it known on disk
	// settled makes known on disk what a release has kept of a machine.
	settled func(context.Context, *sandbox.Instance, sandbox.Snapshot) error
	// leaving makes known that a release has kept all, until then, and could not
	// remove the machine.
	leaving func(until sandbox.Timestamp)
	// left is how long the session lasts; past that there is nothing to be kept.
	left func() time.Duration
	log  func(error)
	// liveReleaser releases the machine with its processes; nil where it is not live.
	liveReleaser LiveReleaser

	releasing chan struct{} // its token: one release at a time, to its end

	mu      sync.Mutex
	busy    bool // a machine is being made
	ending  bool // no machine is made any more
	machine *sandbox.Instance
	live    *live
	why     error         // the last failure to make one, in the provider's words
	gone    chan struct{} // closed when the machine that was there is not any more
	changed func()        // called when live changes
}

func newGuard(p sandbox.Provider, in Inputs, hold func(sandbox.Instance) error, log func(error)) *guard {
	return &guard{
		Provider: p, in: in, hold: hold, log: log, gone: make(chan struct{}), changed: func() {},
		left: func() time.Duration { return quietBound }, leaving: func(sandbox.Timestamp) {}, releasing: make(chan struct{}, 1),
	}
}

// What a Conflict says where the session has its machine already.
const (
	expectedNone = "no machine in this session"
	actualOne    = "one, or one being made, or an end"
)

// admit claims the place of the session's machine.
func (g *guard) admit(op sandbox.Operation, r sandbox.ProvisionRequest) error {
	for _, c := range []struct{ field, want, got string }{
		{"session_id", g.in.SessionID, r.SessionID}, {"lease_id", g.in.LeaseID, r.LeaseID},
	} {
		if c.got != c.want {
			return sandbox.Conflict(op, c.field+" "+c.want, c.field+" "+c.got)
		}
	}
	if r.ExpiresAt != g.in.ExpiresAt { // else its end would not be the session's
		return sandbox.Conflict(op, "expires_at "+string(g.in.ExpiresAt), "expires_at "+string(r.ExpiresAt))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy || g.ending || g.machine != nil {
		return sandbox.Conflict(op, expectedNone, actualOne)
	}
	g.busy = true
	return nil
}

// make allocates the machine, and makes it known before its caller hears of it.
func (g *guard) make(ctx context.Context, op sandbox.Operation, r sandbox.ProvisionRequest, do func() (sandbox.Handoff[sandbox.Instance], error)) (sandbox.Handoff[sandbox.Instance], error) {
	var none sandbox.Handoff[sandbox.Instance]
	if err := g.admit(op, r); err != nil {
		return none, err
	}
	h, err := do()
	g.mu.Lock()
	g.busy = false
	late := g.ending
	if err == nil {
		g.machine = &h.Value // also one that is late: end has to find it where its rollback fails
	}
	g.mu.Unlock()
	if err != nil {
		g.failed(err)
		return none, err
	}
	if late {
		err = sandbox.Conflict(op, expectedNone, actualOne)
	} else {
		err = g.held(op)
	}
	h.Rollback = g.undo(h.Value.InstanceID, h.Rollback)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownBound)
		defer cancel()
		if undone := h.Rollback(undo); undone != nil {
			g.log(undone) // run tries again, and keeps the record until it is gone
		}
		return none, err
	}
	return h, nil
}

// held writes down what there is.
func (g *guard) held(op sandbox.Operation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.machine == nil {
		return sandbox.NoInstance(op, "")
	}
	if err := g.hold(*g.machine); err != nil {
		g.why = err
		return sandbox.Failed(op, sandbox.ReasonProviderError, err)
	}
	return nil
}

// undo is a rollback after which the machine is gone.
func (g *guard) undo(id sandbox.InstanceID, rollback func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := rollback(ctx)
		if err == nil {
			g.went(id)
		}
		return err
	}
}

// went notes that a machine is gone: the session ends with it.
func (g *guard) went(ids ...sandbox.InstanceID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		if g.machine != nil && g.machine.InstanceID == id {
			g.machine, g.ending = nil, true
			close(g.gone)
		}
	}
}

// failed keeps the words of a failure: a wire carries its name alone.
func (g *guard) failed(err error) {
	g.log(err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why = err
}

// end destroys the machine, if there is one, and lets none be made any more.
func (g *guard) end(ctx context.Context) error {
	g.mu.Lock()
	g.ending = true
	m := g.machine
	g.mu.Unlock()
	if m == nil {
		return nil
	}
	return g.Destroy(ctx, m.InstanceID)
}

// instance is the machine; nil where there is none.
func (g *guard) instance() *sandbox.Instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine
}

func (g *guard) lastFailure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// Provision makes the session's machine.
func (g *guard) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return g.make(ctx, sandbox.OpProvision, r, func() (sandbox.Handoff[sandbox.Instance], error) { return g.Provider.Provision(ctx, r) })
}

// Resume makes the session's machine out of a snapshot.
func (g *guard) Resume(ctx context.Context, r sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
	return g.make(ctx, sandbox.OpResume, r.Request, func() (sandbox.Handoff[sandbox.Instance], error) { return g.Provider.Resume(ctx, r) })
}

// Activate is the provider's; its rollback is the end of the machine.
func (g *guard) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	h, err := g.Provider.Activate(ctx, id)
	if err != nil {
		g.failed(err)
		return h, err
	}
	h.Rollback = g.undo(id, h.Rollback)
	g.mu.Lock()
	if g.machine != nil && g.machine.InstanceID == id {
		g.machine = &h.Value
	}
	g.mu.Unlock()
	return h, nil
}

// Snapshot is the provider's. Why one could not be made is written down: a wire
// carries its name alone.
func (g *guard) Snapshot(ctx context.Context, id sandbox.InstanceID, r sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	h, err := g.Provider.Snapshot(ctx, id, r)
	if err != nil {
		g.log(err)
	}
	return h, err
}

// Destroy is the provider's, and the end of the session.
func (g *guard) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	err := g.Provider.Destroy(ctx, id)
	if err == nil {
		g.went(id)
	}
	return err
}

// Cleanup is a sweep of this session alone: whoever has its token has no business with
// other sessions' machines, at whatever time they say it is. It takes the machine past
// its deadline. A snapshot is the record's, or was handed to a caller, who destroys it.
// Source: contract "Cleanup and pinning".
func (g *guard) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	swept := sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
	if err := r.Validate(); err != nil {
		return swept, sandbox.Failed(sandbox.OpCleanup, sandbox.ReasonInvalidRequest, err)
	}
	m := g.instance()
	if m == nil || r.Now.Before(m.ExpiresAt) {
		return swept, nil
	}
	if err := g.Destroy(ctx, m.InstanceID); err != nil {
		g.log(err)
		return swept, sandbox.Failed(sandbox.OpCleanup, sandbox.ReasonProviderError, err)
	}
	swept.InstanceIDs = append(swept.InstanceIDs, m.InstanceID)
	return swept, nil
}

// Optional is the provider's; the guard knows the live process besides.
func (g *guard) Optional() sandbox.Optional {
	o := g.Provider.Optional()
	if o.OpenProcess != nil {
		o.OpenProcess = opener{g, o.OpenProcess}
	}
	return o
}

type opener struct {
	g     *guard
	inner sandbox.ProcessOpener
}

// OpenProcess is the provider's.
func (o opener) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	p, err := o.inner.OpenProcess(ctx, id, processID, r)
	if err != nil {
		return nil, err
	}
	l := &live{p, o.g}
	o.g.setLive(l, true)
	return l, nil
}

// live is the session's live process: a machine has one at a time.
type live struct {
	sandbox.Process
	g *guard
}

// Wait is the process's.
func (l *live) Wait(ctx context.Context) (sandbox.Exit, error) {
	e, err := l.Process.Wait(ctx)
	if err == nil {
		l.g.setLive(l, false)
	}
	return e, err
}

// Destroy is the process's.
func (l *live) Destroy(ctx context.Context) error {
	err := l.Process.Destroy(ctx)
	if err == nil {
		l.g.setLive(l, false)
	}
	return err
}

func (g *guard) setLive(l *live, lives bool) {
	g.mu.Lock()
	switch {
	case lives:
		g.live = l
	case g.live == l:
		g.live = nil
	default:
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	g.changed()
}

func (g *guard) process() *live {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live
}

// errNotActive says that a starter wanted to keep what is not ready.
var errNotActive = errors.New("it has no machine that runs")
