package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// activeWriteFaults are wrong in a write to an active mount.
func activeWriteFaults() []Saboteur {
	return []Saboteur{
		{ID: "W1", Fault: "a batch is published file by file", Kills: "active-write.at-once/whole", Wrap: publishesSlowly},
		{ID: "W1f", Fault: "half of a batch that failed is published", Kills: "active-write.all-or-nothing/nothing", Wrap: transactions(publishesHalf)},
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
		{ID: "W14", Fault: "a file that is no target of its transaction is taken", Kills: "active-write.publishes/declared", Wrap: transactions(takesUndeclared)},
		{ID: "W15", Fault: "a link is taken into a batch of files", Kills: "active-write.publishes/regular", Wrap: transactions(takesLinks)},
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

func takesUndeclared(b begun, w *transaction) {
	w.stage = func(ctx context.Context, f sandbox.FileWrite) error {
		if !slices.Contains(b.targets, f.Path) {
			b.env.Fire()
			return nil
		}
		return b.right.Stage(ctx, f)
	}
}

func takesLinks(b begun, w *transaction) {
	w.stage = func(ctx context.Context, f sandbox.FileWrite) error {
		if f.Symlink != "" {
			b.env.Fire()
			return nil
		}
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

// publishesSlowly publishes the first file some time before the rest: if the
// workload looks into its mounts, until it has looked.
func publishesSlowly(p sandbox.Provider, env *Env) sandbox.Provider {
	var mu sync.Mutex
	looks := map[sandbox.InstanceID]int{}
	looked := make(chan struct{}, 1)
	o := transactions(func(b begun, w *transaction) {
		var first *sandbox.FileWrite
		mu.Lock()
		looks[b.id] = 0
		mu.Unlock()
		w.stage = func(ctx context.Context, f sandbox.FileWrite) error {
			if first == nil {
				first = &f
			}
			return b.right.Stage(ctx, f)
		}
		w.dispatch = func(ctx context.Context, marker func()) error {
			return b.right.Dispatch(ctx, func() {
				marker()
				mu.Lock()
				often := looks[b.id] >= 2
				mu.Unlock()
				if !often || first == nil {
					return
				}
				b.alone(ctx, *first)
				select {
				case <-looked: // of some time ago
				default:
				}
				// The first that ends from now on may have begun before.
				for range 2 {
					select {
					case <-looked:
					case <-ctx.Done():
					}
				}
			})
		}
	})(p, env).(Override)
	o.ExecuteFunc = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		s, err := p.Execute(ctx, id, c)
		mu.Lock()
		looks[id]++
		mu.Unlock()
		select {
		case looked <- struct{}{}:
		default:
		}
		return s, err
	}
	return o
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
