package client

import (
	"sync"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// leases remember under which lease each instance was made.
type leases struct {
	otherwise wire.Lease

	mu     sync.Mutex
	held   map[sandbox.InstanceID]wire.Lease
	newest map[string]*epochs // by lease id
}

// epochs are what this client was given of one lease.
type epochs struct {
	newest    int64
	instances int // that are held under it
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

// ending returns the lease under which id may be torn down. Whoever was given a
// later epoch of its lease owns what the earlier ones made, and may end that,
// although nothing else of it goes on.
func (l *leases) ending(id sandbox.InstanceID) wire.Lease {
	lease := l.of(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.newest[lease.ID]; e != nil {
		lease.Epoch = max(lease.Epoch, e.newest)
	}
	return lease
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
		e := l.newest[lease.ID]
		if e == nil {
			if l.newest == nil {
				l.newest = map[string]*epochs{}
			}
			e = &epochs{}
			l.newest[lease.ID] = e
		}
		e.newest = max(e.newest, lease.Epoch)
		if !known {
			e.instances++
		}
	}
	return !known
}

func (l *leases) drop(id sandbox.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, known := l.held[id]
	if !known {
		return
	}
	delete(l.held, id)
	if e := l.newest[held.ID]; e.instances > 1 {
		e.instances--
	} else {
		delete(l.newest, held.ID)
	}
}
