// Package logstore keeps a journal in one plain file, with the standard library
// alone: the store of a provider that wants no dependency. The keys lie in
// memory, the values in the file.
//
// The file is a line that names its form, then records: a length as u32be, the
// CRC-32C of that, the CRC-32C of the changes that follow; behind the last one,
// while a store has it open, up to 1 MiB of zeros. Each Sync writes one record
// over them: the file does not grow, so the disk has to keep one thing and not
// two, which halves the wait. Only the last record can be torn by a crash: it is
// cut off, for nobody was told that it is there. Damage anywhere else is refused.
// Once more than half of a file of over 64 MiB is dead it is written
// anew beside the old one and renamed into its place.
//
// Bounds: memory is that of the keys, and twice one batch. A record is at most
// 1 GiB.
// Errors: the operating system's and *Damage; of the opener and of what is
// committed with "journal" before them.
// Concurrency: as store.Store. Ownership: the store holds a lock on its directory
// until Close.
// Source: docs/wire.md "Operations: a call that is delivered more than once".
package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/checkfu/checkfu/wire/server/store"
)

const (
	// File is the name of the file in its directory.
	File = "journal.log"
	// former is a journal of another form. To begin beside it would be to forget
	// what it knows, with its machines still there.
	former = "journal.db"

	head       = store.Schema + "\n"
	compactMin = 64 << 20 // a file up to here is never written anew
	ahead      = 1 << 20  // zeros that are written at once
)

// At opens the store that lies in dir, which is made with mode 0700 and held by
// one store at a time. "" is nowhere: nil.
// Errors of the opener: the operating system's; *Damage; that another server holds
// it, or that it is of another form.
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

// place is where a value lies in the file.
type place struct{ at, size int64 }

// log is a store in one file.
type log struct {
	*store.Batch
	dir *os.File // locked

	mu         sync.RWMutex // guards what follows; written by one commit at a time
	file       *os.File
	size, live int64 // bytes of the records, and of the values and keys that count
	room       int64 // bytes of the file, zeros behind the records among them
	tables     map[store.Bucket]map[string]place
	compactMin int64
}

func open(path string) (_ *log, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	s := &log{compactMin: compactMin}
	if s.dir, err = os.Open(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	switch err := syscall.Flock(int(s.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.New("another server holds it")
	case err != nil:
		return nil, err
	}
	if _, err := os.Lstat(s.path(former)); err == nil {
		return nil, fmt.Errorf("holds %s, which an earlier checkfu kept: end what it speaks of there, and remove it", former)
	}
	// What commands wrote lies in it: it is nobody else's to read.
	if _, err := os.Lstat(s.path(File)); errors.Is(err, fs.ErrNotExist) {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	if s.file, err = os.OpenFile(s.path(File), os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.Batch = store.NewBatch(s.commit)
	return s, nil
}

func (s *log) path(name string) string { return filepath.Join(s.dir.Name(), name) }

// begin makes an empty store, whole or not at all.
func (s *log) begin() error {
	file, err := s.fresh()
	if err != nil {
		return err
	}
	return errors.Join(s.replace(file), file.Close())
}

// fresh is a new file that is to take the place of the old one.
func (s *log) fresh() (*os.File, error) {
	file, err := os.OpenFile(s.path(File+".new"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteString(head); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// replace puts a fresh file in its place, durably.
func (s *log) replace(file *os.File) error {
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), s.path(File)); err != nil {
		return err
	}
	return s.dir.Sync()
}

// commit appends one record and waits until it is durable.
func (s *log) commit(changes []store.Change) error {
	record, err := encode(changes)
	if err != nil {
		return err
	}
	s.mu.RLock()
	at, file := s.size, s.file
	s.mu.RUnlock()
	if err := s.extend(file, at+int64(len(record))); err != nil {
		return err
	}
	if _, err := file.WriteAt(record, at); err != nil {
		return err
	}
	if err := datasync(file); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.apply(record[headBytes:], at+headBytes); err != nil {
		return err
	}
	s.size = at + int64(len(record))
	if s.size > s.compactMin && s.size > 2*s.live {
		return s.compact()
	}
	return nil
}

// extend makes the file reach to end, with zeros that are durable. Written ones:
// what is only set aside is a change of the file's map each time it is used.
func (s *log) extend(file *os.File, end int64) error {
	if end <= s.room {
		return nil
	}
	end += ahead
	if _, err := file.WriteAt(make([]byte, end-s.room), s.room); err != nil {
		return err
	}
	s.room = end
	return file.Sync()
}

// apply takes up the changes of one record, whose changes begin at at. The caller
// holds s.mu, or nobody else has the store yet.
func (s *log) apply(payload []byte, at int64) error {
	return decode(payload, func(b store.Bucket, key string, value place, removed bool) {
		table := s.tables[b]
		if old, ok := table[key]; ok {
			s.live -= cost(key, old)
			delete(table, key)
		}
		if !removed {
			value.at += at
			table[key] = value
			s.live += cost(key, value)
		}
	})
}

// cost is what one key takes in a file that holds nothing else.
func cost(key string, p place) int64 { return int64(len(key)) + p.size + headBytes + 16 }

// compact writes what is live into a fresh file. The caller holds s.mu.
func (s *log) compact() (err error) {
	file, err := s.fresh()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	old, tables, size, live := s.file, s.tables, int64(len(head)), s.live
	next := newTables()
	for b, table := range tables {
		for key, p := range table {
			value, err := read(old, p)
			if err != nil {
				return err
			}
			record, err := encode([]store.Change{store.Set(b, key, value)})
			if err != nil {
				return err
			}
			if _, err := file.WriteAt(record, size); err != nil {
				return err
			}
			size += int64(len(record))
			next[b][key] = place{size - p.size, p.size}
		}
	}
	if err := s.replace(file); err != nil {
		return err
	}
	s.file, s.tables, s.size, s.room, s.live = file, next, size, size, live
	return old.Close()
}

func read(file *os.File, p place) ([]byte, error) {
	value := make([]byte, p.size)
	_, err := file.ReadAt(value, p.at)
	return value, err
}

// Get is store.Store.Get.
func (s *log) Get(b store.Bucket, key string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.tables[b][key]
	if !ok {
		return nil, nil
	}
	return read(s.file, p)
}

// Each is store.Store.Each.
func (s *log) Each(b store.Bucket, f func(key string, value []byte) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	table := s.tables[b]
	for _, key := range slices.Sorted(maps.Keys(table)) {
		value, err := read(s.file, table[key])
		if err != nil {
			return err
		}
		if err := f(key, value); err != nil {
			return err
		}
	}
	return nil
}

// Durable is true.
func (s *log) Durable() bool { return true }

// Close makes durable what is pending, takes the zeros away, and gives the
// directory up.
func (s *log) Close() error {
	first, err := s.Batch.Close()
	if !first {
		return nil
	}
	if err == nil { // else what lies behind the records is for the next one to judge
		err = s.file.Truncate(s.size)
	}
	return errors.Join(err, s.release())
}

func (s *log) release() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	return errors.Join(err, s.dir.Close())
}

func newTables() map[store.Bucket]map[string]place {
	tables := map[store.Bucket]map[string]place{}
	for _, b := range store.Buckets() {
		tables[b] = map[string]place{}
	}
	return tables
}
