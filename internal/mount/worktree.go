package mount

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// stageWork stages the tracked files as they lie in the working tree. Clean
// is judged by content against the index and the commit: the stat data in a
// hostile index can say anything, and git status would run filters.
func (s *stager) stageWork(ctx context.Context, untracked bool) error {
	t, err := openTree(s.r.work)
	if err != nil {
		return err
	}
	defer t.Close() // clean files come from blobs, all others are copied
	s.p.Dirty = s.indexDiffers()
	last := ""
	for _, e := range s.index {
		if e.path == last {
			continue // another stage of an unmerged path
		}
		last = e.path
		if err := s.stageTracked(ctx, t, e); err != nil {
			return err
		}
		if err := s.p.admitCount("git", s.r.work); err != nil {
			return err
		}
	}
	return s.stageOthers(ctx, t, untracked)
}

func (s *stager) indexDiffers() bool {
	if len(s.index) != len(s.head) {
		return true
	}
	// Both are in the order of their paths' bytes.
	for i, e := range s.index {
		if h := s.head[i]; e.path != h.path || e.oid != h.oid || e.mode != h.mode || e.stage != 0 {
			return true
		}
	}
	return false
}

func (s *stager) stageTracked(ctx context.Context, t *tree, e entry) error {
	if Reserved(e.path) {
		s.leave(e.path, UnsafePath)
		return nil
	}
	if e.mode == modeSubmodule {
		s.leave(e.path, Submodule)
		return nil
	}
	n, err := t.open(e.path)
	if err != nil {
		return err
	}
	switch n.kind {
	case absent, directory:
		if n.kind == absent && e.skip {
			s.leave(e.path, NotCheckedOut)
			return nil
		}
		s.p.Dirty = true // deleted; what is below a directory is untracked
	case behindLink:
		s.p.Dirty = true
		s.p.skip(e.path, Symlink)
	case special, unreadable:
		s.p.Dirty = true
		s.leave(e.path, map[kind]Reason{special: Special, unreadable: Unreadable}[n.kind])
	case symlink:
		if e.mode != modeLink || blobID(s.r.format, []byte(n.target)) != e.oid {
			s.p.Dirty = true
		}
		s.link(Link{e.path, n.target})
	case regular:
		return s.stageRegular(ctx, n, e)
	}
	return nil
}

func (s *stager) stageRegular(ctx context.Context, n node, e entry) error {
	defer n.file.Close()
	if !s.r.fileMode || e.mode == modeLink {
		n.executable = e.executable()
	}
	size, present := s.sizes[e.oid]
	if n.size > MaxFile {
		// Too large to be read for this: by size and mode only.
		if !present || size != n.size || n.executable != e.executable() {
			s.p.Dirty = true
		}
		s.leave(e.path, TooLarge)
		return nil
	}
	f, data, err := readFile(ctx, n, e.path)
	if err != nil {
		return fmt.Errorf("%s: %w", printable(e.path), err)
	}
	same := blobID(s.r.format, data) == e.oid
	if n.executable != e.executable() || e.mode == modeLink {
		s.p.Dirty = true
	}
	if same && present {
		s.stageBlob(e, f.Executable, data)
		return nil
	}
	if !same {
		lfs, err := s.isLFSContent(e, f)
		if err != nil {
			return err
		}
		if lfs {
			// The git inside has no LFS and would call it modified.
			s.hidden[e.path] = true
		} else {
			s.p.Dirty = true
		}
	}
	return s.stageSpooled(f, data)
}

// isLFSContent reports whether a file is what the pointer in the index
// stands for: such a file is not changed.
func (s *stager) isLFSContent(e entry, f File) (bool, error) {
	size, present := s.sizes[e.oid]
	if !present || size >= maxPointer || e.mode == modeLink {
		return false, nil
	}
	blob, err := s.blobs.read(e.oid)
	if err != nil {
		return false, err
	}
	digest, size, ok := lfsPointer(blob)
	return ok && digest == f.Digest && size == f.Size, nil
}

// stageOthers stages or names what is not in the index.
func (s *stager) stageOthers(ctx context.Context, t *tree, untracked bool) error {
	paths, err := s.r.others(ctx, false, false)
	if errors.Is(err, ErrTooMany) && !untracked {
		paths, err = s.r.others(ctx, false, true) // by directory
	}
	if err != nil {
		return err
	}
	for _, path := range paths {
		switch {
		case !admitted(strings.TrimSuffix(path, "/")):
			return fmt.Errorf("untracked path %s is none", printable(path))
		case strings.HasSuffix(path, "/") && untracked:
			s.p.skip(path, Nested)
		case !untracked:
			s.p.skip(path, Untracked)
		default:
			if err := s.stageUntracked(ctx, t, path); err != nil {
				return err
			}
		}
		if err := s.p.admitCount("git", s.r.work); err != nil {
			return err
		}
	}
	ignored, err := s.r.others(ctx, true, true)
	if err != nil {
		return err
	}
	for _, path := range ignored {
		s.p.skip(path, Ignored)
	}
	return nil
}

func (s *stager) stageUntracked(ctx context.Context, t *tree, path string) error {
	if Reserved(path) {
		s.p.skip(path, UnsafePath)
		return nil
	}
	n, err := t.open(path)
	if err != nil {
		return err
	}
	switch n.kind {
	case symlink:
		s.p.Dirty = true
		s.p.link(Link{path, n.target})
	case special:
		s.p.skip(path, Special)
	case unreadable:
		s.p.skip(path, Unreadable)
	case regular:
		defer n.file.Close()
		if n.size > MaxFile {
			s.p.skip(path, TooLarge)
			return nil
		}
		f, data, err := readFile(ctx, n, path)
		if err != nil {
			return fmt.Errorf("%s: %w", printable(path), err)
		}
		s.p.Dirty = true
		return s.stageSpooled(f, data)
	}
	return nil // it went while we looked
}
