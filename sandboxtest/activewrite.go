package sandboxtest

import (
	"context"
	"path"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// activeWriteFaults are wrong in a write to an active mount.
func activeWriteFaults() []Saboteur {
	return []Saboteur{
		{ID: "W1", Fault: "half of a batch that failed is visible", Kills: "active-write.all-or-nothing/nothing", Wrap: transactions(publishesHalf)},
		{ID: "W1e", Fault: "a batch that failed is reported as published", Kills: "active-write.all-or-nothing/refused", Wrap: transactions(hidesFailure)},
		{ID: "W2", Fault: "a dispatch rolls back another's open journal", Kills: "active-write.leaves-others/dispatch", Wrap: transactions(rollsBackOthers)},
		{ID: "W3", Fault: "an abortion rolls back what was committed", Kills: "active-write.committed-stays/files", Wrap: transactions(rollsBackCommitted)},
		{ID: "W3n", Fault: "an abortion of what was committed is a success", Kills: "active-write.committed-stays/refused", Wrap: transactions(abortsCommitted)},
		{ID: "W6", Fault: "a batch is dispatched before the marker", Kills: "active-write.marker-first/journal", Wrap: transactions(marksLate)},
		{ID: "W6t", Fault: "the marker is called twice", Kills: "active-write.marker-first/once", Wrap: transactions(marksTwice)},
		{ID: "W6n", Fault: "the marker is not called", Kills: "active-write.marker-first/once", Wrap: transactions(marksNever)},
		{ID: "W7", Fault: "a mount above gives a right in a sealed one", Kills: "active-write.deepest-mount/sealed", Wrap: accepts(belowSealed)},
		{ID: "W7o", Fault: "a mount above gives a right in another below it", Kills: "active-write.deepest-mount/two-mounts", Wrap: accepts(acrossMounts)},
		{ID: "W8", Fault: "a published file loses its permission to be executed", Kills: "active-write.publishes/executable", Wrap: transactions(losesExecutable)},
		{ID: "W9", Fault: "an instance stays paused when a batch has been published", Kills: "active-write.publishes/runs", Wrap: pausedByWrite},
		{ID: "W10", Fault: "an aborted transaction can be dispatched", Kills: "active-write.abort-drops/refused", Wrap: transactions(abortsNothing)},
		{ID: "W11", Fault: "aborting again is an error", Kills: "active-write.abort-idempotent/again", Wrap: transactions(abortsOnce)},
		{ID: "W12", Fault: "a target outside every mount is accepted", Kills: "active-write.inside-mount/no-mount", Wrap: accepts(outsideMounts)},
		{ID: "W13", Fault: "a target below another is accepted", Kills: "active-write.ancestor-conflict/refused", Wrap: accepts(belowEachOther)},
	}
}

// pendingActiveWrites wait for a journal and a pause that can be looked at.
func pendingActiveWrites() []Pending {
	return []Pending{
		{"W4", "unpauses a pause it did not make", "no member shows who paused an instance; a test of a provider that pauses can"},
		{"W5", "bodies on the host's disk for zero data retention", "no member shows the host's disk; a test of a provider on this host can"},
	}
}

// transaction is one of which single members are replaced.
type transaction struct {
	sandbox.ActiveWrite
	stage    func(ctx context.Context, f sandbox.FileWrite) error
	dispatch func(ctx context.Context, marker func()) error
	abort    func(ctx context.Context) error
}

func (w *transaction) Stage(ctx context.Context, f sandbox.FileWrite) error {
	if w.stage != nil {
		return w.stage(ctx, f)
	}
	return w.ActiveWrite.Stage(ctx, f)
}

func (w *transaction) Dispatch(ctx context.Context, marker func()) error {
	if w.dispatch != nil {
		return w.dispatch(ctx, marker)
	}
	return w.ActiveWrite.Dispatch(ctx, marker)
}

func (w *transaction) Abort(ctx context.Context) error {
	if w.abort != nil {
		return w.abort(ctx)
	}
	return w.ActiveWrite.Abort(ctx)
}

// begun is what a fault may use of one transaction.
type begun struct {
	p       sandbox.Provider
	writer  sandbox.ActiveWriter
	env     *Env
	id      sandbox.InstanceID
	targets []string
	right   sandbox.ActiveWrite // the one inside
	open    *openWrites
}

// openWrites are the transactions that have been begun, by instance.
type openWrites struct {
	mu  sync.Mutex
	all map[sandbox.InstanceID][]sandbox.ActiveWrite
}

func (o *openWrites) of(id sandbox.InstanceID) []sandbox.ActiveWrite {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all[id])
}

