package sandboxruntime

import (
	"context"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
)

// WriteFile writes one file through the trusted port. While provisioning it
// may lie in any declared mount or the output tree; in an active instance in
// the output tree only.
// Errors: FileTooLarge; OperationFailed{outside_root} for a path outside all
// of them; LifecycleConflict for a mount of an active instance;
// CapabilityUnavailable{mounts} for a symlink where the provider stages none.
// Source: contract "Paths, mounts, and what the Runner admits first".
func (r *Runtime) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	const op = sandbox.OpWriteFile
	if len(w.Content) > sandbox.MaxFileBytes {
		return sandbox.TooLarge(op, excerpt(w.Path), sandbox.MaxFileBytes)
	}
	if err := w.Validate(); err != nil {
		return refused(op, err)
	}
	i, err := r.enter(op, id, provisioning, active)
	if err != nil {
		return err
	}
	if err := r.admitWrite(i, w); err != nil {
		i.leave()
		return err
	}
	_, err = use(ctx, r, i, call[none]{op: op, run: func(ctx context.Context) (none, error) {
		return none{}, r.provider.WriteFile(ctx, id, w)
	}})
	return err
}

func (r *Runtime) admitWrite(i *instance, w sandbox.FileWrite) error {
	const op = sandbox.OpWriteFile
	root := i.rootOf(w.Path)
	if root == "" || root == w.Path {
		return sandbox.FailedAt(op, w.Path, sandbox.ReasonOutsideRoot, nil)
	}
	// The phase cannot move on while this use is counted.
	if root != sandbox.OutputPath && i.at() != provisioning {
		return sandbox.Conflict(op, string(provisioning), string(active))
	}
	if w.Symlink != "" && !r.capabilities.SymlinkStaging {
		return sandbox.Unavailable(op, sandbox.RequireMounts, "symlink_staging: true", "symlink_staging: false")
	}
	return r.expired(op, i)
}

func (i *instance) at() phase {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.phase
}

// rootOf returns the root that owns path: the deepest mount, or the output
// tree, or "" if none does. Roots are derived from the instance's own mounts
// and never taken from a caller; containment below them is the provider's, and
// physical.
// Source: contract "Paths, mounts, and what the Runner admits first".
func (i *instance) rootOf(path string) string {
	if sandbox.Within(path, sandbox.OutputPath) {
		return sandbox.OutputPath
	}
	owner, _ := sandbox.OwningMount(i.request.Mounts, path)
	return owner.MountPath
}

// ReadFile reads one file of an active instance, at most maximumBytes long.
// Errors: OperationFailed{outside_root, not_found, not_regular}; FileTooLarge;
// CapabilityUnavailable{physically_contained_file_read} from a provider that
// fails reads closed; ProtocolInvalid for content over maximumBytes.
// Source: contract "The operations", row readFile.
func (r *Runtime) ReadFile(ctx context.Context, id sandbox.InstanceID, path string, maximumBytes int64) ([]byte, error) {
	const op = sandbox.OpReadFile
	if err := sandbox.CheckPath("path", path); err != nil {
		return nil, refused(op, err)
	}
	i, err := r.enter(op, id, active)
	if err != nil {
		return nil, err
	}
	q := sandbox.FileRead{Path: path, AllowedRoot: i.rootOf(path), MaximumBytes: maximumBytes}
	if q.AllowedRoot == "" || q.AllowedRoot == path {
		i.leave()
		return nil, sandbox.FailedAt(op, path, sandbox.ReasonOutsideRoot, nil)
	}
	if err := q.Validate(); err != nil {
		i.leave()
		return nil, refused(op, err)
	}
	content, err := use(ctx, r, i, call[[]byte]{op: op, run: func(ctx context.Context) ([]byte, error) {
		return r.provider.ReadFile(ctx, id, q)
	}})
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > maximumBytes {
		return nil, protocolInvalid(op, "content", "at most "+strconv.FormatInt(maximumBytes, 10)+" bytes", strconv.Itoa(len(content))+" bytes")
	}
	return content, nil
}
