package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// bolt is a store in one file. One goroutine writes it: callers that come while
// a write is being made durable share the next one, so that many calls at once
// cost as many syncs as one after the other cost two.
type bolt struct {
	db    *bbolt.DB
	ended chan struct{}

	mu      sync.Mutex
	pending []change
	bytes   int       // of values in pending
	waiting *flushing // whoever waits for pending
	closed  bool
	failed  error // a store that once failed is not believed again
	wake    chan struct{}
}

// flushing is one transaction to come.
type flushing struct {
	done chan struct{}
	err  error
}

const (
	storeFile = "journal.db"
	// lazily is how long a change that nobody waits for may stay in memory.
	lazily = 50 * time.Millisecond
	// maxPending is how many bytes of such changes wait for it.
	maxPending = 16 << 20
	lockWait   = 2 * time.Second
)

var buckets = []bucket{leaseBucket, instanceBucket, operationBucket, resultBucket}

// schema is the form of the store; another one is another server's.
const schema = "checkfu.wire-journal.v1"

func openBolt(dir string) (*bolt, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// The journal holds what commands wrote: it is nobody else's to read.
	db, err := bbolt.Open(filepath.Join(dir, storeFile), 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("journal %s: another server holds it", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists([]byte("meta"))
		if err != nil {
			return err
		}
		if have := meta.Get([]byte("schema")); have != nil && string(have) != schema {
			return fmt.Errorf("journal %s: of form %q, not %q", dir, have, schema)
		}
		for _, b := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
				return err
			}
		}
		return meta.Put([]byte("schema"), []byte(schema))
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &bolt{db: db, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go s.write()
	return s, nil
}

var errStoreClosed = errors.New("journal: closed")

func (s *bolt) queue(changes ...change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil || len(changes) == 0 {
		return err
	}
	s.pending = append(s.pending, changes...)
	for _, c := range changes {
		s.bytes += len(c.value)
	}
	s.poke()
	return nil
}

func (s *bolt) sync() error {
	s.mu.Lock()
	if err := s.usable(); err != nil {
		s.mu.Unlock()
		return err
	}
	if s.waiting == nil {
		s.waiting = &flushing{done: make(chan struct{})}
	}
	f := s.waiting
	s.mu.Unlock()
	s.poke()
	<-f.done
	return f.err
}

// usable says whether the store takes changes. The caller holds s.mu.
func (s *bolt) usable() error {
	if s.failed != nil {
		return s.failed
	}
	if s.closed {
		return errStoreClosed
	}
	return nil
}

func (s *bolt) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write makes pending changes durable, at once where somebody waits.
func (s *bolt) write() {
	defer close(s.ended)
	lazy := time.NewTimer(lazily)
	lazy.Stop()
	armed := false
	for {
		due := false
		select {
		case <-s.wake:
		case <-lazy.C:
			due, armed = true, false
		}
		s.mu.Lock()
		if len(s.pending) > 0 && s.waiting == nil && s.bytes < maxPending && !due && !s.closed {
			if !armed {
				lazy.Reset(lazily)
				armed = true
			}
			s.mu.Unlock()
			continue
		}
		changes, f, closed := s.pending, s.waiting, s.closed
		s.pending, s.waiting, s.bytes = nil, nil, 0
		s.mu.Unlock()
		var err error
		if len(changes) > 0 {
			err = s.commit(changes)
		}
		if err != nil {
			s.mu.Lock()
			s.failed = fmt.Errorf("journal: %w", err)
			s.mu.Unlock()
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

func (s *bolt) commit(changes []change) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range changes {
			b := tx.Bucket([]byte(c.bucket))
			var err error
			if c.value == nil {
				err = b.Delete([]byte(c.key))
			} else {
				err = b.Put([]byte(c.key), c.value)
			}
			if err != nil {
				return fmt.Errorf("%s %q: %w", c.bucket, c.key, err)
			}
		}
		return nil
	})
}

func (s *bolt) get(b bucket, key string) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket([]byte(b)).Get([]byte(key)))
		return nil
	})
	return value, err
}

func (s *bolt) each(b bucket, f func(key string, value []byte) error) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(b)).ForEach(func(k, v []byte) error { return f(string(k), bytes.Clone(v)) })
	})
}

func (s *bolt) durable() bool { return true }

// close makes durable what is pending, and gives the file up.
func (s *bolt) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.poke()
	<-s.ended
	s.mu.Lock()
	err := s.failed
	s.mu.Unlock()
	return errors.Join(err, s.db.Close())
}
