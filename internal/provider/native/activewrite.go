package native

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/provider/native/journal"
	"github.com/checkfu/checkfu/sandbox"
)

const opWrite = sandbox.OpBeginActiveWrite

// maxOpenWrites bounds the transactions that are open in one instance: each holds
// descriptors of this process.
const maxOpenWrites = 64

// activeWrite is one transaction. Its bodies and its journal lie in the home that
// it writes into, where the machine does not see them, and count in its disk limit:
// of an instance without data retention that is memory.
//
// Locks: activeWrite.mu before instance.mu; none is held while the marker runs, or
// while the workload is paused.
type activeWrite struct {
	in      *instance
	targets map[string]int // index by guest path; immutable

	mu     sync.Mutex
	tx     *journal.Transaction // of who holds mu, or has made busy true
	state  sandbox.JournalState
	busy   bool        // Dispatch has begun
	staged map[int]int // bytes of each body
	total  int
	stuck  *stop // of a rollback that failed: its workload stands still
}

// BeginActiveWrite opens a transaction over targets: 1 to 1,024 distinct paths
// that one read-write mount owns, none above another. At most 64 are open at once
// in one instance.
// Errors: InstanceNotFound; LifecycleConflict; OperationFailed with outside_root
// (no read-write mount, or not the same one for all, or a link), ancestor_conflict
// (also a parent that is not a directory) or not_regular; CapabilityUnavailable
// (disk_bytes; active_mount_write where bodies would lie on a disk against the
// retention).
// Source: contract "The operations", row beginActiveWrite and the paragraph below
// the table.
func (p *Provider) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	in, err := p.active(opWrite, id)
	if err != nil {
		return nil, err
	}
	if !in.durable() {
		if err := inMemory(in.at.home()); err != nil {
			return nil, err
		}
	}
	mount, err := admitTargets(in.request.Mounts, targets)
	if err != nil {
		return nil, err
	}
	w := &activeWrite{in: in, state: sandbox.JournalOpen, targets: make(map[string]int, len(targets)), staged: map[int]int{}}
	paths := make([]string, len(targets))
	var t tree
	var root *contain.Root
	for n, target := range targets {
		if t, root, paths[n], err = in.locate(opWrite, target); err != nil {
			return nil, err
		}
		if t.guest != mount.MountPath { // the plan and what was made of it cannot differ
			return nil, sandbox.FailedAt(opWrite, target, sandbox.ReasonOutsideRoot, nil)
		}
		if err := in.writable(root, target, paths[n]); err != nil {
			return nil, err
		}
		w.targets[target] = n
	}
	if err := in.addWrite(w); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tx, err = in.journal.Begin(ctx, t.home, root, paths); err != nil {
		in.dropWrite(w)
		return nil, in.writeError(targets[0], err)
	}
	return w, nil
}

// admitTargets returns the one mount that owns every target.
func admitTargets(mounts []sandbox.Mount, targets []string) (mount sandbox.Mount, err error) {
	if len(targets) == 0 || len(targets) > sandbox.MaxReadFiles {
		return mount, sandbox.Failed(opWrite, sandbox.ReasonInvalidRequest, &sandbox.Invalid{
			Field: "targets", Expected: "1 to " + strconv.Itoa(sandbox.MaxReadFiles), Got: strconv.Itoa(len(targets)),
		})
	}
	all := make(map[string]bool, len(targets))
	for n, target := range targets {
		if err := sandbox.CheckPath("targets["+strconv.Itoa(n)+"]", target); err != nil {
			return mount, sandbox.Failed(opWrite, sandbox.ReasonInvalidRequest, err)
		}
		owner, ok := sandbox.OwningMount(mounts, target)
		if !ok || owner.MountPath == target || owner.Access != sandbox.AccessReadWrite || n > 0 && owner != mount {
			return mount, sandbox.FailedAt(opWrite, target, sandbox.ReasonOutsideRoot, nil)
		}
		if all[target] {
			return mount, sandbox.FailedAt(opWrite, target, sandbox.ReasonAncestorConflict, nil)
		}
		mount, all[target] = owner, true
	}
	for _, target := range targets {
		for i := strings.LastIndexByte(target, '/'); i > 0; i = strings.LastIndexByte(target[:i], '/') {
			if all[target[:i]] {
				return mount, sandbox.FailedAt(opWrite, target, sandbox.ReasonAncestorConflict, nil)
			}
		}
	}
	return mount, nil
}

