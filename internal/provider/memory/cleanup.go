package memory

import (
	"context"
	"slices"

	"github.com/checkfu/checkfu/sandbox"
)

// Cleanup destroys what is orphaned and names it.
//
// An instance is orphaned past its own deadline; or when its owner is provably
// gone (its lease was seen with a higher epoch) and no member was called on it
// since before the cutoff. One that is owned and not expired is never swept.
//
// A snapshot is orphaned past its own deadline, pinned or not; or when it is
// not pinned and was neither made, cloned nor resumed since before the cutoff.
//
// Times are the request's. Ids are in ascending order.
// Errors: OperationFailed, also for more than 1,024 pins: nothing is swept
// then, because a shortened list of pins would sweep what is pinned.
// Source: contract "Cleanup and pinning".
func (p *Provider) Cleanup(ctx context.Context, r sandbox.CleanupRequest) (sandbox.Swept, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Swept{}, err
	}
	if err := r.Validate(); err != nil {
		return sandbox.Swept{}, invalid(sandbox.OpCleanup, err)
	}
	swept := sandbox.Swept{InstanceIDs: []sandbox.InstanceID{}, SnapshotIDs: []sandbox.SnapshotID{}}
	var orphans []*instance
	p.mu.Lock()
	for _, i := range p.instances {
		if i.orphaned(r, p.epochs[i.value.LeaseID]) {
			orphans = append(orphans, i)
		}
	}
	for id, s := range p.snapshots {
		expired := !r.Now.Before(s.ref.ExpiresAt)
		if expired || s.seen.Before(r.OrphanedBefore) && !slices.Contains(r.PinnedSnapshots, id) {
			s.root.erase()
			delete(p.snapshots, id)
			swept.SnapshotIDs = append(swept.SnapshotIDs, id)
		}
	}
	p.mu.Unlock()
	for _, i := range orphans {
		if err := p.discard(ctx, i); err != nil {
			return sandbox.Swept{}, err
		}
		swept.InstanceIDs = append(swept.InstanceIDs, i.value.InstanceID)
	}
	slices.Sort(swept.InstanceIDs)
	slices.Sort(swept.SnapshotIDs)
	return swept, nil
}

// orphaned says whether a sweep may take i. epoch is the highest that was seen
// of its lease: who holds a lower one is fenced out.
func (i *instance) orphaned(r sandbox.CleanupRequest, epoch int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !r.Now.Before(i.value.ExpiresAt) || epoch > i.value.LeaseEpoch && i.seen.Before(r.OrphanedBefore)
}
