package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// retention is how long an operation is remembered after its allocation ended.
const retention = wire.JournalMS * time.Millisecond

// replayable is how long an operation that may run again is remembered: longer
// than any caller retries one call.
const replayable = 10 * time.Minute

// state is how far an operation has come.
type state string

const (
	running    state = "running"
	done       state = "done"
	rolledBack state = "rolled_back" // also the tombstone of an id that was never used
	// lost is a running operation of an earlier server: whether it had an effect
	// nobody knows.
	lost state = "lost"
	// retracted is one that did nothing and may come again. It is in no record.
	retracted state = "retracted"
)

// record is what is durable of an operation.
type record struct {
	Endpoint wire.Endpoint      `json:"endpoint"`
	Digest   sandbox.Digest     `json:"digest"`
	State    state              `json:"state"`
	Status   int64              `json:"status"`
	Framed   bool               `json:"framed"`
	Size     int64              `json:"size"`              // of the body in store.Results
	Instance sandbox.InstanceID `json:"instance,omitzero"` // allocated by it, or used by it
	Snapshot sandbox.SnapshotID `json:"snapshot,omitzero"` // allocated by it
	Owned    bool               `json:"owned"`             // a later call named what was allocated
	Until    sandbox.Timestamp  `json:"until"`             // the end of what was allocated, at the latest
	// Process is what an open_process opened.
	Process wire.ProcessID `json:"process,omitzero"`
	// Write is the state of the transaction that a begin_active_write opened.
	Write sandbox.JournalState `json:"write,omitzero"`
}

// operation is one logical mutating call.
type operation struct {
	id       wire.OperationID
	durable  bool
	finished chan struct{} // closed once it no longer runs
	cancel   context.CancelFunc

	// What follows is guarded by journal.mu.
	record record
	answer answer                      // where it is still held
	held   bool                        // answer is
	undo   func(context.Context) error // the provider's own compensation
	write  sandbox.ActiveWrite         // of begin_active_write
	unwind *unwinding                  // a rollback that is under way
}

// journal remembers operations by their id: what was asked, and what was
// answered. It is written before anything is allocated.
type journal struct {
	store store.Store
	clock Clock
	max   int
	bytes int64 // bound on held

	mu        sync.Mutex
	ops       map[wire.OperationID]*operation
	held      int64                 // bytes of answers
	answered  []wire.OperationID    // that hold some, oldest first
	owners    map[string]*operation // by "instance/ID" and "snapshot/ID": who allocated it last, not yet acknowledged
	spare     []wire.OperationID    // that are done and may run again, oldest first
	lastSweep time.Time
}

func newJournal(st store.Store, o Options) *journal {
	return &journal{store: st, clock: o.Clock, max: o.MaxOperations, bytes: o.ResultBytes, ops: map[wire.OperationID]*operation{}, owners: map[string]*operation{}}
}

// mayRunAgain are the endpoints whose second run changes nothing that the first
// did not: their records are not made durable. A process dies with its server,
// and no signal reaches it afterwards.
var mayRunAgain = map[wire.Endpoint]bool{
	wire.WriteFile: true, wire.StageActiveWrite: true, wire.Destroy: true, wire.DestroySnapshot: true,
	wire.Cleanup: true, wire.ProcessSignal: true,
}

// begin finds the operation of a call, or starts it. fresh says that the caller
// has to run it and to finish it; its record is durable then.
// Errors: *wire.Error with TagOperationMismatch, TagOperationRolledBack or
// TagOverloaded; the store's.
func (j *journal) begin(id wire.OperationID, r record) (o *operation, fresh bool, err error) {
	j.mu.Lock()
	if o := j.ops[id]; o != nil {
		defer j.mu.Unlock()
		switch {
		case o.record.Digest == "": // a tombstone of an id that nobody used
			return nil, false, &wire.Error{Tag: wire.TagOperationRolledBack}
		case o.record.Endpoint != r.Endpoint || o.record.Digest != r.Digest:
			return nil, false, &wire.Error{Tag: wire.TagOperationMismatch}
		case o.record.State == rolledBack || o.unwind != nil:
			return nil, false, &wire.Error{Tag: wire.TagOperationRolledBack}
		}
		return o, false, nil
	}
	if len(j.ops) >= j.max && !j.thin() {
		j.mu.Unlock()
		return nil, false, &wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: wire.MaxRetryAfterMS}
	}
	r.State, r.Until = running, sandbox.At(j.clock.Now())
	o = &operation{id: id, durable: !mayRunAgain[r.Endpoint] && j.store.Durable(), finished: make(chan struct{}), cancel: func() {}, record: r}
	j.ops[id] = o
	err = j.save(o)
	j.mu.Unlock()
	if o.durable && err == nil {
		err = j.store.Sync()
	}
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.ops, id)
		o.record.State = rolledBack
		close(o.finished)
		return nil, false, err
	}
	return o, true, nil
}

