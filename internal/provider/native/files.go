package native

import (
	"context"
	"errors"
	"io/fs"
	"sort"
	"strings"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

// locate returns the tree that owns a guest path and the path inside it.
func (in *instance) locate(op sandbox.Operation, path string) (tree, *contain.Root, string, error) {
	t, ok := parentTree(in.trees, path)
	in.mu.Lock()
	root := in.roots[t.guest]
	ending := in.ending
	in.mu.Unlock()
	switch {
	case ending:
		return tree{}, nil, "", sandbox.NoInstance(op, in.id)
	case !ok || root == nil:
		return tree{}, nil, "", sandbox.FailedAt(op, path, sandbox.ReasonOutsideRoot, nil)
	}
	return t, root, strings.TrimPrefix(path, t.guest+"/"), nil
}

// WriteFile writes below the deepest mount or the output tree. Once active,
// only the output tree is writable through this port.
func (p *Provider) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if len(w.Content) > sandbox.MaxFileBytes {
		return sandbox.TooLarge(sandbox.OpWriteFile, w.Path, sandbox.MaxFileBytes)
	}
	if err := w.Validate(); err != nil {
		return sandbox.Failed(sandbox.OpWriteFile, sandbox.ReasonInvalidRequest, err)
	}
	in, err := p.find(sandbox.OpWriteFile, id)
	if err != nil {
		return err
	}
	// Not into what is being copied: it would be told to be written, and be in no copy.
	if err := in.gate.enter(ctx); err != nil {
		return err
	}
	defer in.gate.leave()
	t, root, rel, err := in.locate(sandbox.OpWriteFile, w.Path)
	if err != nil {
		return err
	}
	switch {
	case t.mount:
		in.staging.RLock()
		defer in.staging.RUnlock()
		if in.sealed {
			return sandbox.Conflict(sandbox.OpWriteFile, string(sandbox.StateProvisioning), string(sandbox.StateActive))
		}
	case t.guest != sandbox.OutputPath: // the provider's own: home, control root, temporary files
		return sandbox.FailedAt(sandbox.OpWriteFile, w.Path, sandbox.ReasonOutsideRoot, nil)
	}
	if w.Symlink != "" {
		err = root.Symlink(w.Symlink, rel)
	} else {
		mode := fs.FileMode(0o644)
		if w.Executable {
			mode = 0o755
		}
		err = root.WriteFile(ctx, rel, w.Content, mode)
	}
	return fileError(sandbox.OpWriteFile, w.Path, sandbox.MaxFileBytes, err)
}

// ReadFile reads one file by descriptor below its root.
func (p *Provider) ReadFile(ctx context.Context, id sandbox.InstanceID, r sandbox.FileRead) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, sandbox.Failed(sandbox.OpReadFile, sandbox.ReasonInvalidRequest, err)
	}
	in, err := p.active(sandbox.OpReadFile, id)
	if err != nil {
		return nil, err
	}
	return in.read(ctx, sandbox.OpReadFile, r)
}

func (in *instance) read(ctx context.Context, op sandbox.Operation, r sandbox.FileRead) ([]byte, error) {
	t, root, rel, err := in.locate(op, r.Path)
	if err != nil {
		return nil, err
	}
	// The root that the caller allows must be the tree that owns the path: a
	// nested mount is another trust domain than the mount around it.
	if t.guest != r.AllowedRoot {
		return nil, sandbox.FailedAt(op, r.Path, sandbox.ReasonOutsideRoot, nil)
	}
	if err := in.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer in.gate.leave()
	content, err := root.ReadFile(ctx, rel, r.MaximumBytes)
	return content, fileError(op, r.Path, r.MaximumBytes, err)
}

// ReadFiles answers a batch in order; a file that cannot be read is a refusal
// of its own and does not spoil the others.
func (p *Provider) ReadFiles(ctx context.Context, id sandbox.InstanceID, r sandbox.FilesRead) ([]sandbox.FileResult, error) {
	if err := r.Validate(); err != nil {
		return nil, sandbox.Failed(sandbox.OpReadFiles, sandbox.ReasonInvalidRequest, err)
	}
	in, err := p.active(sandbox.OpReadFiles, id)
	if err != nil {
		return nil, err
	}
	results := make([]sandbox.FileResult, len(r.Files))
	for i, f := range r.Files {
		content, err := in.read(ctx, sandbox.OpReadFiles, sandbox.FileRead{Path: f.Path, AllowedRoot: r.AllowedRoot, MaximumBytes: f.MaximumBytes})
		if err == nil {
			results[i].Content = content
			continue
		}
		refused, ok := refusalOf(err)
		if !ok {
			return nil, err
		}
		results[i].Refused = refused
	}
	return results, nil
}

func refusalOf(err error) (sandbox.Refusal, bool) {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return "", false
	}
	if e.Kind == sandbox.FileTooLarge {
		return sandbox.RefusedTooLarge, true
	}
	r := sandbox.Refusal(e.Reason)
	return r, e.Kind == sandbox.OperationFailed && r.Valid()
}