// alone publishes one file in a transaction of its own.
func (b begun) alone(ctx context.Context, f sandbox.FileWrite) {
	w, err := b.writer.BeginActiveWrite(ctx, b.id, []string{f.Path})
	if err == nil && w.Stage(ctx, f) == nil && w.Dispatch(ctx, func() {}) == nil {
		b.env.Fire()
	}
}

// transactions replaces members of every transaction.
func transactions(change func(b begun, w *transaction)) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		open := &openWrites{all: map[sandbox.InstanceID][]sandbox.ActiveWrite{}}
		return Override{Provider: p, Members: func(o *sandbox.Optional) {
			writer := o.ActiveWrite
			if writer == nil {
				return
			}
			o.ActiveWrite = BeginActiveWriteFunc(func(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
				right, err := writer.BeginActiveWrite(ctx, id, targets)
				if err != nil {
					return nil, err
				}
				open.mu.Lock()
				open.all[id] = append(open.all[id], right)
				open.mu.Unlock()
				w := &transaction{ActiveWrite: right}
				change(begun{p, writer, env, id, slices.Clone(targets), right, open}, w)
				return w, nil
			})
		}}
	}
}

func publishesHalf(b begun, w *transaction) {
	var first *sandbox.FileWrite
	w.stage = func(ctx context.Context, f sandbox.FileWrite) error {
		err := b.right.Stage(ctx, f)
		if err == nil && first == nil {
			first = &f
		}
		return err
	}
	w.dispatch = func(ctx context.Context, marker func()) error {
		marked := false
		err := b.right.Dispatch(ctx, func() { marked = true; marker() })
		if err != nil && marked && first != nil {
			b.alone(ctx, *first)
		}
		return err
	}
}

func hidesFailure(b begun, w *transaction) {
	w.dispatch = func(ctx context.Context, marker func()) error {
		marked := false
		err := b.right.Dispatch(ctx, func() { marked = true; marker() })
		if err != nil && marked {
			b.env.Fire()
			return nil
		}
		return err
	}
}

func rollsBackOthers(b begun, w *transaction) {
	w.dispatch = func(ctx context.Context, marker func()) error {
		for _, other := range b.open.of(b.id) {
			if state, _ := other.Inspect(ctx); other != b.right && state == sandbox.JournalOpen {
				b.env.Fire()
				_ = other.Abort(ctx)
			}
		}
		return b.right.Dispatch(ctx, marker)
	}
}

func rollsBackCommitted(b begun, w *transaction) {
	var before []byte
	w.dispatch = func(ctx context.Context, marker func()) error {
		s, err := b.p.Execute(ctx, b.id, script("cat "+b.targets[0]))
		if err == nil {
			before = s.Stdout
		}
		return b.right.Dispatch(ctx, marker)
	}
	w.abort = func(ctx context.Context) error {
		if state, _ := b.right.Inspect(ctx); state == sandbox.JournalCommitted {
			b.alone(ctx, sandbox.FileWrite{Path: b.targets[0], Content: before})
		}
		return b.right.Abort(ctx)
	}
}

func abortsCommitted(b begun, w *transaction) {
	w.abort = func(ctx context.Context) error {
		if state, _ := b.right.Inspect(ctx); state == sandbox.JournalCommitted {
			b.env.Fire()
			return nil
		}
		return b.right.Abort(ctx)
	}
}

func marksLate(b begun, w *transaction) {
	w.dispatch = func(ctx context.Context, marker func()) error {
		err := b.right.Dispatch(ctx, func() {})
		if err == nil {
			b.env.Fire()
			marker()
		}
		return err
	}
}

func marksTwice(b begun, w *transaction) {
	w.dispatch = func(ctx context.Context, marker func()) error {
		return b.right.Dispatch(ctx, func() { marker(); b.env.Fire(); marker() })
	}
}

func marksNever(b begun, w *transaction) {
	w.dispatch = func(ctx context.Context, _ func()) error {
		return b.right.Dispatch(ctx, b.env.Fire)
	}
}