// save queues o's record. The caller holds j.mu, so that records are written in
// the order in which they changed.
func (j *journal) save(o *operation) error {
	if !o.durable {
		return nil
	}
	return j.store.Queue(j.written(o))
}

// written is o's record as it is stored. The caller holds j.mu.
func (j *journal) written(o *operation) store.Change {
	value, err := canonical.Encode(o.record)
	if err != nil { // an id that the provider minted and that has no form: nothing can be found by it
		r := o.record
		r.Instance, r.Snapshot = "", ""
		value, _ = canonical.Encode(r)
	}
	return store.Set(store.Operations, string(o.id), value)
}

// finish ends a running operation with its answer. With sync it is durable
// before anybody learns of it; further changes are written with it.
func (j *journal) finish(o *operation, a answer, sync bool, more ...store.Change) error {
	j.mu.Lock()
	o.record.State, o.record.Status, o.record.Framed, o.record.Size = done, int64(a.status), a.framed, int64(len(a.body))
	o.record.Until = max(o.record.Until, sandbox.At(j.clock.Now()))
	o.answer, o.held = a, true
	j.held += int64(len(a.body))
	j.answered = append(j.answered, o.id)
	if mayRunAgain[o.record.Endpoint] && o.record.Endpoint != wire.ProcessSignal {
		j.spare = append(j.spare, o.id)
	}
	changes := append(more, j.trim()...)
	if o.durable {
		changes = append(changes, j.written(o), store.Set(store.Results, string(o.id), a.body))
	}
	err := j.store.Queue(changes...)
	j.mu.Unlock()
	if !sync {
		close(o.finished)
	}
	// A long answer leaves memory for the store, also where nobody waits for it.
	long := o.durable && len(a.body) > keptBytes
	if (sync || long) && err == nil {
		err = j.store.Sync()
	}
	if long && err == nil {
		j.mu.Lock()
		o.answer, o.held = answer{}, false
		j.mu.Unlock()
	}
	if sync {
		close(o.finished)
	}
	return err
}

// keptBytes is up to what size an answer that the store has stays in memory too.
const keptBytes = 4 << 10

// trim drops the oldest answers beyond the bound. Their operations stay known,
// as ones whose outcome is no longer. The caller holds j.mu.
func (j *journal) trim() (changes []store.Change) {
	for j.held > j.bytes && len(j.answered) > 1 {
		id := j.answered[0]
		j.answered = j.answered[1:]
		o := j.ops[id]
		if o == nil {
			continue
		}
		j.drop(o)
		o.record.Size = -1
		if o.durable {
			changes = append(changes, j.written(o), store.Remove(store.Results, string(id)))
		}
	}
	return changes
}

// drop takes o's answer off the books. The caller holds j.mu.
func (j *journal) drop(o *operation) {
	if o.record.State == done && o.record.Size > 0 {
		j.held -= o.record.Size
	}
	o.answer, o.held = answer{}, false
}

