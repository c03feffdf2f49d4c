package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// lineage is what came of what.
type lineage struct {
	mu      sync.Mutex
	clones  map[sandbox.SnapshotID][]sandbox.SnapshotID // of a source
	sources map[sandbox.SnapshotID][]sandbox.SnapshotID // of a clone, its own
	resumed map[sandbox.InstanceID]sandbox.SnapshotID
	writes  map[sandbox.SnapshotID][]sandbox.FileWrite // over machines of a snapshot
}

func newLineage() *lineage {
	return &lineage{
		clones: map[sandbox.SnapshotID][]sandbox.SnapshotID{}, sources: map[sandbox.SnapshotID][]sandbox.SnapshotID{},
		resumed: map[sandbox.InstanceID]sandbox.SnapshotID{}, writes: map[sandbox.SnapshotID][]sandbox.FileWrite{},
	}
}

func (l *lineage) cloned(source, clone sandbox.SnapshotID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clones[source] = append(l.clones[source], clone)
	l.sources[clone] = []sandbox.SnapshotID{source}
}

func (l *lineage) of(list func(*lineage, sandbox.SnapshotID) []sandbox.SnapshotID, id sandbox.SnapshotID) []sandbox.SnapshotID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(list(l, id))
}

// clone records what a clone is of.
func (l *lineage) clone(p sandbox.Provider) func(context.Context, sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		h, err := p.CloneSnapshot(ctx, q)
		if err == nil {
			l.cloned(q.Snapshot.SnapshotID, h.Value.SnapshotID)
		}
		return h, err
	}
}

// captures records the snapshots of each instance.
type captures struct {
	mu   sync.Mutex
	list map[sandbox.InstanceID][]sandbox.Snapshot
}

// take is snapshot, recorded; note, if not nil, is told of each.
func (c *captures) take(p sandbox.Provider) func(context.Context, sandbox.InstanceID, sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
	return func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
		h, err := p.Snapshot(ctx, id, q)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.list == nil {
				c.list = map[sandbox.InstanceID][]sandbox.Snapshot{}
			}
			c.list[id] = append(c.list[id], h.Value)
		}
		return h, err
	}
}

func (c *captures) of(id sandbox.InstanceID) []sandbox.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list[id])
}

// beside are the other snapshots of the instance that one is of.
func (c *captures) beside(id sandbox.SnapshotID) (others []sandbox.SnapshotID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.list {
		if !slices.ContainsFunc(all, func(s sandbox.Snapshot) bool { return s.SnapshotID == id }) {
			continue
		}
		for _, s := range all {
			if s.SnapshotID != id {
				others = append(others, s.SnapshotID)
			}
		}
	}
	return others
}

// issued records the id of every snapshot.
func issued(p sandbox.Provider, ids *sync.Map) Override {
	return Override{
		Provider: p,
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.Snapshot(ctx, id, q)
			ids.Store(h.Value.SnapshotID, false)
			return h, err
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			h, err := p.CloneSnapshot(ctx, q)
			ids.Store(h.Value.SnapshotID, true)
			return h, err
		},
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			h, err := p.Release(ctx, id, q)
			if h.Value.Snapshot != nil {
				ids.Store(h.Value.Snapshot.SnapshotID, false)
			}
			return h, err
		},
	}
}
