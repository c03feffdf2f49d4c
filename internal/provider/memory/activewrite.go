package memory

import (
	"context"
	"strconv"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// activeWrite is one transaction. Its journal and bodies are in memory only,
// so an instance without data retention may have it too; the end of the
// instance erases them.
//
// Locks: activeWrite.mu before instance.mu before tree.mu; none is held while
// the marker runs.
type activeWrite struct {
	p       *Provider
	i       *instance
	id      sandbox.InstanceID
	targets []string // immutable

	mu     sync.Mutex
	state  sandbox.JournalState
	busy   bool // Dispatch has passed the point of no return
	bodies map[string]*node
	total  int
}

const opWrite = sandbox.OpBeginActiveWrite

// BeginActiveWrite opens a transaction over targets: 1 to 1,024 distinct paths
// that one read-write mount owns, none above another.
// Errors: InstanceNotFound; LifecycleConflict; OperationFailed with
// outside_root (no read-write mount, or not the same one for all, or a link),
// ancestor_conflict (also a parent that is not a directory) or not_regular.
// Source: contract "The operations", row beginActiveWrite and the paragraph
// below the table.
func (p *Provider) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	i, leave, err := p.enter(ctx, opWrite, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(targets) == 0 || len(targets) > sandbox.MaxReadFiles {
		return nil, invalid(opWrite, &sandbox.Invalid{Field: "targets", Expected: "1 to " + strconv.Itoa(sandbox.MaxReadFiles), Got: strconv.Itoa(len(targets))})
	}
	var mount sandbox.Mount
	for n, target := range targets {
		if err := sandbox.CheckPath("targets["+strconv.Itoa(n)+"]", target); err != nil {
			return nil, invalid(opWrite, err)
		}
		owner, ok := sandbox.OwningMount(i.value.Mounts, target)
		switch {
		case !ok || owner.MountPath == target || owner.Access != sandbox.AccessReadWrite || n > 0 && owner != mount:
			return nil, sandbox.FailedAt(opWrite, target, sandbox.ReasonOutsideRoot, nil)
		}
		mount = owner
		for _, other := range targets[:n] {
			if sandbox.Within(target, other) || sandbox.Within(other, target) {
				return nil, sandbox.FailedAt(opWrite, target, sandbox.ReasonAncestorConflict, nil)
			}
		}
	}
	w := &activeWrite{p: p, i: i, id: id, targets: append([]string{}, targets...), state: sandbox.JournalOpen, bodies: map[string]*node{}}
	t := i.m.tree
	t.mu.Lock()
	_, err = t.prepare(w.targets, nil)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.gone {
		return nil, sandbox.NoInstance(opWrite, id)
	}
	i.writes[w] = true
	return w, nil
}

// prepare checks, without changing anything, that every target can be written
// as the tree is now, and returns what that will cost.
func (t *tree) prepare(targets []string, bodies map[string]*node) (cost int64, err error) {
	made := map[string]bool{}
	for _, target := range targets {
		at := t.root
		path := ""
		for rest := target[1:]; ; {
			name, more := cutName(rest)
			path += "/" + name
			var kid *node
			if at != nil {
				kid = at.kids[name]
			}
			if more == "" {
				if kid != nil && kid.kind != regular {
					return 0, sandbox.FailedAt(opWrite, target, string(misplaced(kid)), nil)
				}
				if body := bodies[target]; body != nil {
					cost += body.size()
				}
				if kid != nil {
					cost -= kid.size()
				} else {
					cost += int64(len(name))
				}
				break
			}
			if kid != nil && kid.kind != directory {
				reason := sandbox.ReasonAncestorConflict
				if kid.kind == symlink {
					reason = sandbox.ReasonOutsideRoot
				}
				return 0, sandbox.FailedAt(opWrite, path, reason, nil)
			}
			if kid == nil && !made[path] {
				made[path] = true
				cost += nodeBytes + int64(len(name))
			}
			at, rest = kid, more
		}
	}
	return cost, nil
}

// cutName cuts the first name off a relative path.
func cutName(path string) (name, rest string) {
	for n := range len(path) {
		if path[n] == '/' {
			return path[:n], path[n+1:]
		}
	}
	return path, ""
}

// Stage takes the body of one declared target; staging it again replaces it.
// The bodies of a transaction are at most 128 MiB together.
// Errors: InstanceNotFound; LifecycleConflict (not open, not a target);
// FileTooLarge; OperationFailed.
func (w *activeWrite) Stage(ctx context.Context, f sandbox.FileWrite) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	if len(f.Content) > sandbox.MaxFileBytes {
		return sandbox.TooLarge(opWrite, f.Path, sandbox.MaxFileBytes)
	}
	err := f.Validate()
	if err == nil && f.Symlink != "" {
		err = &sandbox.Invalid{Field: "symlink", Expected: "none: a batch of regular files", Got: f.Symlink}
	}
	if err != nil {
		return invalid(opWrite, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(); err != nil {
		return err
	}
	declared := false
	for _, target := range w.targets {
		declared = declared || target == f.Path
	}
	if !declared {
		return sandbox.Conflict(opWrite, "a declared target", f.Path)
	}
	total := w.total + len(f.Content)
	if old := w.bodies[f.Path]; old != nil {
		total -= len(old.data)
	}
	if total > sandbox.MaxReadFilesBytes {
		return sandbox.TooLarge(opWrite, f.Path, sandbox.MaxReadFilesBytes)
	}
	w.bodies[f.Path], w.total = newFile(f), total
	return nil
}

// Dispatch publishes every target at once, or none: the tree stands still
// meanwhile, which is this machine's pause. Every target must be staged. Once
// the marker was called ctx no longer counts.
// Errors: before the marker: InstanceNotFound; LifecycleConflict. After it,
// with the journal rolled back and the tree as it was: OperationFailed with
// changed (the workload put something in the way) or instance_lost;
// CapabilityUnavailable (disk_bytes).
func (w *activeWrite) Dispatch(ctx context.Context, marker func()) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	err := w.open()
	if err == nil && len(w.bodies) < len(w.targets) {
		err = sandbox.Conflict(opWrite, strconv.Itoa(len(w.targets))+" targets staged", strconv.Itoa(len(w.bodies)))
	}
	if err == nil {
		w.busy = true
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	marker()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = sandbox.JournalDispatched
	if err := w.publish(); err != nil {
		w.state = sandbox.JournalRolledBack
		w.erase()
		return err
	}
	// Committed comes first; what is left to do after it only goes forward.
	w.state = sandbox.JournalCommitted
	w.bodies = nil
	return nil
}

// publish puts the bodies into the tree, which then owns them.
func (w *activeWrite) publish() error {
	w.i.mu.Lock()
	defer w.i.mu.Unlock()
	delete(w.i.writes, w)
	if w.i.gone {
		return sandbox.Failed(opWrite, sandbox.ReasonInstanceLost, nil)
	}
	t := w.i.m.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	cost, err := t.prepare(w.targets, w.bodies)
	if err != nil {
		return sandbox.Failed(opWrite, sandbox.ReasonChanged, err)
	}
	if t.used+cost > t.limit {
		return fileError(opWrite, w.targets[0], 0, errNoSpace)
	}
	for _, target := range w.targets {
		// Checked a moment ago under the same lock: none of these can fail.
		if _, err := t.put(target, w.bodies[target]); err != nil {
			return sandbox.FailedAt(opWrite, target, sandbox.ReasonProviderError, err)
		}
	}
	return nil
}

// Abort drops an open transaction.
// Errors: LifecycleConflict once Dispatch has called its marker.
func (w *activeWrite) Abort(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == sandbox.JournalRolledBack {
		return nil
	}
	if err := w.open(); err != nil {
		return err
	}
	w.state = sandbox.JournalRolledBack
	w.erase()
	w.i.mu.Lock()
	defer w.i.mu.Unlock()
	delete(w.i.writes, w)
	return nil
}

// Inspect returns the journal's state, also after the instance has gone.
func (w *activeWrite) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, nil
}

// enter asks whether the instance is still there.
func (w *activeWrite) enter(ctx context.Context) error {
	_, leave, err := w.p.enter(ctx, opWrite, w.id, sandbox.StateActive)
	if err == nil {
		leave()
	}
	return err
}

// open refuses what only an open journal allows. The caller holds w.mu.
func (w *activeWrite) open() error {
	switch {
	case w.state != sandbox.JournalOpen:
		return sandbox.Conflict(opWrite, string(sandbox.JournalOpen), string(w.state))
	case w.busy:
		return sandbox.Conflict(opWrite, string(sandbox.JournalOpen), string(sandbox.JournalDispatched))
	}
	return nil
}

// drop ends a transaction with its instance.
func (w *activeWrite) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == sandbox.JournalOpen && !w.busy {
		w.state = sandbox.JournalRolledBack
		w.erase()
	}
}

// erase overwrites the bodies. The caller holds w.mu.
func (w *activeWrite) erase() {
	for _, body := range w.bodies {
		body.erase()
	}
	w.bodies = nil
}
