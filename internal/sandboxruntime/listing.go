package sandboxruntime

import (
	"context"

	"github.com/checkfu/checkfu/sandbox"
)

// ListDir names every regular file below a root of an active instance.
// Errors: LifecycleConflict{list_dir_unsupported} if the provider has no such
// member or does not claim it; ProtocolInvalid for a listing that is over
// l.MaxEntries, out of order, or malformed.
// Source: contract "The operations", row listDir.
func (r *Runtime) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	const op = sandbox.OpListDir
	if r.optional.ListDir == nil || !r.capabilities.ListDir {
		return nil, sandbox.Conflict(op, string(op), sandbox.ActualListDirUnsupported)
	}
	entries, err := listed(ctx, r, op, id, l, func(ctx context.Context) ([]sandbox.DirEntry, error) {
		return r.optional.ListDir.ListDir(ctx, id, l)
	})
	if err != nil {
		return nil, err
	}
	if err := sandbox.ValidateEntries(entries, l.MaxEntries); err != nil {
		return nil, rejected(op, err)
	}
	return entries, nil
}

// ListProjectDir names every leaf below a root of an active instance, special
// files included.
// Errors: LifecycleConflict{list_project_dir_unsupported}; ProtocolInvalid for
// a listing that is not complete, over l.MaxEntries, out of order, or
// malformed.
// Source: contract "The operations", row listProjectDir.
func (r *Runtime) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	const op = sandbox.OpListProjectDir
	if r.optional.ListProjectDir == nil {
		return sandbox.ProjectListing{}, sandbox.Conflict(op, string(op), sandbox.ActualListProjectDirUnsupported)
	}
	listing, err := listed(ctx, r, op, id, l, func(ctx context.Context) (sandbox.ProjectListing, error) {
		return r.optional.ListProjectDir.ListProjectDir(ctx, id, l)
	})
	if err != nil {
		return sandbox.ProjectListing{}, err
	}
	if err := listing.Validate(l.MaxEntries); err != nil {
		return sandbox.ProjectListing{}, rejected(op, err)
	}
	return listing, nil
}

// listed admits one listing and makes the call.
func listed[T any](ctx context.Context, r *Runtime, op sandbox.Operation, id sandbox.InstanceID, l sandbox.Listing, run func(context.Context) (T, error)) (T, error) {
	var zero T
	if err := l.Validate(); err != nil {
		return zero, refused(op, err)
	}
	i, err := r.enter(op, id, active)
	if err != nil {
		return zero, err
	}
	if i.rootOf(l.Root) == "" {
		i.leave()
		return zero, sandbox.FailedAt(op, l.Root, sandbox.ReasonOutsideRoot, nil)
	}
	return use(ctx, r, i, call[T]{op: op, run: run})
}