func losesExecutable(b begun, w *transaction) {
	w.stage = func(ctx context.Context, f sandbox.FileWrite) error {
		if f.Executable {
			b.env.Fire()
		}
		f.Executable = false
		return b.right.Stage(ctx, f)
	}
}

func abortsNothing(b begun, w *transaction) {
	w.abort = func(ctx context.Context) error {
		if state, _ := b.right.Inspect(ctx); state == sandbox.JournalOpen {
			b.env.Fire()
			return nil
		}
		return b.right.Abort(ctx)
	}
}

func abortsOnce(b begun, w *transaction) {
	w.abort = func(ctx context.Context) error {
		if state, _ := b.right.Inspect(ctx); state == sandbox.JournalRolledBack {
			b.env.Fire()
			return sandbox.Conflict(sandbox.OpBeginActiveWrite, string(sandbox.JournalOpen), string(state))
		}
		return b.right.Abort(ctx)
	}
}

func pausedByWrite(p sandbox.Provider, env *Env) sandbox.Provider {
	var paused sync.Map
	o := transactions(func(b begun, w *transaction) {
		w.dispatch = func(ctx context.Context, marker func()) error {
			err := b.right.Dispatch(ctx, marker)
			if err == nil {
				paused.Store(b.id, true)
			}
			return err
		}
	})(p, env).(Override)
	o.ExecuteFunc = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		if _, ok := paused.Load(id); ok {
			env.Fire()
			return sandbox.Settlement{}, sandbox.Conflict(sandbox.OpExecute, string(sandbox.StateActive), sandbox.ActualBusy)
		}
		return p.Execute(ctx, id, c)
	}
	return o
}

// accepts takes targets that must be refused and forgets what is written.
func accepts(which func(mounts []sandbox.Mount, targets []string) bool) func(sandbox.Provider, *Env) sandbox.Provider {
	return func(p sandbox.Provider, env *Env) sandbox.Provider {
		var plans sync.Map
		return Override{
			Provider: p,
			ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := p.Provision(ctx, q)
				plans.Store(h.Value.InstanceID, slices.Clone(q.Mounts))
				return h, err
			},
			Members: func(o *sandbox.Optional) {
				writer := o.ActiveWrite
				if writer == nil {
					return
				}
				o.ActiveWrite = BeginActiveWriteFunc(func(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
					w, err := writer.BeginActiveWrite(ctx, id, targets)
					if mounts, ok := plans.Load(id); err != nil && ok && which(mounts.([]sandbox.Mount), targets) {
						env.Fire()
						return &forgetful{state: sandbox.JournalOpen}, nil
					}
					return w, err
				})
			},
		}
	}
}

func belowSealed(mounts []sandbox.Mount, targets []string) bool {
	return slices.ContainsFunc(targets, func(target string) bool {
		m, ok := sandbox.OwningMount(mounts, target)
		return ok && m.Access == sandbox.AccessReadOnly
	})
}

func acrossMounts(mounts []sandbox.Mount, targets []string) bool {
	first, _ := sandbox.OwningMount(mounts, targets[0])
	return slices.ContainsFunc(targets, func(target string) bool {
		m, ok := sandbox.OwningMount(mounts, target)
		return ok && m != first
	})
}

func outsideMounts(mounts []sandbox.Mount, targets []string) bool {
	return slices.ContainsFunc(targets, func(target string) bool {
		_, ok := sandbox.OwningMount(mounts, target)
		return !ok
	})
}

func belowEachOther(_ []sandbox.Mount, targets []string) bool {
	return slices.ContainsFunc(targets, func(target string) bool { return slices.Contains(targets, path.Dir(target)) })
}

// forgetful is a transaction that writes nothing.
type forgetful struct {
	mu    sync.Mutex
	state sandbox.JournalState
}

func (w *forgetful) set(s sandbox.JournalState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
}

func (w *forgetful) Stage(ctx context.Context, _ sandbox.FileWrite) error { return ctx.Err() }

func (w *forgetful) Dispatch(ctx context.Context, marker func()) error {
	marker()
	w.set(sandbox.JournalCommitted)
	return ctx.Err()
}

func (w *forgetful) Abort(ctx context.Context) error {
	w.set(sandbox.JournalRolledBack)
	return ctx.Err()
}

func (w *forgetful) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, ctx.Err()
}
