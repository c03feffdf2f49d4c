package store

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// lazily is how long a change that nobody waits for may stay in memory.
	lazily = 50 * time.Millisecond
	// maxPending is how many bytes of such changes wait for it.
	maxPending = 16 << 20
)

// ErrClosed says that a store was closed.
var ErrClosed = errors.New("journal: closed")

// Batch gathers changes for a store that makes many durable as cheaply as one.
// One goroutine commits: callers that come while a commit runs share the next
// one, so that many calls at once cost as many syncs as one after the other cost
// two.
//
// Bounds: 16 MiB of changes that nobody waits for stay in memory, for at most
// 50 ms, beside what comes while a commit runs, which callers bound.
// Errors: that of the first commit that failed, from then on; ErrClosed.
// Ownership: Close ends the goroutine.
// Concurrency: all methods may be called at once; commits come one at a time.
type Batch struct {
	commit func([]Change) error
	ended  chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	pending []Change
	bytes   int       // of values in pending
	waiting *flushing // whoever waits for pending
	closed  bool
	failed  error
}

// flushing is one commit to come.
type flushing struct {
	done chan struct{}
	err  error
}

// NewBatch begins with nothing. commit makes changes durable, all or none.
func NewBatch(commit func([]Change) error) *Batch {
	b := &Batch{commit: commit, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go b.write()
	return b
}

// Queue is Store.Queue.
func (b *Batch) Queue(changes ...Change) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(); err != nil || len(changes) == 0 {
		return err
	}
	b.pending = append(b.pending, changes...)
	for _, c := range changes {
		b.bytes += len(c.Value)
	}
	b.poke()
	return nil
}

// Sync is Store.Sync.
func (b *Batch) Sync() error {
	b.mu.Lock()
	if err := b.usable(); err != nil {
		b.mu.Unlock()
		return err
	}
	if b.waiting == nil {
		b.waiting = &flushing{done: make(chan struct{})}
	}
	f := b.waiting
	b.mu.Unlock()
	b.poke()
	<-f.done
	return f.err
}

// usable says whether changes are taken. The caller holds b.mu.
func (b *Batch) usable() error {
	if b.failed != nil {
		return b.failed
	}
	if b.closed {
		return ErrClosed
	}
	return nil
}

func (b *Batch) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// write commits what is pending, at once where somebody waits.
func (b *Batch) write() {
	defer close(b.ended)
	lazy := time.NewTimer(lazily)
	lazy.Stop()
	armed := false
	for {
		due := false
		select {
		case <-b.wake:
		case <-lazy.C:
			due, armed = true, false
		}
		b.mu.Lock()
		if len(b.pending) > 0 && b.waiting == nil && b.bytes < maxPending && !due && !b.closed {
			if !armed {
				lazy.Reset(lazily)
				armed = true
			}
			b.mu.Unlock()
			continue
		}
		changes, f, closed := b.pending, b.waiting, b.closed
		b.pending, b.waiting, b.bytes = nil, nil, 0
		failed := b.failed
		b.mu.Unlock()
		err := failed
		if len(changes) > 0 && err == nil {
			if err = b.commit(changes); err != nil {
				err = fmt.Errorf("journal: %w", err)
				b.mu.Lock()
				b.failed = err
				b.mu.Unlock()
			}
		}
		if f != nil {
			f.err = err
			close(f.done)
		}
		if closed {
			lazy.Stop()
			return
		}
	}
}

// Close commits what is pending and takes nothing more. first says whether this
// was the first Close; the others do nothing.
func (b *Batch) Close() (first bool, err error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false, nil
	}
	b.closed = true
	b.mu.Unlock()
	b.poke()
	<-b.ended
	b.mu.Lock()
	defer b.mu.Unlock()
	return true, b.failed
}
