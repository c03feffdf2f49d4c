package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// Destination is where Fetch puts what it reads.
type Destination struct {
	// Dir is a directory of the host, made where it is missing; a link on the way to
	// it is the user's own. Name is the file or directory in it that is written.
	Dir, Name string
	// Writer takes a single file instead.
	Writer io.Writer
	// Large brings files above sandbox.MaxFileBytes; nil leaves them out as too large.
	Large Large
}

// ErrOutside is the cause when a path lies neither in a mount nor in the output
// tree: the contract lets a Runner read and write nothing else from outside.
var ErrOutside = errors.New("outside the mounts and the output tree")

// ErrNoLeaf is the cause when there is nothing to copy at a path.
var ErrNoLeaf = errors.New("no such file, nor a directory with files in it")

// Fetch copies a file, or a directory with all below it, out of a machine that is
// there already. The names below it are the machine's, so every file is written by
// descriptor below Dir, and what the listing named is what is written: other bytes,
// links, special files, and names that git would take for a repository's own, there or
// in the machine, are named and not copied (Output.Refused). What is outside is told
// apart by its names alone.
//
// Blocks: on the machine's provider, until ctx is done.
// Bounds: sandbox.MaxFileBytes a file, but for what Large brings; sandbox.MaxListEntries.
// Errors: ErrOutside, ErrNoLeaf; the provider's; the host's; those of Large, once the
// rest is copied.
func (r *Runner) Fetch(ctx context.Context, in sandbox.Instance, from string, to Destination) ([]Output, error) {
	s, ctx, end, err := r.held(ctx, in)
	if err != nil {
		return nil, err
	}
	defer end()
	root, leaves, err := s.below(ctx, in, from)
	if err != nil && (to.Writer != nil || !errors.Is(err, ErrOutside)) {
		return nil, err
	}
	if to.Writer != nil {
		return s.fetchOne(ctx, root, leaves, from, to)
	}
	dir, openErr := openOutDir(to.Dir)
	if openErr != nil {
		return nil, openErr
	}
	defer dir.Close()
	if err == nil {
		return s.fetchAll(ctx, root, leaves, from, dir, to)
	}
	// Whoever reads it by other means would write it under this name.
	if mount.Reserved(from) || into(dir, []string{to.Name}).reserves(to.Name) {
		return []Output{{Path: text(to.Name), PathHex: asHex(to.Name), Refused: refusedName}}, nil
	}
	return nil, err
}

// held is a session on a machine that is there already.
func (r *Runner) held(ctx context.Context, in sandbox.Instance) (*session, context.Context, func(), error) {
	s, ctx, end := r.begin(ctx, Spec{})
	s.id = in.InstanceID
	runtime, err := s.adopted(ctx, in)
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	s.runtime = runtime
	return s, ctx, end, nil
}

// below lists what is at a path and below it: leaves relative to root, which is the
// path itself, or the directory above it for what is not a root of its own.
func (s *session) below(ctx context.Context, in sandbox.Instance, from string) (root string, leaves []sandbox.Leaf, err error) {
	whole := from == sandbox.OutputPath
	tree := sandbox.Within(from, sandbox.OutputPath)
	for _, m := range in.Mounts {
		whole = whole || m.MountPath == from
		tree = tree || sandbox.Within(from, m.MountPath)
	}
	if !tree {
		return "", nil, fmt.Errorf("%s: %w", text(from), ErrOutside)
	}
	if root = from; !whole {
		root = path.Dir(from)
	}
	all, err := s.list(ctx, root)
	if err != nil || whole {
		return root, all, err
	}
	base := path.Base(from)
	for _, l := range all {
		if l.Path == base || strings.HasPrefix(l.Path, base+"/") {
			leaves = append(leaves, l)
		}
	}
	if len(leaves) == 0 {
		return "", nil, fmt.Errorf("%s: %w", text(from), ErrNoLeaf)
	}
	return root, leaves, nil
}

