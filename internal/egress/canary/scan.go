package canary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The bounds of a scan, in bytes.
const (
	MinSecret = 16      // what is shorter may lie somewhere by chance
	MaxSecret = 4 << 10 //
	MaxMemory = 4 << 30 // of resident memory
	MaxFile   = 1 << 30 // of one file that is open
)

// Hits is how often the secret was found.
type Hits struct {
	Environ int // what the process began with
	Cmdline int
	Memory  int // environment and arguments lie there as well
	Names   int // of what its descriptors lead to
	Files   int // in regular files that it has open

	Scanned int64 // bytes of memory that were looked at; more than 0
}

// Total is all hits.
func (h Hits) Total() int { return h.Environ + h.Cmdline + h.Memory + h.Names + h.Files }

// Error says what of a process could not be scanned.
type Error struct {
	PID  int
	What string
	Err  error
}

// Error is one line.
func (e *Error) Error() string {
	return "canary: process " + strconv.Itoa(e.PID) + ": " + e.What + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Scan looks for the secret in a process, which runs on meanwhile.
//
// Blocks: as long as reading its memory takes, until ctx is done.
// Errors: *Error: a secret out of bounds, a process that is gone, that ends
// meanwhile, or that may not be looked into.
func Scan(ctx context.Context, pid int, secret []byte) (Hits, error) {
	fail := func(what string, err error) (Hits, error) { return Hits{}, &Error{pid, what, err} }
	if len(secret) < MinSecret || len(secret) > MaxSecret {
		return fail("secret", fmt.Errorf("expected %d to %d bytes, got %d", MinSecret, MaxSecret, len(secret)))
	}
	// Holds the process: its number may be another's by the end.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fail("pidfd", err)
	}
	defer unix.Close(fd)

	var h Hits
	s := scan{ctx: ctx, dir: filepath.Join("/proc", strconv.Itoa(pid)), secret: secret}
	for _, part := range []struct {
		what string
		into *int
		look func() (int, error)
	}{
		{"environ", &h.Environ, func() (int, error) { return s.file("environ") }},
		{"cmdline", &h.Cmdline, func() (int, error) { return s.file("cmdline") }},
		{"memory", &h.Memory, s.memory},
		{"descriptors", &h.Names, s.names},
		{"open files", &h.Files, s.files},
	} {
		if *part.into, err = part.look(); err != nil {
			return fail(part.what, err)
		}
	}
	if h.Scanned = s.scanned; h.Scanned == 0 {
		return fail("memory", errors.New("nothing of it is resident"))
	}
	// What had ended in between would have looked clean.
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil || n != 0 {
		return fail("end of the scan", os.ErrProcessDone)
	}
	return h, nil
}

// scan is one in progress.
type scan struct {
	ctx     context.Context
	dir     string // of the process in /proc
	secret  []byte
	scanned int64
}

// file counts in one of the kernel's own.
func (s *scan) file(name string) (int, error) {
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return s.count(f)
}

// names counts in what the descriptors lead to, by name.
func (s *scan) names() (int, error) {
	return s.descriptors(func(path string) (int, error) {
		target, err := os.Readlink(path)
		return bytes.Count([]byte(target), s.secret), err
	})
}

// files counts in the regular files that are open, whether or not they still
// have a name. A pipe or a socket is not read: that would take from it.
func (s *scan) files() (int, error) {
	return s.descriptors(func(path string) (int, error) {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return 0, err
		}
		if info.Size() > MaxFile {
			return 0, fmt.Errorf("%s: expected at most %d bytes, got %d", path, MaxFile, info.Size())
		}
		f, err := os.Open(path)
		if errors.Is(err, unix.ENXIO) {
			return 0, nil // a poller, which calls itself a regular file and cannot be opened
		}
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if _, err := f.ReadAt(make([]byte, 1), 0); errors.Is(err, unix.EINVAL) {
			return 0, nil // a namespace or a process, which call themselves regular files and hold no bytes
		}
		return s.count(io.LimitReader(f, MaxFile))
	})
}

func (s *scan) descriptors(look func(path string) (int, error)) (int, error) {
	dir := filepath.Join(s.dir, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, e := range entries {
		n, err := look(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // closed meanwhile
			return 0, err
		}
		total += n
	}
	return total, nil
}

// count counts in a stream, also across the pieces in which it comes.
func (s *scan) count(r io.Reader) (int, error) {
	total, kept := 0, 0
	buf := make([]byte, pieceSize)
	for {
		if err := s.ctx.Err(); err != nil {
			return 0, context.Cause(s.ctx)
		}
		n, err := r.Read(buf[kept:])
		have := buf[:kept+n]
		total += bytes.Count(have, s.secret)
		// A hit that lies in what is kept alone is too short to be one.
		kept = copy(buf, have[max(0, len(have)-len(s.secret)+1):])
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

const pieceSize = 1 << 20
