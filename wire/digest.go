package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
)

// Digester makes the digest of bytes that come piece by piece. Large pieces are
// hashed on a goroutine of its own while the next ones travel: the digest is the
// larger half of what a file costs at either end. That goroutine ends when
// nothing is left to hash, so a Digester may be dropped at any time.
// Concurrency: one goroutine at a time.
// Ownership: what was added must not change before Digest or Reset has returned.
type Digester struct {
	mu      sync.Mutex
	idle    sync.Cond
	sum     hash.Hash // the working goroutine's while there is one
	pending [][]byte
	working bool
}

// besideBytes is from what size on a piece is worth a goroutine.
const besideBytes = 128 << 10

// NewDigester makes the digest of nothing yet.
func NewDigester() *Digester {
	d := &Digester{sum: sha256.New()}
	d.idle.L = &d.mu
	return d
}

// Add adds a piece behind those before.
func (d *Digester) Add(piece []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.working:
		d.pending = append(d.pending, piece)
	case len(piece) < besideBytes:
		d.sum.Write(piece)
	default:
		d.pending, d.working = append(d.pending, piece), true
		go d.work()
	}
}

func (d *Digester) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.pending) > 0 {
		pieces := d.pending
		d.pending = nil
		d.mu.Unlock()
		for _, p := range pieces {
			d.sum.Write(p)
		}
		d.mu.Lock()
	}
	d.working = false
	d.idle.Broadcast()
}

// Digest is that of all that was added. It waits for what is still being hashed.
func (d *Digester) Digest() sandbox.Digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wait()
	return sandbox.Digest("sha256:" + hex.EncodeToString(d.sum.Sum(nil)))
}

// Reset begins again with nothing.
func (d *Digester) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wait()
	d.sum.Reset()
}

// wait waits until nothing is being hashed. The caller holds mu.
func (d *Digester) wait() {
	for d.working {
		d.idle.Wait()
	}
}
