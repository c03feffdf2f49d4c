package sandboxruntime

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// BeginActiveWrite opens a transaction that writes regular files into one
// read-write mount of an active instance. The mount is resolved from the
// targets: the deepest one that owns every target. An outer read-write mount
// cannot authorize a path inside a nested one.
//
// Bounds: 1 to 1,024 targets, each body at most 16 MiB.
// Errors: CapabilityUnavailable{active_mount_write} where the envelope does
// not claim it; LifecycleConflict{begin_active_write_unsupported} where the
// member is absent; OperationFailed{outside_root} for a target outside a
// current read-write mount or outside the others' mount, {ancestor_conflict}
// for a target that is a parent of another.
// Source: contract "The operations", row beginActiveWrite and the paragraph
// below the table.
func (r *Runtime) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	const op = sandbox.OpBeginActiveWrite
	if !r.capabilities.ActiveMountWrite {
		return nil, sandbox.Unavailable(op, sandbox.RequireActiveMountWrite, "active_mount_write: true", "active_mount_write: false")
	}
	if r.optional.ActiveWrite == nil {
		return nil, sandbox.Conflict(op, string(op), sandbox.ActualActiveWriteUnsupported)
	}
	i, err := r.enter(op, id, active)
	if err != nil {
		return nil, err
	}
	err = r.expired(op, i)
	if err == nil {
		err = i.admitTargets(targets)
	}
	if err != nil {
		i.leave()
		return nil, err
	}
	own := slices.Clone(targets)
	opened, left, err := do(ctx, r.link, call[sandbox.ActiveWrite]{
		op: op,
		run: func(ctx context.Context) (sandbox.ActiveWrite, error) {
			return r.optional.ActiveWrite.BeginActiveWrite(ctx, id, slices.Clone(own))
		},
		late: func(w sandbox.ActiveWrite, err error) {
			if err == nil && !isNil(w) {
				r.report(settle(ctx, r.link, op, w.Abort))
			}
			i.leave()
		},
	})
	if left {
		return nil, err
	}
	defer i.leave()
	if err != nil {
		return nil, err
	}
	if isNil(opened) {
		return nil, protocolInvalid(op, "transaction", "a transaction", "none")
	}
	if err := ctx.Err(); err != nil {
		return nil, join(err, settle(ctx, r.link, op, opened.Abort))
	}
	return &activeWrite{runtime: r, instance: i, inner: opened, targets: own}, nil
}

func (i *instance) admitTargets(targets []string) error {
	const op = sandbox.OpBeginActiveWrite
	if len(targets) == 0 || len(targets) > sandbox.MaxReadFiles {
		return refused(op, &sandbox.Invalid{Field: "targets", Expected: "1 to " + strconv.Itoa(sandbox.MaxReadFiles), Got: strconv.Itoa(len(targets))})
	}
	root := ""
	for n, target := range targets {
		if err := sandbox.CheckPath("targets["+strconv.Itoa(n)+"]", target); err != nil {
			return refused(op, err)
		}
		owner, _ := sandbox.OwningMount(i.request.Mounts, target)
		if owner.Access != sandbox.AccessReadWrite || owner.MountPath == target || root != "" && owner.MountPath != root {
			return sandbox.FailedAt(op, target, sandbox.ReasonOutsideRoot, nil)
		}
		root = owner.MountPath
	}
	return ancestors(targets)
}

// ancestors finds a target that is a parent of another or equal to it. Sorted
// with the separator first, a parent comes right before its first descendant.
func ancestors(targets []string) error {
	sorted := slices.Clone(targets)
	for n := range sorted {
		sorted[n] += "/"
	}
	slices.Sort(sorted)
	for n := 1; n < len(sorted); n++ {
		if parent := sorted[n-1]; len(sorted[n]) >= len(parent) && sorted[n][:len(parent)] == parent {
			return sandbox.FailedAt(sandbox.OpBeginActiveWrite, parent[:len(parent)-1], sandbox.ReasonAncestorConflict, nil)
		}
	}
	return nil
}

