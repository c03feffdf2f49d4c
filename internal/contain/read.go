//go:build linux

package contain

import (
	"context"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// chunk is the most bytes that one read asks for between two looks at ctx.
const chunk = 1 << 20

// ReadFile returns the bytes of a regular file. What is read is the file that
// was there when its name was resolved, whatever takes that name meanwhile. A
// file that is written to during the read gives a mixture of old and new.
//
// Bounds: at most maximum bytes are ever returned, also when the file grows.
// Blocks: on the disk only; a FIFO, a socket, a device or a file under another
// process's lease is refused at once.
// Errors: ErrInvalidPath, ErrOutsideRoot, ErrNotFound, ErrNotRegular,
// ErrTooLarge, ErrChanged, ErrDenied.
// Source: contract "The operations" (readFile).
func (r *Root) ReadFile(ctx context.Context, unsafePath string, maximum int64) ([]byte, error) {
	const op = "read"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	if err := ctx.Err(); err != nil {
		return nil, failure(op, rel, err)
	}
	fd, size, err := r.openFile(op, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)

	tooLarge := &Error{Op: op, Path: clip(rel), Refusal: ErrTooLarge, Maximum: maximum}
	if size > maximum {
		return nil, tooLarge
	}
	// One byte more than the file held shows its end without another
	// allocation, and one more than maximum shows that it outgrew the bound.
	limit := maximum
	if limit < math.MaxInt64 {
		limit++
	}
	data := make([]byte, 0, min(size+1, limit))
	for {
		if err := ctx.Err(); err != nil {
			return nil, failure(op, rel, err)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		room := min(int64(cap(data)-len(data)), limit-int64(len(data)), chunk)
		n, err := unix.Read(fd, data[len(data):int64(len(data))+room])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, failure(op, rel, err)
		case n == 0:
			return data, nil
		}
		data = data[:len(data)+n]
		if int64(len(data)) > maximum {
			return nil, tooLarge
		}
	}
}

// OpenFile opens a regular file for reading, for those too large for memory,
// and gives its size at that moment. The caller closes the file and bounds
// what it reads: the file may grow.
// Errors: as ReadFile.
func (r *Root) OpenFile(unsafePath string) (file *os.File, size int64, err error) {
	const op = "open file"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return nil, 0, err
	}
	defer r.leave()
	fd, size, err := r.openFile(op, rel)
	if err != nil {
		return nil, 0, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, 0, failure(op, rel, err)
	}
	return os.NewFile(uintptr(fd), rel), size, nil
}

func (r *Root) openFile(op, rel string) (fd int, size int64, err error) {
	fd, st, err := r.openRegular(r.resolve(rel, unix.O_PATH|unix.O_NOFOLLOW))
	if err == nil {
		return fd, st.Size, nil
	}
	e := failure(op, rel, err)
	if e.Refusal == ErrNotDirectory { // a file where the path wants a directory: so there is no such file
		e.Refusal = ErrNotFound
	}
	return -1, 0, e
}
