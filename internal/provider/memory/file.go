package memory

import (
	"context"
	"errors"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// fileError turns an error of the tree into one of the contract.
func fileError(op sandbox.Operation, path string, limit int64, err error) error {
	switch {
	case err == errNoSpace:
		return sandbox.Unavailable(op, sandbox.RequireResources, path, "disk_bytes")
	case err == refusedTooLarge:
		return sandbox.TooLarge(op, path, limit)
	}
	if r := refusal(""); errors.As(err, &r) {
		return sandbox.FailedAt(op, path, string(r), nil)
	}
	return sandbox.FailedAt(op, path, sandbox.ReasonProviderError, err)
}

// WriteFile writes a file, or a symbolic link, and makes missing parents.
// While provisioning, any mount and the output tree may be written; when
// active, the output tree alone. It follows no link.
// Errors: InstanceNotFound; LifecycleConflict (expired, or active and the path
// is in a mount); FileTooLarge; CapabilityUnavailable (disk_bytes);
// OperationFailed with outside_root, not_regular, not_directory.
// Source: contract "The operations", row writeFile; "Paths, mounts, and what
// the Runner admits first".
func (p *Provider) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	const op = sandbox.OpWriteFile
	if len(w.Content) > sandbox.MaxFileBytes {
		return sandbox.TooLarge(op, w.Path, sandbox.MaxFileBytes)
	}
	if err := w.Validate(); err != nil {
		return invalid(op, err)
	}
	i, leave, err := p.enter(ctx, op, id, "")
	if err != nil {
		return err
	}
	defer leave()
	// The state must not change between the check and the write: activation
	// seals. i.mu before tree.mu, everywhere.
	i.mu.Lock()
	defer i.mu.Unlock()
	t := i.m.tree
	territory := t.territory(w.Path)
	switch {
	case territory == "" || territory == w.Path:
		return sandbox.FailedAt(op, w.Path, sandbox.ReasonOutsideRoot, nil)
	case i.value.State == sandbox.StateActive && territory != sandbox.OutputPath:
		return sandbox.Conflict(op, string(sandbox.StateProvisioning), string(sandbox.StateActive))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.put(w.Path, newFile(w)); err != nil {
		return fileError(op, w.Path, 0, err)
	}
	return nil
}

// newFile is the node of an admitted write. It shares nothing with the caller.
func newFile(w sandbox.FileWrite) *node {
	n := &node{mode: 0o644}
	switch {
	case w.Symlink != "":
		return &node{kind: symlink, mode: 0o777, target: w.Symlink}
	case w.Executable:
		n.mode = 0o755
	}
	n.data = append([]byte{}, w.Content...)
	return n
}

// ReadFile reads one regular file. Nothing but the names as they are counts: a
// symbolic link anywhere on the way, the last name included, is refused as
// outside_root, as is a path in another mount than the root's.
// Errors: InstanceNotFound; LifecycleConflict; FileTooLarge; OperationFailed
// with outside_root, not_found or not_regular.
// Source: contract "Paths, mounts, and what the Runner admits first".
func (p *Provider) ReadFile(ctx context.Context, id sandbox.InstanceID, r sandbox.FileRead) ([]byte, error) {
	const op = sandbox.OpReadFile
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := r.Validate(); err != nil {
		if sandbox.CheckPath("path", r.Path) == nil && sandbox.CheckPath("allowed_root", r.AllowedRoot) == nil &&
			(!sandbox.Within(r.Path, r.AllowedRoot) || r.Path == r.AllowedRoot) {
			return nil, sandbox.FailedAt(op, r.Path, sandbox.ReasonOutsideRoot, err)
		}
		return nil, invalid(op, err)
	}
	data, err := i.m.tree.read(r.Path, r.AllowedRoot, r.MaximumBytes)
	if err != nil {
		return nil, fileError(op, r.Path, r.MaximumBytes, err)
	}
	return data, nil
}

// ReadFiles reads a batch. A refused file is an answer like any other.
// Errors: InstanceNotFound; LifecycleConflict; OperationFailed.
// Source: contract "The operations", row readFiles.
func (p *Provider) ReadFiles(ctx context.Context, id sandbox.InstanceID, r sandbox.FilesRead) ([]sandbox.FileResult, error) {
	const op = sandbox.OpReadFiles
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := r.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	results := make([]sandbox.FileResult, len(r.Files))
	for n, f := range r.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := i.m.tree.read(f.Path, r.AllowedRoot, f.MaximumBytes)
		if refused, ok := err.(refusal); ok {
			results[n].Refused = sandbox.Refusal(refused)
			continue
		}
		results[n].Content = data
	}
	return results, nil
}