// ListDir names the regular files below a root.
func (p *Provider) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	_, entries, err := p.list(ctx, sandbox.OpListDir, id, l)
	if err != nil {
		return nil, err
	}
	files := make([]sandbox.DirEntry, 0, len(entries))
	for _, e := range entries {
		if e.Type == contain.Regular {
			files = append(files, sandbox.DirEntry{Path: e.Path, Size: e.Size, Digest: sandbox.Digest(e.Digest)})
		}
	}
	return files, nil
}

// ListProjectDir names every leaf below a root. What the host cannot see (a
// FIFO or socket that lives in the guest's own kernel) the guest init names;
// where it cannot look, the listing is refused, never shortened.
func (p *Provider) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	in, entries, err := p.list(ctx, sandbox.OpListProjectDir, id, l)
	if err != nil {
		return sandbox.ProjectListing{}, err
	}
	leaves := make([]sandbox.Leaf, 0, len(entries))
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		leaf := sandbox.Leaf{Path: e.Path, Type: leafType(e.Type), Target: e.Target}
		if e.Type == contain.Regular {
			leaf.Size, leaf.Digest, leaf.Executable = e.Size, sandbox.Digest(e.Digest), e.Mode&0o111 != 0
		}
		seen[e.Path] = true
		leaves = append(leaves, leaf)
	}
	m, leave, err := in.enter(ctx, sandbox.OpListProjectDir)
	if err != nil {
		return sandbox.ProjectListing{}, err
	}
	defer leave()
	specials, err := m.Specials(ctx, l.Root, int(l.MaxEntries))
	if err != nil {
		return sandbox.ProjectListing{}, sandbox.FailedAt(sandbox.OpListProjectDir, l.Root, "special_files", err)
	}
	for _, s := range specials {
		rel, below := strings.CutPrefix(s.Path, l.Root+"/")
		owner, _ := parentTree(in.trees, s.Path)
		if !below || seen[rel] || owner.guest != l.Root { // of a nested mount: listed with that one
			continue
		}
		leaves = append(leaves, sandbox.Leaf{Path: rel, Type: sandbox.LeafType(s.Type), GuestObserved: true})
	}
	sort.Slice(leaves, func(i, j int) bool { return leaves[i].Path < leaves[j].Path })
	if int64(len(leaves)) > l.MaxEntries {
		return sandbox.ProjectListing{}, sandbox.FailedAt(sandbox.OpListProjectDir, l.Root, "too_many_entries", nil)
	}
	return sandbox.ProjectListing{Leaves: leaves, Complete: true}, nil
}

func leafType(t contain.Type) sandbox.LeafType {
	if leaf := sandbox.LeafType(t); leaf.Valid() {
		return leaf
	}
	return sandbox.LeafOther
}

func (p *Provider) list(ctx context.Context, op sandbox.Operation, id sandbox.InstanceID, l sandbox.Listing) (*instance, []contain.Entry, error) {
	if err := l.Validate(); err != nil {
		return nil, nil, sandbox.Failed(op, sandbox.ReasonInvalidRequest, err)
	}
	in, err := p.active(op, id)
	if err != nil {
		return nil, nil, err
	}
	in.mu.Lock()
	root := in.roots[l.Root]
	in.mu.Unlock()
	if root == nil {
		return nil, nil, sandbox.FailedAt(op, l.Root, sandbox.ReasonOutsideRoot, nil)
	}
	// A sparse file costs its author nothing and can be exabytes long; more
	// than this would be hashed zeros.
	limit := 4 * in.request.Profile.ResourceLimits.DiskBytes
	if err := in.gate.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer in.gate.leave()
	entries, err := root.List(ctx, ".", contain.ListOptions{MaximumEntries: int(l.MaxEntries), Digests: true, MaximumBytes: limit})
	return in, entries, fileError(op, l.Root, limit, err)
}

// active returns an instance that accepts reads.
func (p *Provider) active(op sandbox.Operation, id sandbox.InstanceID) (*instance, error) {
	in, err := p.find(op, id)
	if err != nil {
		return nil, err
	}
	_, err = in.use(op)
	return in, err
}

// fileError turns a refusal of the contained tree into the contract's words.
func fileError(op sandbox.Operation, path string, limit int64, err error) error {
	if err == nil {
		return nil
	}
	var e *contain.Error
	if !errors.As(err, &e) {
		return sandbox.FailedAt(op, path, sandbox.ReasonProviderError, err)
	}
	switch e.Refusal {
	case contain.ErrTooLarge:
		return sandbox.TooLarge(op, path, limit)
	case contain.ErrTooMany:
		return sandbox.FailedAt(op, path, "too_many_entries", err)
	}
	return sandbox.FailedAt(op, path, string(e.Refusal), err)
}
