package client

import (
	"sync"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// leases remember under which lease each instance was made.
type leases struct {
	otherwise wire.Lease

	mu   sync.Mutex
	held map[sandbox.InstanceID]wire.Lease
}

// of returns the lease of id.
func (l *leases) of(id sandbox.InstanceID) wire.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.held[id]; ok {
		return held
	}
	return l.otherwise
}

// keep remembers, and says whether id is new. An id that is already another
// lease's stays that lease's: a provider that forges a neighbour's id must not
// turn the neighbour's calls into stale ones.
func (l *leases) keep(id sandbox.InstanceID, lease wire.Lease) (fresh bool) {
	if sandbox.CheckInstanceID("instance_id", id) != nil {
		return false // no request could name it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held, known := l.held[id]
	if !known || held.ID == lease.ID && held.Epoch < lease.Epoch {
		l.held[id] = lease
	}
	return !known
}

func (l *leases) drop(id sandbox.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
}
