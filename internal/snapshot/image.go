package snapshot

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/volume"
)

// stillFor is how long a source whose blocks were shared stands still besides, so that
// its bytes are digested where they lie in memory: the copy's come from the disk. That
// is enough for some 150 MB on one core; what is left is read from the copy.
const stillFor = 100 * time.Millisecond

// takeImage takes what the filesystem in an image says is used: what its session
// deleted stays behind. An image that is no filesystem is taken whole.
func (st *stage) takeImage(ctx context.Context, src Source, to *os.File) (int64, []Chunk, error) {
	from, size, err := openImage(src.Path)
	if err != nil {
		return 0, nil, err
	}
	defer from.Close()
	if err := from.Sync(); err != nil { // what is not written out may look like a hole
		return 0, nil, err
	}
	shared, err := share(from, to)
	if err != nil {
		return 0, nil, err
	}
	used, err := volume.ReadUsed(from, size)
	if err != nil {
		return 0, nil, err
	}
	if shared { // to is one moment's from here on
		chunks, err := digestShared(ctx, from, to, pass{size: size, used: used}, st.s.still, src.taken)
		return size, chunks, err
	}
	chunks, err := pass{from: from, size: size, to: to, used: used, soon: true}.run(ctx)
	if err == nil {
		src.taken()
	}
	return size, chunks, err
}

// digestShared digests an image that shares its blocks with a copy, of the source as
// long as that may stand still, then of the copy. Meanwhile what is not used is made
// holes in the copy, which is forced to the disk: one waits while the other works.
func digestShared(ctx context.Context, from, to *os.File, p pass, still time.Duration, taken func()) ([]Chunk, error) {
	stored := make(chan error, 1)
	go func() {
		err := erase(to, p.used)
		if err == nil {
			err = to.Sync()
		}
		stored <- err
	}()
	begin := time.Now()
	p.from, p.enough = from, func() bool { return time.Since(begin) >= still }
	chunks, next, err := p.part(ctx)
	if err == nil {
		taken()
		var rest []Chunk
		p.from, p.first, p.enough = to, next, nil
		rest, err = p.run(ctx)
		chunks = append(chunks, rest...)
	}
	return chunks, joined(err, <-stored)
}

// openImage opens a regular file, and nothing that a link leads to.
func openImage(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{Kind: ErrUnsupported, Field: "image", Expected: "a regular file", Got: info.Mode().Type().String()}
	}
	if err != nil {
		return nil, 0, joined(err, f.Close())
	}
	return f, info.Size(), nil
}
