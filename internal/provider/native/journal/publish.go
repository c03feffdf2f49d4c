package journal

import (
	"errors"
	"sort"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

// Dispatch says that from here on the transaction may have an effect, and that
// its workload is about to be paused under a token of its own. Where a pause of
// before was not seen to end its token goes with it, on disk before that one's
// transaction may be removed.
func (t *Transaction) Dispatch(own, inherited Token) error {
	t.record.pause, t.record.inherited = own, inherited
	if err := t.put(pauseAt, t.record.pauseText()); err != nil {
		return err
	}
	return t.set(sandbox.JournalDispatched)
}

// Publish puts every body at its target: one that exists is swapped, one that
// does not is made, with the parents that it lacks. Its workload must stand still.
// The journal is neither committed nor rolled back by it: on an error call
// Rollback.
// Errors: *contain.Error of the first thing that is in the way: ErrNotRegular
// (something else than a file at a target, or no body), ErrNotDirectory (a parent
// is a file), ErrOutsideRoot (a link); host errors, as of a full disk.
func (t *Transaction) Publish() error {
	if err := t.look(); err != nil {
		return err
	}
	// First the plan, then the word that it is one: a crash may cut the first short.
	if err := t.put(len(t.record.head()), string(t.record.plan())); err != nil {
		return err
	}
	t.record.planned = true
	if err := t.put(plannedAt, t.record.plannedText()); err != nil {
		return err
	}
	t.j.step("write: planned")
	for n, f := range t.record.files {
		if err := t.publish(n, f); err != nil {
			return err
		}
		t.j.step("write: published " + strconv.Itoa(n))
	}
	return nil
}

// look finds out what publication will do, and changes nothing.
func (t *Transaction) look() error {
	for n := range t.record.files {
		f := &t.record.files[n]
		body, err := t.bodies.Stat(strconv.Itoa(n))
		if err != nil {
			return err
		}
		f.body = body.Inode
		at, err := t.tree.Stat(f.path)
		switch {
		case errors.Is(err, contain.ErrNotFound):
			if f.missing, err = t.missing(f.path); err != nil {
				return err
			}
		case err != nil:
			return err
		case at.Type == contain.Symlink:
			return &contain.Error{Op: "publish", Path: f.path, Refusal: contain.ErrOutsideRoot, Expected: "a regular file or nothing", Actual: string(at.Type)}
		case at.Type != contain.Regular:
			return &contain.Error{Op: "publish", Path: f.path, Refusal: contain.ErrNotRegular, Expected: "a regular file or nothing", Actual: string(at.Type)}
		default:
			f.old = at.Inode
		}
	}
	return nil
}

// missing counts the parents of a path that do not exist.
func (t *Transaction) missing(path string) (int, error) {
	parents := parents(path)
	var failed error
	// Whoever exists has parents that exist, so it is searched for by halves: a
	// path may be two thousand names long, and a workload waits.
	missing := sort.Search(len(parents), func(n int) bool {
		_, err := t.tree.Stat(parents[n])
		if err != nil && !errors.Is(err, contain.ErrNotFound) {
			failed = err
		}
		return err == nil
	})
	return missing, failed
}

// parents are those of a path, the nearest first.
func parents(path string) []string {
	var all []string
	for {
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return all
		}
		path = path[:i]
		all = append(all, path)
	}
}

func (t *Transaction) publish(n int, f file) error {
	if f.old != 0 {
		return t.tree.Exchange(f.path, t.bodies, strconv.Itoa(n))
	}
	if f.missing > 0 {
		if err := t.tree.Mkdir(parents(f.path)[0], 0o755); err != nil {
			return err
		}
	}
	return t.tree.Take(f.path, t.bodies, strconv.Itoa(n))
}

// Commit says that everything is published. From here on a recovery goes forward.
func (t *Transaction) Commit() error { return t.set(sandbox.JournalCommitted) }

// Rollback puts a transaction that was dispatched and not committed back to where
// the tree was before, and says so in the record. It can be interrupted anywhere
// and called again. Its workload must stand still.
// Errors: *Error where a file is neither the old nor the new one, and nothing
// that was not published is touched; host errors. The journal then stays
// dispatched, with all its evidence.
func (t *Transaction) Rollback() error {
	if t.record.planned {
		for n := len(t.record.files) - 1; n >= 0; n-- {
			if err := t.undo(n, t.record.files[n]); err != nil {
				return err
			}
			t.j.step("write: undone " + strconv.Itoa(n))
		}
		// Only now: a directory may have been made for several.
		for _, f := range t.record.files {
			for _, dir := range parents(f.path)[:f.missing] {
				if err := t.unmake(dir); err != nil {
					return err
				}
			}
		}
	}
	return t.set(sandbox.JournalRolledBack)
}

// unmake removes an empty directory. What else is there is not ours.
func (t *Transaction) unmake(dir string) error {
	at, err := t.tree.Stat(dir)
	if err == nil && at.Type == contain.Directory {
		err = t.tree.Remove(dir)
	}
	for _, other := range []contain.Refusal{contain.ErrNotFound, contain.ErrNotEmpty, contain.ErrNotDirectory, contain.ErrOutsideRoot} {
		if errors.Is(err, other) {
			return nil
		}
	}
	return err
}

// undo takes the publication of one target back, if there was one.
func (t *Transaction) undo(n int, f file) error {
	body := strconv.Itoa(n)
	kept, err := t.bodies.Stat(body)
	switch {
	case err == nil && kept.Inode == f.body:
		return nil // it was not its turn yet, or is undone
	case errors.Is(err, contain.ErrNotFound) && f.old == 0:
	case err != nil:
		return err
	case f.old == 0 || kept.Inode != f.old:
		return wrong("evidence of "+f.path, "inode "+strconv.FormatUint(f.old, 10), strconv.FormatUint(kept.Inode, 10))
	}
	at, err := t.tree.Stat(f.path)
	switch {
	case errors.Is(err, contain.ErrNotFound) && f.old == 0:
		return nil // removed by a rollback that was interrupted
	case err != nil:
		return err
	case at.Inode != f.body:
		return wrong("file at "+f.path, "inode "+strconv.FormatUint(f.body, 10), strconv.FormatUint(at.Inode, 10))
	case f.old == 0:
		return t.tree.Remove(f.path)
	}
	return t.tree.Exchange(f.path, t.bodies, body)
}