// activeWrite is a transaction that the runtime watches: the caller's and
// abortable until the marker, indeterminate from there until the provider says
// otherwise.
type activeWrite struct {
	runtime  *Runtime
	instance *instance
	inner    sandbox.ActiveWrite
	targets  []string

	mu         sync.Mutex
	dispatched bool
}

// Stage takes the body of one declared target, a regular file.
func (w *activeWrite) Stage(ctx context.Context, f sandbox.FileWrite) error {
	const op = sandbox.OpBeginActiveWrite
	if len(f.Content) > sandbox.MaxFileBytes {
		return sandbox.TooLarge(op, excerpt(f.Path), sandbox.MaxFileBytes)
	}
	if err := f.Validate(); err != nil {
		return refused(op, err)
	}
	if f.Symlink != "" {
		return refused(op, &sandbox.Invalid{Field: "symlink", Expected: "a regular file", Got: f.Symlink})
	}
	if !slices.Contains(w.targets, f.Path) {
		return sandbox.FailedAt(op, f.Path, sandbox.ReasonOutsideRoot, nil)
	}
	if err := w.open(); err != nil {
		return err
	}
	return w.call(ctx, func(ctx context.Context) error { return w.inner.Stage(ctx, f) })
}

// Dispatch publishes what is staged. marker runs exactly once, immediately
// before the journal says dispatched; whoever stops observing after it must
// leave the command available for redelivery.
// Errors: after the marker an interruption is OperationFailed{indeterminate};
// ProtocolInvalid for a provider that published without the marker, or marked
// twice.
// Source: contract "The operations", the paragraph on beginActiveWrite.
func (w *activeWrite) Dispatch(ctx context.Context, marker func()) error {
	const op = sandbox.OpBeginActiveWrite
	if err := w.open(); err != nil {
		return err
	}
	marks := 0
	mark := func() {
		w.mu.Lock()
		marks++
		first := !w.dispatched
		w.dispatched = true
		w.mu.Unlock()
		if first && marker != nil {
			marker()
		}
	}
	err := w.call(ctx, func(ctx context.Context) error { return w.inner.Dispatch(ctx, mark) })
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && err == ctx.Err() && marks > 0:
		return sandbox.Failed(op, sandbox.ReasonIndeterminate, err)
	case err != nil:
		return err
	case marks != 1:
		w.dispatched = true
		return protocolInvalid(op, "marker", "called once", "called "+strconv.Itoa(marks)+" times")
	}
	return nil
}

// Abort drops the transaction while it is open.
func (w *activeWrite) Abort(ctx context.Context) error {
	if err := w.open(); err != nil {
		return err
	}
	return w.call(ctx, w.inner.Abort)
}

// Inspect returns the journal's state.
func (w *activeWrite) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	const op = sandbox.OpBeginActiveWrite
	state, _, err := do(ctx, w.runtime.link, call[sandbox.JournalState]{op: op, run: w.inner.Inspect})
	if err != nil {
		return "", err
	}
	if !state.Valid() {
		return "", protocolInvalid(op, "journal", "open, dispatched, committed or rolled_back", string(state))
	}
	return state, nil
}

// open refuses what may only happen before the marker.
func (w *activeWrite) open() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dispatched {
		return sandbox.Conflict(sandbox.OpBeginActiveWrite, string(sandbox.JournalOpen), string(sandbox.JournalDispatched))
	}
	return nil
}

// call makes one call of the transaction as a use of its instance.
func (w *activeWrite) call(ctx context.Context, fn func(context.Context) error) error {
	const op = sandbox.OpBeginActiveWrite
	i, err := w.runtime.enter(op, w.instance.id, active)
	if err != nil {
		return err
	}
	_, err = use(ctx, w.runtime, i, call[none]{op: op, run: func(ctx context.Context) (none, error) { return none{}, fn(ctx) }})
	return err
}