// ListDir names the regular files below a mount or the output tree.
// Errors: InstanceNotFound; LifecycleConflict; OperationFailed with
// outside_root, not_found, not_directory, or too_many_entries: a listing is never
// shortened.
// Source: contract "The operations", row listDir.
func (p *Provider) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	found, err := p.walk(ctx, sandbox.OpListDir, id, l, func(k kind) bool { return k == regular })
	if err != nil {
		return nil, err
	}
	entries := make([]sandbox.DirEntry, len(found))
	for n, f := range found {
		entries[n] = sandbox.DirEntry{Path: f.path, Size: int64(len(f.node.data)), Digest: digestOf(f.node.data)}
	}
	return entries, nil
}

// leafTypes gives each kind its name in a project listing.
var leafTypes = map[kind]sandbox.LeafType{
	regular: sandbox.LeafRegular, symlink: sandbox.LeafSymlink, fifo: sandbox.LeafFIFO,
	socket: sandbox.LeafSocket, device: sandbox.LeafDevice,
}

// ListProjectDir names every leaf below a mount or the output tree. A
// submodule's files are named one by one, like any others.
// Errors: as ListDir.
// Source: contract "The operations", row listProjectDir.
func (p *Provider) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	found, err := p.walk(ctx, sandbox.OpListProjectDir, id, l, func(kind) bool { return true })
	if err != nil {
		return sandbox.ProjectListing{}, err
	}
	leaves := make([]sandbox.Leaf, len(found))
	for n, f := range found {
		leaves[n] = sandbox.Leaf{Path: f.path, Type: leafTypes[f.node.kind], Target: f.node.target}
		if f.node.kind == regular {
			leaves[n].Size, leaves[n].Digest = int64(len(f.node.data)), digestOf(f.node.data)
			leaves[n].Executable = f.node.mode&0o100 != 0
		}
	}
	return sandbox.ProjectListing{Leaves: leaves, Complete: true}, nil
}

func (p *Provider) walk(ctx context.Context, op sandbox.Operation, id sandbox.InstanceID, l sandbox.Listing, want func(kind) bool) ([]leaf, error) {
	i, leave, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := l.Validate(); err != nil {
		return nil, invalid(op, err)
	}
	found, err := i.m.tree.leaves(l.Root, l.MaxEntries, want)
	if err == refusedTooMany {
		return nil, sandbox.FailedAt(op, l.Root, sandbox.ReasonTooManyEntries, errors.New("more than "+strconv.FormatInt(l.MaxEntries, 10)+" entries"))
	}
	if err != nil {
		return nil, fileError(op, l.Root, 0, err)
	}
	return found, nil
}

// Plant puts what no program of the machine can make, a socket or a device,
// or anything else, at a path in a mount or the output tree. It is for tests
// of listings and reads, and asks no state.
// Errors: as WriteFile.
func (p *Provider) Plant(ctx context.Context, id sandbox.InstanceID, path string, t sandbox.LeafType) error {
	const op = sandbox.OpWriteFile
	if err := sandbox.CheckPath("path", path); err != nil {
		return invalid(op, err)
	}
	for k, name := range leafTypes {
		if name != t {
			continue
		}
		i, leave, err := p.enter(ctx, op, id, "")
		if err != nil {
			return err
		}
		defer leave()
		tr := i.m.tree
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if owner := tr.territory(path); owner == "" || owner == path {
			return sandbox.FailedAt(op, path, sandbox.ReasonOutsideRoot, nil)
		}
		if _, err := tr.put(path, &node{kind: k, mode: 0o666}); err != nil {
			return fileError(op, path, 0, err)
		}
		return nil
	}
	return invalid(op, &sandbox.Invalid{Field: "type", Expected: "regular, symlink, fifo, socket or device", Got: string(t)})
}
