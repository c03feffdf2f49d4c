//go:build linux

package contain

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// batch is how many names of one directory make one piece of work, so that
// several workers share a large flat directory.
const batch = 128

// walk is one enumeration of a tree. Work is taken from the end of the queue,
// which keeps it, and the number of open directories, small.
type walk struct {
	root    *Root
	ctx     context.Context
	options ListOptions

	leaves, directories, bytes atomic.Int64

	mu    sync.Mutex
	wake  sync.Cond
	queue []work
	busy  int   // workers that may still add work
	err   error // the first one; it ends the walk
	seen  []stamp
	found []Entry
}

// work is a directory to enumerate (names is nil) or some of its leaves.
type work struct {
	path  string
	dir   *handle
	names []name
}

type name struct {
	text string
	kind byte
}

// stamp says which directory was enumerated and when it last changed. A guest
// can set every time of a file but this one.
type stamp struct {
	path       string
	dev, inode uint64
	changed    unix.Timespec
}

// handle is a directory that several batches read from.
type handle struct {
	fd    int
	users atomic.Int32
}

func (h *handle) release() {
	if h.users.Add(-1) == 0 {
		unix.Close(h.fd)
	}
}

func (r *Root) walk(ctx context.Context, rel string, options ListOptions) ([]Entry, error) {
	w := &walk{root: r, ctx: ctx, options: options, queue: []work{{path: rel}}}
	w.wake.L = &w.mu
	var group sync.WaitGroup
	for range options.Workers {
		group.Go(w.run)
	}
	group.Wait()
	for _, left := range w.queue {
		if left.dir != nil {
			left.dir.release()
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.found, w.verify()
}

// run is one worker.
func (w *walk) run() {
	k := worker{walk: w, buffer: make([]byte, 128<<10), hash: sha256.New()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 && w.busy > 0 && w.err == nil {
			w.wake.Wait()
		}
		if len(w.queue) == 0 || w.err != nil {
			break
		}
		last := len(w.queue) - 1
		next := w.queue[last]
		w.queue[last] = work{}
		w.queue = w.queue[:last]
		w.busy++
		w.mu.Unlock()

		err := k.do(next)

		w.mu.Lock()
		w.busy--
		if err != nil && w.err == nil {
			w.err = err
		}
		if w.busy == 0 || w.err != nil {
			w.wake.Broadcast()
		}
	}
	w.found = append(w.found, k.entries...)
	w.seen = append(w.seen, k.stamps...)
}

func (w *walk) push(next work) {
	w.mu.Lock()
	w.queue = append(w.queue, next)
	w.mu.Unlock()
	w.wake.Signal()
}

// count adds to a counter and refuses what goes above its bound.
func (w *walk) count(counter *atomic.Int64, n, most int64, path string, why Refusal) error {
	if total := counter.Add(n); total > most || total < 0 {
		return &Error{Op: "list", Path: clip(path), Refusal: why, Maximum: most}
	}
	return nil
}

// verify looks at every directory again. Each was enumerated before the first
// of these looks, so if none has changed then all of them held, at the moment
// in between, just what was found. Without it a directory that moves from the
// part not yet walked to the part already walked is never seen.
func (w *walk) verify() error {
	for _, old := range w.seen {
		fd, err := w.root.resolve(old.path, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return changed(old.path, err)
		}
		now, err := stampOf(fd, old.path)
		unix.Close(fd)
		if err != nil {
			return failure("list", old.path, err)
		}
		if now != old {
			return changed(old.path, nil)
		}
	}
	return nil
}

func stampOf(fd int, path string) (stamp, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return stamp{path, uint64(st.Dev), st.Ino, st.Ctim}, err
}

// changed makes an ErrChanged of an error that only a change can have caused.
// Others stay what they are.
func changed(path string, err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	e := &Error{Op: "list", Path: clip(path), Refusal: ErrChanged, Expected: "a tree that stands still"}
	if err == nil {
		return e
	}
	e.Err = err
	switch f := failure("list", path, err); f.Refusal {
	case ErrNotFound, ErrNotDirectory, ErrNotRegular, ErrChanged:
		return e
	case ErrOutsideRoot:
		if err != unix.EXDEV { // a link where a directory or file just was
			return e
		}
		return f
	default:
		return f
	}
}

// worker holds what one goroutine reuses from file to file.
type worker struct {
	*walk
	buffer  []byte
	hash    hash.Hash
	entries []Entry
	stamps  []stamp
}

func (k *worker) do(next work) error {
	if err := k.ctx.Err(); err != nil {
		if next.dir != nil {
			next.dir.release()
		}
		return failure("list", next.path, err)
	}
	if next.dir == nil {
		return k.enumerate(next.path)
	}
	return k.leavesOf(next)
}

// pushDirectory counts a directory before it queues it: ten million of them in
// one place must not fill the memory.
func (k *worker) pushDirectory(path string) error {
	if err := k.count(&k.directories, 1, int64(k.options.MaximumDirectories), path, ErrTooMany); err != nil {
		return err
	}
	k.push(work{path: path})
	return nil
}

// enumerate reads the names of one directory and makes their entries, with the
// help of other workers when they are many.
func (k *worker) enumerate(path string) error {
	fd, err := k.root.resolve(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return changed(path, err)
	}
	dir := &handle{fd: fd}
	dir.users.Store(1)
	rest, err := k.names(dir, path)
	if err != nil {
		dir.release()
		return changed(path, err)
	}
	return k.leavesOf(work{path: path, dir: dir, names: rest})
}

// names reads all names of a directory, queues directories and full batches,
// and returns the last, unfinished batch. That the directory did not change
// from before the first name on is for verify to see.
func (k *worker) names(dir *handle, path string) (rest []name, err error) {
	before, err := stampOf(dir.fd, path)
	if err != nil {
		return nil, err
	}
	empty := true
	err = eachDirent(dir.fd, k.buffer, func(d dirent) error {
		empty = false
		text := string(d.name)
		if len(path)+1+len(text) > MaximumPath {
			return &Error{Op: "list", Path: clip(path), Refusal: ErrInvalidPath, Expected: "paths of at most 4096 bytes"}
		}
		if d.kind == unix.DT_DIR {
			return k.pushDirectory(join(path, text))
		}
		if err := k.count(&k.leaves, 1, int64(k.options.MaximumEntries), path, ErrTooMany); err != nil {
			return err
		}
		if len(rest) == batch {
			dir.users.Add(1)
			k.push(work{path: path, dir: dir, names: rest})
			rest = make([]name, 0, batch)
		}
		rest = append(rest, name{text, d.kind})
		return nil
	})
	if err != nil {
		return nil, err
	}
	k.stamps = append(k.stamps, before)
	if empty && k.options.EmptyDirectories && path != "." {
		return nil, k.emptyDirectory(dir.fd, path)
	}
	return rest, nil
}

func (k *worker) emptyDirectory(fd int, path string) error {
	if err := k.count(&k.leaves, 1, int64(k.options.MaximumEntries), path, ErrTooMany); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failure("list", path, err)
	}
	k.entries = append(k.entries, Entry{Path: path, Type: Directory, Mode: st.Mode & 0o7777})
	return nil
}
