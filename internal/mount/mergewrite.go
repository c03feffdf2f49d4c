package mount

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/contain"
)

// clear takes back what has no room: a file where a directory stays, or below
// something that is no directory.
func (m *merger) clear() error {
	deleted := map[string]bool{}
	for _, s := range m.steps {
		if s.do == doDelete {
			deleted[s.path] = true
		}
	}
	for _, s := range m.steps {
		if s.do == keep || s.do == doDelete {
			continue
		}
		why, err := m.above(s.path, deleted)
		if err == nil && why == "" && s.ours.kind == directory {
			why, err = m.within(s.path, deleted)
		}
		if err != nil {
			return err
		}
		if why != "" {
			s.do, s.marked = keep, false
			m.result.Conflicts = append(m.result.Conflicts, Conflict{Path: s.path, Reason: why})
		}
	}
	slices.SortFunc(m.result.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// above looks at what stands above a path.
func (m *merger) above(path string, deleted map[string]bool) (ConflictReason, error) {
	for i, c := range []byte(path) {
		if c != '/' {
			continue
		}
		n, err := m.tree.open(path[:i])
		if err != nil {
			return "", err
		}
		if n.file != nil {
			n.file.Close()
		}
		switch {
		case n.kind == absent || deleted[path[:i]]:
			return "", nil
		case n.kind == symlink:
			return BehindLink, nil
		case n.kind != directory:
			return InTheWay, nil
		}
	}
	return "", nil
}

// within looks whether a directory goes with what is deleted. Directories that hold
// nothing are no reason to stay: a merge that was killed leaves such.
func (m *merger) within(path string, deleted map[string]bool) (ConflictReason, error) {
	list, err := m.to.List(context.Background(), path, contain.ListOptions{MaximumEntries: len(deleted)})
	if errors.Is(err, contain.ErrTooMany) {
		return InTheWay, nil
	}
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if !deleted[e.Path] {
			return InTheWay, nil
		}
	}
	return "", nil
}

// write does the steps, and undoes them where one fails.
func (m *merger) write(ctx context.Context) error {
	done, err := m.do(ctx)
	if err == nil {
		m.prune(done)
		return nil
	}
	if left := m.undo(ctx, done); left != nil {
		return fmt.Errorf("%w; the tree is not as it was: %w", err, left)
	}
	return fmt.Errorf("%w; the tree is as it was", err)
}

// do does the steps, and keeps of each what was there. After an error the last one
// of done may be done or not.
func (m *merger) do(ctx context.Context) (done []*step, err error) {
	if err := os.Mkdir(filepath.Join(m.temp, "undo"), 0o700); err != nil {
		return nil, err
	}
	for _, s := range m.order() {
		now, data, err := m.at(s.path)
		if err != nil {
			return done, err
		}
		was := s.ours
		if was.kind == directory { // its files are deleted by now
			if err := m.removeEmpty(s.path); err != nil {
				return done, err
			}
			was.kind, now.kind = absent, absent
		}
		if !now.same(was) {
			return done, &Error{Op: "merge", Path: s.path, Reason: "changed while it was merged", Err: ErrChanged}
		}
		if now.kind == regular {
			if err := os.WriteFile(m.saved(len(done)), data, 0o600); err != nil {
				return done, err
			}
		}
		done = append(done, s)
		if err := m.one(ctx, s, data); err != nil {
			return done, err
		}
	}
	return done, nil
}

// saved is where the file is kept that step n of those done found.
func (m *merger) saved(n int) string { return filepath.Join(m.temp, "undo", strconv.Itoa(n)) }

// undo puts back what was there before the steps, the last first.
func (m *merger) undo(ctx context.Context, done []*step) error {
	var left []error
	for n, s := range slices.Backward(done) {
		if err := m.restore(ctx, s, m.saved(n)); err != nil {
			left = append(left, &Error{Op: "merge", Path: s.path, Reason: "could not be put back", Err: err})
		}
	}
	return errors.Join(left...)
}

// order is deletions first, for what takes their place, and markers last: a merge
// that is done again after a kill then finds none of its own.
func (m *merger) order() []*step {
	var deletions, plain, marked []*step
	for _, s := range m.steps {
		switch {
		case s.do == keep:
		case s.do == doDelete:
			deletions = append(deletions, s)
		case s.marked:
			marked = append(marked, s)
		default:
			plain = append(plain, s)
		}
	}
	return slices.Concat(deletions, plain, marked)
}

// one does one step; ours are the bytes that the tree has there.
func (m *merger) one(ctx context.Context, s *step, ours []byte) error {
	want, data, err := m.wanted(s, ours)
	if err != nil {
		return err
	}
	s.wrote = want
	return m.put(ctx, s.path, s.ours, want, data)
}

// wanted is what a step makes of its path.
func (m *merger) wanted(s *step, ours []byte) (look, []byte, error) {
	want, data, err := m.side(s.theirs)
	switch s.do {
	case doMode:
		data = ours
	case doMerged:
		if err == nil {
			data, err = os.ReadFile(s.merged)
		}
	}
	if want.kind == regular {
		want.perm, want.digest = s.perm, Digest(data)
	}
	return want, data, err
}

// put makes of a path that holds was one that holds want, in one step of the kernel:
// a kill at any moment leaves the one or the other.
func (m *merger) put(ctx context.Context, path string, was, want look, data []byte) error {
	switch {
	case want.kind == absent:
		return m.to.Remove(path)
	case want.kind == regular && was.kind != symlink:
		return m.to.WriteFile(ctx, path, data, want.perm)
	case want.kind == symlink && was.kind != symlink && was.kind != regular:
		return m.to.Symlink(want.target, path)
	}
	beside, err := m.beside(ctx, path, want, data)
	if err == nil {
		err = m.to.Replace(path, m.to, beside)
	}
	if err != nil {
		_ = m.to.Remove(beside)
	}
	return err
}

// beside makes what a path is to hold at a name beside it, which a kill may leave.
func (m *merger) beside(ctx context.Context, path string, want look, data []byte) (string, error) {
	name := filepath.Join(filepath.Dir(path), contain.TemporaryPrefix+strconv.FormatUint(rand.Uint64(), 16))
	if want.kind == symlink {
		return name, m.to.Symlink(want.target, name)
	}
	return name, m.to.WriteFile(ctx, name, data, want.perm)
}

// restore puts back what was at a path before its step. What is neither that nor
// what the step wrote is somebody's work of a moment ago, and stays.
func (m *merger) restore(ctx context.Context, s *step, saved string) error {
	was := s.ours
	if was.kind == directory { // it comes back with the first file in it
		was = look{kind: absent}
	}
	now, _, err := m.at(s.path)
	switch {
	case err != nil:
		return err
	case now.same(was):
	case now.kind != s.wrote.kind || now.digest != s.wrote.digest || now.target != s.wrote.target:
		return fmt.Errorf("somebody changed it after the merge had written it, and it stays as it is: %w", ErrChanged)
	default:
		var data []byte
		if was.kind == regular {
			if data, err = os.ReadFile(saved); err != nil {
				return err
			}
		}
		if err := m.put(ctx, s.path, now, was, data); err != nil {
			return err
		}
	}
	m.prune([]*step{s})
	return nil
}

// removeEmpty removes a directory in which there are only directories.
func (m *merger) removeEmpty(path string) error {
	list, err := m.to.List(context.Background(), path, contain.ListOptions{MaximumEntries: MaxEntries, EmptyDirectories: true})
	if errors.Is(err, contain.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Type != contain.Directory {
			return &Error{Op: "merge", Path: e.Path, Reason: "appeared while it was merged", Err: ErrChanged}
		}
		for dir := e.Path; strings.HasPrefix(dir, path+"/"); dir = filepath.Dir(dir) {
			if err := m.to.Remove(dir); errors.Is(err, contain.ErrNotEmpty) {
				break // of another one, which comes later
			} else if err != nil && !errors.Is(err, contain.ErrNotFound) {
				return err
			}
		}
	}
	return m.to.Remove(path)
}

// prune removes the directories that a deletion left empty, as git does.
func (m *merger) prune(done []*step) {
	for _, s := range done {
		if n, err := m.tree.open(s.path); err != nil || n.kind != absent {
			if n.file != nil {
				n.file.Close()
			}
			continue
		}
		for dir := filepath.Dir(s.path); dir != "."; dir = filepath.Dir(dir) {
			n, err := m.tree.open(dir)
			if n.file != nil {
				n.file.Close()
			}
			if err != nil || n.kind != directory && n.kind != absent || n.kind == directory && m.to.Remove(dir) != nil {
				break
			}
		}
	}
}