// writable says why a target cannot be written as its mount is now.
func (in *instance) writable(root *contain.Root, target, path string) error {
	at, err := root.Stat(path)
	switch {
	case errors.Is(err, contain.ErrNotFound):
		return nil
	case errors.Is(err, contain.ErrNotDirectory):
		return sandbox.FailedAt(opWrite, target, sandbox.ReasonAncestorConflict, err)
	case err != nil:
		return in.writeError(target, err)
	case at.Type == contain.Symlink:
		return sandbox.FailedAt(opWrite, target, sandbox.ReasonOutsideRoot, nil)
	case at.Type != contain.Regular:
		return sandbox.FailedAt(opWrite, target, sandbox.ReasonNotRegular, nil)
	}
	return nil
}

// inMemory refuses a home on a disk. None that is without retention is; before a
// body is taken it is looked at again.
func inMemory(home string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(home, &s); err != nil {
		return sandbox.Failed(opWrite, sandbox.ReasonProviderError, err)
	}
	if s.Type != unix.TMPFS_MAGIC {
		return sandbox.Unavailable(opWrite, sandbox.RequireActiveMountWrite, string(sandbox.RetentionEphemeralZDR), "a journal on a disk")
	}
	return nil
}

// writeError says in the contract's words why something cannot be written.
func (in *instance) writeError(target string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, contain.ErrClosed):
		return sandbox.NoInstance(opWrite, in.id)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return sandbox.Unavailable(opWrite, sandbox.RequireResources, target, "disk_bytes")
	}
	return fileError(opWrite, target, sandbox.MaxFileBytes, err)
}

// Stage takes the body of one declared target; staging it again replaces it. The
// bodies of a transaction are at most 128 MiB together.
// Errors: InstanceNotFound; LifecycleConflict (not open, not a target);
// FileTooLarge; CapabilityUnavailable (disk_bytes); OperationFailed.
func (w *activeWrite) Stage(ctx context.Context, f sandbox.FileWrite) error {
	if err := w.alive(ctx); err != nil {
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
		return sandbox.Failed(opWrite, sandbox.ReasonInvalidRequest, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(); err != nil {
		return err
	}
	n, declared := w.targets[f.Path]
	if !declared {
		return sandbox.Conflict(opWrite, "a declared target", f.Path)
	}
	total := w.total + len(f.Content) - w.staged[n]
	if total > sandbox.MaxReadFilesBytes {
		return sandbox.TooLarge(opWrite, f.Path, sandbox.MaxReadFilesBytes)
	}
	if err := w.tx.Stage(ctx, n, f.Content, f.Executable); err != nil {
		return w.in.writeError(f.Path, err)
	}
	w.staged[n], w.total = len(f.Content), total
	return nil
}

// Abort drops an open transaction.
// Errors: LifecycleConflict once Dispatch has begun; OperationFailed where its
// files could not be removed, which may be tried again.
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
	if err := w.tx.Remove(ctx); err != nil {
		return w.in.writeError("", err)
	}
	w.state = sandbox.JournalRolledBack
	w.in.dropWrite(w)
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

// alive asks whether the instance is still there.
func (w *activeWrite) alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := w.in.p.active(opWrite, w.in.id)
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

// set notes how far the journal is.
func (w *activeWrite) set(s sandbox.JournalState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
}

// addWrite and dropWrite keep the transactions that end with the instance.
func (in *instance) addWrite(w *activeWrite) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.ending:
		return sandbox.NoInstance(opWrite, in.id)
	case len(in.writes) >= maxOpenWrites:
		return sandbox.Conflict(opWrite, "at most "+strconv.Itoa(maxOpenWrites)+" open transactions", strconv.Itoa(len(in.writes)))
	}
	in.writes[w] = true
	return nil
}

func (in *instance) dropWrite(w *activeWrite) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.writes, w)
}

// endWrites ends the transactions with their instance: what was merely open has
// changed nothing. Its home, and all that lies there of them, goes next.
func (in *instance) endWrites() error {
	in.mu.Lock()
	writes := in.writes
	in.writes = map[*activeWrite]bool{}
	in.mu.Unlock()
	in.gate.open() // a rollback that failed holds it shut
	var failures []error
	for w := range writes {
		w.mu.Lock()
		if w.state == sandbox.JournalOpen && !w.busy {
			w.state = sandbox.JournalRolledBack
		}
		if w.tx != nil { // one whose marker runs touches it only to close it
			failures = append(failures, w.tx.Close())
		}
		w.mu.Unlock()
	}
	if in.journal != nil {
		failures = append(failures, in.journal.Close())
	}
	return errors.Join(failures...)
}