func (s *session) fetchAll(ctx context.Context, root string, leaves []sandbox.Leaf, from string, to *contain.Root, d Destination) ([]Output, error) {
	// What was asked for is given its new name; what is below it keeps its own.
	targets := make([]string, len(leaves))
	for i, l := range leaves {
		targets[i] = filepath.Join(d.Name, l.Path)
		if root != from {
			targets[i] = d.Name + strings.TrimPrefix(l.Path, path.Base(from))
		}
	}
	files, folder := s.files(ctx, root, membersOf(leaves)), into(to, targets)
	folder.large = d.Large
	var outputs []Output
	for i, l := range leaves {
		o := Output{Path: text(targets[i]), PathHex: asHex(targets[i]), Type: l.Type, Size: l.Size, Digest: l.Digest}
		var err error
		if o.Refused, err = s.output(ctx, l, files, folder, targets[i]); err != nil {
			return outputs, err
		}
		outputs = append(outputs, o)
	}
	return outputs, folder.unread
}

// fetchOne writes a single file to the Writer of d.
func (s *session) fetchOne(ctx context.Context, root string, leaves []sandbox.Leaf, from string, d Destination) ([]Output, error) {
	l := leaves[0]
	if root == from || l.Path != path.Base(from) || l.Type != sandbox.LeafRegular {
		return nil, fmt.Errorf("%s: expected a regular file", text(from))
	}
	o := Output{Path: text(from), PathHex: asHex(from), Type: l.Type, Size: l.Size, Digest: l.Digest}
	if l.Size > sandbox.MaxFileBytes && d.Large == nil {
		o.Refused = string(sandbox.RefusedTooLarge)
		return []Output{o}, nil
	}
	if l.Size > sandbox.MaxFileBytes {
		err := d.Large.checked(ctx, root, l, d.Writer)
		if errors.Is(err, errOther) {
			o.Refused, err = refusedChanged, nil
		}
		return []Output{o}, err
	}
	content, err := s.files(ctx, root, membersOf(leaves)).content(l.Path)
	if err == nil {
		_, err = d.Writer.Write(content)
	}
	return []Output{o}, err
}

func membersOf(leaves []sandbox.Leaf) []sandbox.FileMember {
	var members []sandbox.FileMember
	for _, l := range leaves {
		if l.Type == sandbox.LeafRegular && l.Size <= sandbox.MaxFileBytes {
			members = append(members, sandbox.FileMember{Path: l.Path, MaximumBytes: l.Size})
		}
	}
	return members
}

// Put writes one file into a machine that is there already, whole or not at all: into
// the output tree, or, as an active write, into a mount of a provider that has such.
// Errors: ErrOutside for any other place, ErrReadOnly; the provider's.
func (r *Runner) Put(ctx context.Context, in sandbox.Instance, w sandbox.FileWrite) error {
	s, ctx, end, err := r.held(ctx, in)
	if err != nil {
		return err
	}
	defer end()
	if sandbox.Within(w.Path, sandbox.OutputPath) {
		return s.runtime.WriteFile(ctx, s.id, w)
	}
	m, ok := sandbox.OwningMount(in.Mounts, w.Path)
	switch {
	case ok && m.Access != sandbox.AccessReadWrite:
		return fmt.Errorf("%s: %w", text(w.Path), ErrReadOnly)
	case !ok || !s.runtime.Capabilities().ActiveMountWrite:
		return fmt.Errorf("%s: %w", text(w.Path), ErrOutside)
	}
	return s.publish(ctx, w)
}

// ErrReadOnly is the cause when a path lies in a read-only mount.
var ErrReadOnly = errors.New("in a read-only mount")

// publish writes one file by a transaction of its own.
func (s *session) publish(ctx context.Context, w sandbox.FileWrite) error {
	t, err := s.runtime.BeginActiveWrite(ctx, s.id, []string{w.Path})
	if err != nil {
		return err
	}
	dispatched := false
	if err = t.Stage(ctx, w); err == nil {
		err = t.Dispatch(ctx, func() { dispatched = true })
	}
	if err != nil && !dispatched {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.RollbackSeconds*time.Second)
		defer cancel()
		err = errors.Join(err, t.Abort(ending))
	}
	return err
}
