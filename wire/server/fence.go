package server

import (
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// leases is what fences: the highest epoch that was seen of each lease, and the
// lease that each instance was allocated under.
// Source: contract "The operations"; docs/divergences.md.
type leases struct {
	store store.Store
	clock Clock

	mu        sync.Mutex
	epochs    map[string]*lease
	instances map[sandbox.InstanceID]*binding
}

// lease is one lease. Its lock is held while a higher epoch is made durable.
type lease struct {
	mu    sync.Mutex
	epoch int64 // -1: none yet
	seen  time.Time
	gone  bool // forgotten: look it up again
}

// binding is an instance that this server handed out.
type binding struct {
	Lease string            `json:"lease"`
	Owner wire.OperationID  `json:"owner"` // the operation that allocated it
	Until sandbox.Timestamp `json:"until"` // its own deadline, or when it ended
	Ended bool              `json:"ended"`
}

func newLeases(st store.Store, clock Clock) *leases {
	return &leases{store: st, clock: clock, epochs: map[string]*lease{}, instances: map[sandbox.InstanceID]*binding{}}
}

// maxLeases bounds the leases that are remembered.
const maxLeases = 1 << 17

// lock returns a lease, locked.
func (l *leases) lock(id string) (*lease, error) {
	for {
		l.mu.Lock()
		e := l.epochs[id]
		if e == nil {
			if len(l.epochs) >= maxLeases {
				l.mu.Unlock()
				return nil, &wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: wire.MaxRetryAfterMS}
			}
			e = &lease{epoch: -1}
			l.epochs[id] = e
		}
		l.mu.Unlock()
		e.mu.Lock()
		if !e.gone {
			return e, nil
		}
		e.mu.Unlock()
	}
}

// admit refuses an epoch below the highest of its lease. A higher one is durable
// before admit returns; raised says that streams of lower ones have to end.
// Errors: *wire.Error with TagLeaseFenced; the store's.
func (l *leases) admit(h wire.Lease) (raised bool, err error) {
	e, err := l.lock(h.ID)
	if err != nil {
		return false, err
	}
	defer e.mu.Unlock()
	e.seen = l.clock.Now()
	switch {
	case h.Epoch < e.epoch:
		return false, &wire.Error{Tag: wire.TagLeaseFenced, LeaseEpoch: e.epoch}
	case h.Epoch == e.epoch:
		return false, nil
	}
	if err := store.Put(l.store, store.Set(store.Leases, h.ID, []byte(itoa(h.Epoch)))); err != nil {
		return false, err
	}
	raised = e.epoch >= 0
	e.epoch = h.Epoch
	return raised, nil
}

// current returns an error where h has been overtaken since it was admitted.
func (l *leases) current(h wire.Lease) error {
	e, err := l.lock(h.ID)
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	if h.Epoch < e.epoch {
		return &wire.Error{Tag: wire.TagLeaseFenced, LeaseEpoch: e.epoch}
	}
	return nil
}

// holds checks that id is an instance that was handed out under h's lease.
// Errors: InstanceNotFound; *wire.Error with TagLeaseFenced for another lease,
// with the epoch of the one that holds the instance.
func (l *leases) holds(op sandbox.Operation, id sandbox.InstanceID, h wire.Lease) error {
	l.mu.Lock()
	b := l.instances[id]
	known := b != nil && !b.Ended
	other := known && b.Lease != h.ID
	var owner string
	if other {
		owner = b.Lease
	}
	l.mu.Unlock()
	if !known {
		return sandbox.NoInstance(op, id)
	}
	if !other {
		return nil
	}
	e, err := l.lock(owner)
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	return &wire.Error{Tag: wire.TagLeaseFenced, LeaseEpoch: max(e.epoch, 0)}
}

// bind notes that operation op allocated an instance. It returns false where
// another operation has: then the provider named somebody else's instance, and
// nothing may ever be undone by that name.
func (l *leases) bind(id sandbox.InstanceID, b binding) (store.Change, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if have := l.instances[id]; have != nil && have.Owner != b.Owner {
		return store.Change{}, false
	}
	l.instances[id] = &b
	return l.written(id, &b), true
}

// end notes that an instance is gone.
func (l *leases) end(ids ...sandbox.InstanceID) []store.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	var changes []store.Change
	for _, id := range ids {
		if b := l.instances[id]; b != nil && !b.Ended {
			b.Ended, b.Until = true, sandbox.At(l.clock.Now())
			changes = append(changes, l.written(id, b))
		}
	}
	return changes
}

// ended says whether id was an instance of h's lease that is gone.
func (l *leases) ended(id sandbox.InstanceID, h wire.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.instances[id]
	return b != nil && b.Ended && b.Lease == h.ID
}

// until returns how long an instance is to be remembered for at least; zero for
// one that is not known.
func (l *leases) until(id sandbox.InstanceID) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.instances[id]; b != nil {
		t, _ := b.Until.Time()
		return t
	}
	return time.Time{}
}

func (l *leases) written(id sandbox.InstanceID, b *binding) store.Change {
	value, err := canonical.Encode(*b)
	if err != nil { // every field was checked when it came
		value = nil
	}
	return store.Set(store.Instances, string(id), value)
}

// sweep forgets instances that ended, or expired, retention ago, and leases
// that nobody used since. It returns the instances.
func (l *leases) sweep(now time.Time) (gone []sandbox.InstanceID, changes []store.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := map[string]bool{}
	for id, b := range l.instances {
		if t, err := b.Until.Time(); err == nil && now.Sub(t) > retention {
			gone = append(gone, id)
			delete(l.instances, id)
			changes = append(changes, store.Remove(store.Instances, string(id)))
		} else {
			used[b.Lease] = true
		}
	}
	for id, e := range l.epochs {
		if used[id] || !e.mu.TryLock() {
			continue
		}
		if e.epoch >= 0 && now.Sub(e.seen) > retention {
			e.gone = true
			delete(l.epochs, id)
			changes = append(changes, store.Remove(store.Leases, id))
		}
		e.mu.Unlock()
	}
	return gone, changes
}

// admit fences one call, and ends what a higher epoch ends.
func (s *Server) admit(h wire.Lease) error {
	raised, err := s.leases.admit(h)
	if raised {
		s.processes.fence(h)
	}
	return err
}
