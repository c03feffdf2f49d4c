package main

import (
	"context"
	"errors"

	"github.com/checkfu/checkfu/sandbox"
)

// WriteFile stages into mounts until they are sealed, and into the output tree.
func (p *provider) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	const op = sandbox.OpWriteFile
	if len(w.Content) > sandbox.MaxFileBytes {
		return sandbox.TooLarge(op, w.Path, sandbox.MaxFileBytes)
	}
	if err := w.Validate(); err != nil {
		return invalid(op, err)
	}
	if w.Symlink != "" {
		return invalid(op, &sandbox.Invalid{Field: "symlink", Expected: "none: the envelope does not say symlink_staging", Got: w.Symlink})
	}
	i, err := p.enter(ctx, op, id, "")
	if err != nil {
		return err
	}
	i.staging.RLock() // no activation comes between the check and the write
	defer i.staging.RUnlock()
	i.mu.Lock()
	state := i.value.State
	i.mu.Unlock()
	root := i.territory(w.Path)
	switch {
	case root == "" || root == w.Path:
		return sandbox.FailedAt(op, w.Path, sandbox.ReasonOutsideRoot, nil)
	case state == sandbox.StateActive && root != sandbox.OutputPath:
		return sandbox.Conflict(op, string(sandbox.StateProvisioning), string(state))
	}
	if err := write(i.roots[root], parts(w.Path, root), w); err != nil {
		return fault(op, w.Path, err)
	}
	return nil
}

// ReadFile reads one file of a mount or the output tree.
func (p *provider) ReadFile(ctx context.Context, id sandbox.InstanceID, r sandbox.FileRead) ([]byte, error) {
	const op = sandbox.OpReadFile
	if err := r.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	if !dayOne {
		return nil, sandbox.Unavailable(op, sandbox.RequireContainedRead, "a contained read", "none")
	}
	data, err := i.content(r.Path, r.AllowedRoot, r.MaximumBytes)
	if why := refusal(""); errors.As(err, &why) && why == tooLarge {
		return nil, sandbox.TooLarge(op, r.Path, r.MaximumBytes)
	}
	if err != nil {
		return nil, fault(op, r.Path, err)
	}
	return data, nil
}

// content reads a file that belongs to the same place as root.
func (i *instance) content(path, root string, maximum int64) ([]byte, error) {
	place := i.territory(root)
	if place == "" || i.territory(path) != place {
		return nil, outside
	}
	return read(i.roots[place], parts(path, place), maximum)
}

// ReadFiles reads a batch. A refused file is an answer like any other.
func (p *provider) ReadFiles(ctx context.Context, id sandbox.InstanceID, r sandbox.FilesRead) ([]sandbox.FileResult, error) {
	const op = sandbox.OpReadFiles
	if err := r.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	results := make([]sandbox.FileResult, len(r.Files))
	for n, f := range r.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := i.content(f.Path, r.AllowedRoot, f.MaximumBytes)
		switch why := refusal(""); {
		case errors.As(err, &why) && sandbox.Refusal(why).Valid():
			results[n].Refused = sandbox.Refusal(why)
		case err != nil:
			return nil, fault(op, f.Path, err)
		default:
			results[n].Content = data
		}
	}
	return results, nil
}

// ListDir names the regular files below a mount or the output tree.
func (p *provider) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	const op = sandbox.OpListDir
	if err := l.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	place := i.territory(l.Root)
	if place == "" {
		return nil, sandbox.FailedAt(op, l.Root, sandbox.ReasonOutsideRoot, nil)
	}
	entries, err := list(ctx, i.roots[place], parts(l.Root, place), l.MaxEntries, i.inner(place))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fault(op, l.Root, err)
	}
	return entries, nil
}
