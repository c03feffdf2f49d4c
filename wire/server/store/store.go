// Package store is what a server's journal asks of the place that it is kept in.
// A Store is a few tables of bytes; package logstore keeps them in one plain file
// with no dependency, and Memory nowhere. A journal has to outlive a process whenever something that it speaks
// of does: an instance, or a snapshot.
//
// Bounds: keys of up to 1 KiB and values of up to 64 MiB; callers hold to them.
// Errors: those of an implementation. A Store that once failed is not believed
// again: every later Queue and Sync fails.
// Concurrency: the methods of a Store may be called at once.
// Source: docs/wire.md "Operations: a call that is delivered more than once".
package store

// Bucket is one of the tables.
type Bucket string

// The tables of a journal.
const (
	Leases     Bucket = "leases"     // lease id: highest epoch
	Instances  Bucket = "instances"  // instance id: its binding
	Operations Bucket = "operations" // operation id: its record
	Results    Bucket = "results"    // operation id: the body of its answer
)

// Buckets returns the four.
func Buckets() []Bucket { return []Bucket{Leases, Instances, Operations, Results} }

// Schema names the form of what is kept. A store that says another one is
// another server's, and is refused.
const Schema = "checkfu.wire-journal.v1"

// Change is one key that is written, or removed.
type Change struct {
	Bucket Bucket
	Key    string
	Value  []byte // nil removes
}

// Set writes value, which is not nil and belongs to the store from now on.
func Set(b Bucket, key string, value []byte) Change { return Change{b, key, value} }

// Remove removes a key, if it is there.
func Remove(b Bucket, key string) Change { return Change{Bucket: b, Key: key} }

// Store keeps what must survive the process.
type Store interface {
	// Queue takes changes in order, all or none. They are durable soon, and at the
	// latest when a Sync that began after it returns. It does not wait.
	Queue(changes ...Change) error
	// Sync makes durable all that was queued.
	Sync() error
	// Get returns one value, nil where there is none. What was queued and not
	// synced may be missing.
	Get(b Bucket, key string) ([]byte, error)
	// Each calls f for every key of a bucket, in ascending order. f must not use
	// the store.
	Each(b Bucket, f func(key string, value []byte) error) error
	// Durable says whether anything outlives the process at all.
	Durable() bool
	// Close makes durable what was queued and gives the store up.
	Close() error
}

// Opener opens a store. It is asked once, by the server that will close it.
type Opener func() (Store, error)

// Memory opens the store of a server that remembers in memory alone. What it is
// given it drops: the server holds it already.
func Memory() (Store, error) { return volatile{}, nil }

type volatile struct{}

func (volatile) Queue(...Change) error                         { return nil }
func (volatile) Sync() error                                   { return nil }
func (volatile) Get(Bucket, string) ([]byte, error)            { return nil, nil }
func (volatile) Each(Bucket, func(string, []byte) error) error { return nil }
func (volatile) Durable() bool                                 { return false }
func (volatile) Close() error                                  { return nil }

// Put is Queue and Sync.
func Put(s Store, changes ...Change) error {
	if err := s.Queue(changes...); err != nil {
		return err
	}
	return s.Sync()
}