// result is the answer of a finished operation, the stored bytes unchanged.
// Errors: *wire.Error with TagOperationRolledBack; OperationFailed with
// indeterminate where the outcome is not known (any more).
func (j *journal) result(o *operation) (answer, error) {
	j.mu.Lock()
	r, a, held := o.record, o.answer, o.held
	j.mu.Unlock()
	t, _ := r.Endpoint.Traits()
	switch {
	case r.State == retracted:
		return answer{}, overloaded()
	case r.State == rolledBack:
		return answer{}, &wire.Error{Tag: wire.TagOperationRolledBack}
	case r.State == lost || r.Size < 0:
		return answer{}, sandbox.Failed(t.Member, sandbox.ReasonIndeterminate, nil)
	case held:
		return a, nil
	}
	body, err := j.store.Get(store.Results, string(o.id))
	if err != nil || int64(len(body)) != r.Size {
		return answer{}, sandbox.Failed(t.Member, sandbox.ReasonIndeterminate, err)
	}
	return answer{status: int(r.Status), framed: r.Framed, body: body}, nil
}

// find returns an operation, nil where the id is not known.
func (j *journal) find(id wire.OperationID) *operation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ops[id]
}

// allocated notes what an operation made, for a later call to acknowledge.
func (j *journal) allocated(o *operation, instance sandbox.InstanceID, snapshot sandbox.SnapshotID, until sandbox.Timestamp, undo func(context.Context) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.record.Instance, o.record.Snapshot, o.undo = instance, snapshot, undo
	if until.Valid() {
		o.record.Until = max(o.record.Until, until)
	}
	if instance != "" {
		j.owners["instance/"+string(instance)] = o
	}
	if snapshot != "" {
		j.owners["snapshot/"+string(snapshot)] = o
	}
}

// acknowledge notes that a later call named an allocation: from now on nothing
// undoes it but a destroy. A delayed duplicate of a rollback then hits nothing.
// Source: contract "Allocation handoff".
func (j *journal) acknowledge(keys ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range keys {
		o := j.owners[key]
		if o == nil || o.record.State != done || o.unwind != nil {
			continue
		}
		delete(j.owners, key)
		o.record.Owned, o.undo = true, nil
		_ = j.save(o) // in order before everything that follows; a store that fails refuses that
	}
}

// retract takes an operation back that did nothing.
func (j *journal) retract(o *operation) error {
	j.mu.Lock()
	o.record.State = retracted
	delete(j.ops, o.id)
	close(o.finished)
	defer j.mu.Unlock()
	if !o.durable {
		return nil
	}
	return j.store.Queue(store.Remove(store.Operations, string(o.id)))
}

// thin makes room, and reports whether there is some: the oldest operations go
// of those that may run again. The caller holds j.mu.
func (j *journal) thin() bool {
	for len(j.ops) >= j.max && len(j.spare) > 0 {
		id := j.spare[0]
		j.spare = j.spare[1:]
		if o := j.ops[id]; o != nil && o.unwind == nil {
			j.forget(id, o)
		}
	}
	return len(j.ops) < j.max
}

// expired says whether nobody has any more use for o.
func (o *operation) expired(now time.Time, after time.Duration) bool {
	t, err := o.record.Until.Time()
	return err != nil || now.Sub(t) > after
}

func (j *journal) forget(id wire.OperationID, o *operation) {
	j.drop(o)
	delete(j.ops, id)
	for _, key := range []string{"instance/" + string(o.record.Instance), "snapshot/" + string(o.record.Snapshot)} {
		if j.owners[key] == o {
			delete(j.owners, key)
		}
	}
}

// sweep forgets what nobody asks for any more. until is how long an instance is
// remembered.
func (j *journal) sweep(now time.Time, until func(sandbox.InstanceID) time.Time) (changes []store.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, o := range j.ops {
		after := retention
		if mayRunAgain[o.record.Endpoint] {
			after = replayable
		}
		if o.record.State == running || o.unwind != nil || !o.expired(now, after) {
			continue
		}
		if !mayRunAgain[o.record.Endpoint] && now.Sub(until(o.record.Instance)) <= retention {
			continue
		}
		j.forget(id, o)
		if o.durable {
			changes = append(changes, store.Remove(store.Operations, string(id)), store.Remove(store.Results, string(id)))
		}
	}
	gone := func(id wire.OperationID) bool { return j.ops[id] == nil }
	j.answered = slices.DeleteFunc(j.answered, gone)
	j.spare = slices.DeleteFunc(j.spare, gone)
	return changes
}
