package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// collect takes the changes and the outputs out of the machine. Each part is
// tried, whatever became of the others.
func (s *session) collect(ctx context.Context) error {
	var failures []error
	for i, p := range s.plans {
		if p.mount.Access == sandbox.AccessReadWrite {
			if err := s.changes(ctx, p, &s.record.Mounts[i]); err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", p.mount.MountPath, err))
			}
		}
	}
	return errors.Join(append(failures, s.outputs(ctx))...)
}

// changes compares one mount with what was staged into it, and makes the patch
// of the repository.
func (s *session) changes(ctx context.Context, p planned, m *Mount) error {
	leaves, err := s.list(ctx, p.mount.MountPath)
	if err != nil {
		return err
	}
	entries := make([]mount.Entry, len(leaves))
	for i, l := range leaves {
		entries[i] = mount.Entry{
			Path: l.Path, Type: entryType(l.Type), Size: l.Size, Executable: l.Executable,
			Digest: string(l.Digest), Target: l.Target,
		}
	}
	files := s.files(ctx, p.mount.MountPath, nil)
	change, err := mount.Diff(ctx, p.plan.Baseline(), entries, files.content)
	if err != nil {
		return err
	}
	m.Collected = true
	m.Changes, m.Uncarried = describeChange(change)
	if p.mount.Kind != sandbox.MountGit || s.spec.Patch == nil || change.Empty() {
		return nil
	}
	counted := &lineCounter{to: s.spec.Patch}
	files = s.files(ctx, p.mount.MountPath, changedFiles(change))
	err = p.plan.Patch(ctx, change, files.content, counted)
	m.Lines, m.PatchSize = counted.lines, counted.size
	if err == nil && s.spec.Base != nil {
		err = p.plan.Base(ctx, change, s.spec.Base)
	}
	return err
}

func (s *session) list(ctx context.Context, root string) ([]sandbox.Leaf, error) {
	l, err := s.runtime.ListProjectDir(ctx, s.id, sandbox.Listing{Root: root, MaxEntries: sandbox.MaxListEntries})
	return l.Leaves, err
}

// entryType is the word that package mount knows; it takes every other as
// special.
func entryType(t sandbox.LeafType) string {
	switch t {
	case sandbox.LeafRegular:
		return mount.TypeFile
	case sandbox.LeafSymlink:
		return mount.TypeSymlink
	}
	return string(t)
}

// changedFiles are the files whose contents a patch needs, in the order in
// which it asks for them.
func changedFiles(c *mount.Change) []sandbox.FileMember {
	var members []sandbox.FileMember
	for _, e := range byPath(c.ModeChanged, c.Added, c.Modified) {
		members = append(members, sandbox.FileMember{Path: e.Path, MaximumBytes: e.Size})
	}
	return members
}

func describeChange(c *mount.Change) (carried, uncarried []Named) {
	for _, set := range []struct {
		why     string
		entries []mount.Entry
	}{{"added", c.Added}, {"modified", c.Modified}, {"mode", c.ModeChanged}} {
		for _, e := range set.entries {
			carried = append(carried, Name(e.Path, set.why))
		}
	}
	for _, path := range c.Deleted {
		carried = append(carried, Name(path, "deleted"))
	}
	for _, l := range c.Links {
		carried = append(carried, Name(l.Path, "link"))
	}
	for _, e := range c.Special {
		uncarried = append(uncarried, Name(e.Path, e.Type))
	}
	for _, e := range c.TooLarge {
		uncarried = append(uncarried, Name(e.Path, "too_large"))
	}
	for _, set := range []struct {
		why   string
		paths []string
	}{{"left_out_at_staging", c.Conflicts}, {"refused_name", c.Refused}, {"ignored", c.Ignored}} {
		for _, path := range set.paths {
			uncarried = append(uncarried, Name(path, set.why))
		}
	}
	return carried, uncarried
}
