package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

const (
	block     = 4096    // the unit of holes
	minChunk  = 1 << 20 // the least that has a digest of its own
	maxChunks = 4096
	workers   = 4
)

var zeros [block]byte

// chunkBytes is how long the chunks of a content are: large ones have large
// chunks, so that a manifest stays small.
func chunkBytes(size int64) int64 {
	chunk := int64(minChunk)
	for size/chunk > maxChunks-1 {
		chunk *= 2
	}
	return chunk
}

// share makes to a copy of from that shares its blocks until one side writes.
// It reports false where the filesystem cannot.
func share(from, to *os.File) (bool, error) {
	err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return false, nil
	}
	return false, os.NewSyscallError("ioctl FICLONE", err)
}

// erase makes holes of what is not used.
func erase(f *os.File, used *volume.Used) error {
	for from, to := range used.Gaps() {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from*block, (to-from)*block); err != nil {
			return os.NewSyscallError("fallocate", err)
		}
	}
	return nil
}

// pass goes once over a content, digests it and, unless to is nil, copies it there.
type pass struct {
	from *os.File
	size int64    // of from, in bytes
	to   *os.File // new; reads as zeros
	used *volume.Used
	soon bool // to is forced to the disk next: its bytes set out at once

	first  int64       // the chunk to begin with
	enough func() bool // asked before each chunk; nil goes to the end
}

// run returns the digests. Whatever is zero is not written and has no digest, however
// the source stores it, and whatever is not used is taken for zero: a hole stays one,
// and what was deleted is left behind.
func (p pass) run(ctx context.Context) ([]Chunk, error) {
	chunks, _, err := p.part(ctx)
	return chunks, err
}

// part is run until it is enough, and says with which chunk to go on.
func (p pass) part(ctx context.Context) ([]Chunk, int64, error) {
	if p.to != nil {
		if err := p.to.Truncate(p.size); err != nil {
			return nil, 0, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	chunk := chunkBytes(p.size)
	var (
		next  atomic.Int64
		mu    sync.Mutex
		found []Chunk
		group sync.WaitGroup
	)
	next.Store(p.first)
	for range min(workers, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			w := worker{pass: p, hash: sha256.New(), buffer: make([]byte, 64*block)}
			for {
				if ctx.Err() != nil || p.enough != nil && p.enough() {
					return
				}
				n := next.Add(1) - 1
				start := n * chunk
				if start >= p.size {
					return
				}
				digest, err := w.chunk(ctx, start, min(start+chunk, p.size))
				if err != nil {
					cancel(err)
					return
				}
				if digest != "" {
					mu.Lock()
					found = append(found, Chunk{n, digest})
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	slices.SortFunc(found, func(a, b Chunk) int { return int(a.Index - b.Index) })
	return found, next.Load(), nil
}

// worker does one chunk after the other.
type worker struct {
	pass
	hash   hash.Hash
	buffer []byte
	blocks []byte // numbers of the blocks that are in the hash
}

// chunk returns the digest of the bytes from start to end, or "" if all are
// zero: SHA-256 of the blocks that are not, then their numbers.
func (w *worker) chunk(ctx context.Context, start, end int64) (sandbox.Digest, error) {
	w.hash.Reset()
	w.blocks = w.blocks[:0]
	for at := start; at < end; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		data, err := unix.Seek(int(w.from.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO || err == nil && data >= end {
			break // a hole to the end
		}
		if err != nil {
			return "", os.NewSyscallError("lseek SEEK_DATA", err)
		}
		at = max(at, data-data%block)
		if next := w.used.Next(at/block) * block; next > at {
			at = next // which may again be in a hole
			continue
		}
		n, err := w.from.ReadAt(w.buffer[:min(int64(len(w.buffer)), end-at)], at)
		if n == 0 {
			return "", damagedEnd(err)
		}
		if err := w.blocksAt(at, w.buffer[:n]); err != nil {
			return "", err
		}
		at += int64(n)
	}
	if len(w.blocks) == 0 {
		return "", nil
	}
	if w.to != nil && w.soon {
		// What goes wrong is told by the Sync at the end.
		_ = unix.SyncFileRange(int(w.to.Fd()), start, end-start, unix.SYNC_FILE_RANGE_WRITE)
	}
	w.hash.Write(w.blocks)
	return sandbox.Digest("sha256:" + hex.EncodeToString(w.hash.Sum(nil))), nil
}

func damagedEnd(err error) error {
	return &Error{Kind: ErrDamaged, Field: "content_bytes", Expected: "no change while it is read", Got: "a shorter file", Err: err}
}

// blocksAt takes the blocks of b, which lie at an offset, in runs of such as
// are used and not zero.
func (w *worker) blocksAt(at int64, b []byte) error {
	for len(b) > 0 {
		n := 0
		for n < len(b) {
			one, number := b[n:min(n+block, len(b))], (at+int64(n))/block
			if !w.used.Has(number) || bytes.Equal(one, zeros[:len(one)]) {
				break
			}
			w.blocks = binary.LittleEndian.AppendUint64(w.blocks, uint64(number))
			n += len(one)
		}
		if n == 0 {
			n = min(block, len(b))
		} else {
			w.hash.Write(b[:n])
			if w.to != nil {
				if _, err := w.to.WriteAt(b[:n], at); err != nil {
					return err
				}
			}
		}
		at, b = at+int64(n), b[n:]
	}
	return nil
}
