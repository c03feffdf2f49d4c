package server

// change is one key that is written, or, with a nil value, removed.
type change struct {
	bucket bucket
	key    string
	value  []byte
}

// bucket is one of the store's tables.
type bucket string

const (
	leaseBucket     bucket = "leases"     // lease id: highest epoch
	instanceBucket  bucket = "instances"  // instance id: its binding
	operationBucket bucket = "operations" // operation id: its record
	resultBucket    bucket = "results"    // operation id: the body of its answer
)

// store keeps what must survive the process.
type store interface {
	// queue takes changes in order, all or none. They are durable soon, and at the
	// latest when a sync that began after it returns. It does not wait.
	queue(changes ...change) error
	// sync makes durable all that was queued.
	sync() error
	// get returns one value that is durable, nil where there is none.
	get(b bucket, key string) ([]byte, error)
	// each calls f for every key of a bucket, in order.
	each(b bucket, f func(key string, value []byte) error) error
	// durable says whether anything outlives the process at all.
	durable() bool
	close() error
}

func openStore(dir string) (store, error) {
	if dir == "" {
		return volatile{}, nil
	}
	return openBolt(dir)
}

// volatile is the store of a server that remembers in memory alone.
type volatile struct{}

func (volatile) queue(...change) error                         { return nil }
func (volatile) sync() error                                   { return nil }
func (volatile) get(bucket, string) ([]byte, error)            { return nil, nil }
func (volatile) each(bucket, func(string, []byte) error) error { return nil }
func (volatile) durable() bool                                 { return false }
func (volatile) close() error                                  { return nil }

// put is queue and sync.
func put(s store, changes ...change) error {
	if err := s.queue(changes...); err != nil {
		return err
	}
	return s.sync()
}
