package mount

import (
	"context"
	"errors"
	"fmt"
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
	undo := filepath.Join(m.temp, "undo")
	if err := os.Mkdir(undo, 0o700); err != nil {
		return err
	}
	var done []*step
	saved := func(n int) string { return filepath.Join(undo, strconv.Itoa(n)) }
	err := func() error {
		for _, s := range m.order() {
			now, data, err := m.at(s.path)
			if err != nil {
				return err
			}
			was := s.ours
			if was.kind == directory { // its files are deleted by now
				if err := m.removeEmpty(s.path); err != nil {
					return err
				}
				was.kind, now.kind = absent, absent
			}
			if !now.same(was) {
				return &Error{Op: "merge", Path: s.path, Reason: "changed while it was merged", Err: ErrChanged}
			}
			if now.kind == regular {
				if err := os.WriteFile(saved(len(done)), data, 0o600); err != nil {
					return err
				}
			}
			done = append(done, s)
			if err := m.one(ctx, s, data); err != nil {
				return err
			}
		}
		return nil
	}()
	if err == nil {
		m.prune(done)
		return nil
	}
	var left []error
	for n, s := range slices.Backward(done) {
		if back := m.restore(ctx, s, saved(n)); back != nil {
			left = append(left, &Error{Op: "merge", Path: s.path, Reason: "could not be put back", Err: back})
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%w; the tree is not as it was: %w", err, errors.Join(left...))
	}
	return fmt.Errorf("%w; the tree is as it was", err)
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
	switch s.do {
	case doDelete:
		return m.to.Remove(s.path)
	case doMode:
		return m.to.WriteFile(ctx, s.path, ours, s.perm)
	case doMerged:
		data, err := os.ReadFile(s.merged)
		if err != nil {
			return err
		}
		return m.to.WriteFile(ctx, s.path, data, s.perm)
	}
	data, err := m.blobs.read(s.theirs.oid)
	if err != nil {
		return err
	}
	link := s.theirs.mode == modeLink
	if s.ours.kind == symlink || link && s.ours.kind == regular {
		if err := m.to.Remove(s.path); err != nil {
			return err
		}
	}
	if link {
		return m.to.Symlink(string(data), s.path)
	}
	return m.to.WriteFile(ctx, s.path, data, s.perm)
}

// restore puts back what was at a path before its step.
func (m *merger) restore(ctx context.Context, s *step, saved string) error {
	if now, _, err := m.at(s.path); err == nil && now.same(s.ours) {
		return nil
	}
	if s.ours.kind == regular {
		data, err := os.ReadFile(saved)
		if err != nil {
			return err
		}
		if n, err := m.tree.open(s.path); err == nil && n.kind == symlink {
			if err := m.to.Remove(s.path); err != nil {
				return err
			}
		} else if n.file != nil {
			n.file.Close()
		}
		return m.to.WriteFile(ctx, s.path, data, s.ours.perm)
	}
	if err := m.to.Remove(s.path); err != nil && !errors.Is(err, contain.ErrNotFound) {
		return err
	}
	if s.ours.kind == symlink {
		return m.to.Symlink(s.ours.target, s.path)
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
