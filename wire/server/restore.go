package server

import (
	"fmt"
	"strconv"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// restore takes up the leases and instances of an earlier server.
func (l *leases) restore() error {
	now := l.clock.Now()
	err := l.store.Each(store.Leases, func(key string, value []byte) error {
		epoch, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return damaged(store.Leases, key, err)
		}
		l.epochs[key] = &lease{epoch: epoch, seen: now}
		return nil
	})
	if err != nil {
		return err
	}
	return l.store.Each(store.Instances, func(key string, value []byte) error {
		b := &binding{}
		if err := canonical.Decode(value, b); err != nil {
			return damaged(store.Instances, key, err)
		}
		l.instances[sandbox.InstanceID(key)] = b
		return nil
	})
}

// restore takes up the operations of an earlier server. Those that ran are lost:
// nobody knows whether they had an effect, and nobody says that they had none.
func (j *journal) restore() error {
	closed := make(chan struct{})
	close(closed)
	var changes []store.Change
	err := j.store.Each(store.Operations, func(key string, value []byte) error {
		o := &operation{id: wire.OperationID(key), durable: true, finished: closed, cancel: func() {}}
		if err := canonical.Decode(value, &o.record); err != nil {
			return damaged(store.Operations, key, err)
		}
		r := &o.record
		if r.State == running {
			r.State = lost
			changes = append(changes, j.written(o))
		}
		j.ops[o.id] = o
		if r.Size > 0 {
			j.held += r.Size
			j.answered = append(j.answered, o.id)
		}
		if t, _ := r.Endpoint.Traits(); t.Handoff && r.State == done && !r.Owned {
			if r.Instance != "" {
				j.owners["instance/"+string(r.Instance)] = o
			}
			if r.Snapshot != "" {
				j.owners["snapshot/"+string(r.Snapshot)] = o
			}
		}
		return nil
	})
	if err != nil || len(changes) == 0 {
		return err
	}
	return store.Put(j.store, changes...)
}

// restore puts a lost process in the place of each that an earlier server
// opened. It has no exit, and no new process may take its id.
func (ps *processes) restore(j *journal) {
	for _, o := range j.ops {
		r := o.record
		if r.Process == "" || r.State != lost && r.Status != 200 {
			continue
		}
		p := newProcess(ps.s, r.Process)
		p.op, p.instance, p.digest, p.opened = o.id, r.Instance, r.Digest, true
		p.loseLocked(nil)
		close(p.ready)
		ps.byID[p.id] = p
		ps.byInstance[p.instance] = append(ps.byInstance[p.instance], p)
	}
}

func damaged(b store.Bucket, key string, err error) error {
	return fmt.Errorf("journal: %s %q: %w", b, key, err)
}
