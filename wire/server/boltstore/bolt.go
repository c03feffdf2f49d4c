// Package boltstore keeps a journal in an embedded database, one file: the store
// of our own servers. Each Sync is one transaction, which callers share that come
// at once.
//
// Bounds: those of store.Batch.
// Errors: the operating system's and the database's; of the opener and of what
// is committed with "journal" before them.
// Concurrency: as store.Store. Ownership: the store holds its file until Close.
// Source: docs/wire.md "Operations: a call that is delivered more than once".
package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/checkfu/checkfu/wire/server/store"
)

// bolt is a store in one file.
type bolt struct {
	*store.Batch
	db *bbolt.DB
}

const (
	// File is the name of the file in its directory.
	File     = "journal.db"
	lockWait = 2 * time.Second
)

// At opens the store that lies in dir, which is made with mode 0700 and held by
// one store at a time. "" is nowhere: nil.
// Errors of the opener: the operating system's; one that says that another server
// holds it, that it is damaged, or of another form.
func At(dir string) store.Opener {
	if dir == "" {
		return nil
	}
	return func() (store.Store, error) {
		s, err := open(dir)
		if err != nil {
			return nil, fmt.Errorf("journal %s: %w", dir, err)
		}
		return s, nil
	}
}

func open(dir string) (store.Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// The journal holds what commands wrote: it is nobody else's to read.
	db, err := bbolt.Open(filepath.Join(dir, File), 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, errors.New("another server holds it")
	}
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists([]byte("meta"))
		if err != nil {
			return err
		}
		if have := meta.Get([]byte("schema")); have != nil && string(have) != store.Schema {
			return fmt.Errorf("of form %q, not %q", have, store.Schema)
		}
		for _, b := range store.Buckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
				return err
			}
		}
		return meta.Put([]byte("schema"), []byte(store.Schema))
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &bolt{db: db}
	s.Batch = store.NewBatch(s.commit)
	return s, nil
}

func (s *bolt) commit(changes []store.Change) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range changes {
			b := tx.Bucket([]byte(c.Bucket))
			var err error
			if c.Value == nil {
				err = b.Delete([]byte(c.Key))
			} else {
				err = b.Put([]byte(c.Key), c.Value)
			}
			if err != nil {
				return fmt.Errorf("%s %q: %w", c.Bucket, c.Key, err)
			}
		}
		return nil
	})
}

func (s *bolt) Get(b store.Bucket, key string) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket([]byte(b)).Get([]byte(key)))
		return nil
	})
	return value, err
}

func (s *bolt) Each(b store.Bucket, f func(key string, value []byte) error) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(b)).ForEach(func(k, v []byte) error { return f(string(k), bytes.Clone(v)) })
	})
}

func (s *bolt) Durable() bool { return true }

// Close makes durable what is pending, and gives the file up.
func (s *bolt) Close() error {
	first, err := s.Batch.Close()
	if !first {
		return nil
	}
	return errors.Join(err, s.db.Close())
}
