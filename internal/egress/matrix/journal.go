package matrix

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
)

// journal reads the decision log of a running guard from a pipe, line by line.
type journal struct {
	pipe *os.File // our end
	done chan struct{}

	mu      sync.Mutex
	raw     bytes.Buffer
	lines   []guard.Line
	err     error
	changed chan struct{}
}

// newJournal begins to read. The file returned is the guard's end.
func newJournal() (*journal, *os.File, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	j := &journal{pipe: in, done: make(chan struct{}), changed: make(chan struct{})}
	go j.read()
	return j, out, nil
}

// maxJournal bounds what is kept of one guard's log.
const maxJournal = 64 << 20

func (j *journal) read() {
	defer close(j.done)
	in := bufio.NewReaderSize(j.pipe, guard.MaxLineBytes)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return // the guard is gone, or the pipe is closed
		}
		j.mu.Lock()
		j.raw.Write(line)
		if j.err == nil {
			var l guard.Line
			if j.err = canonical.Decode(bytes.TrimSuffix(line, []byte("\n")), &l); j.err == nil {
				j.lines = append(j.lines, l)
			}
		}
		full := j.raw.Len() > maxJournal
		close(j.changed)
		j.changed = make(chan struct{})
		j.mu.Unlock()
		if full {
			return
		}
	}
}

// chained holds the whole log to its chain, from the first line on.
func (j *journal) chained() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	_, err := guard.ReadLog(bytes.NewReader(j.raw.Bytes()))
	return err
}

// mark is where the log is now.
func (j *journal) mark() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.lines)
}

// first is the first line.
func (j *journal) first() guard.Line {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) == 0 {
		return guard.Line{}
	}
	return j.lines[0]
}

// contains reports whether the log has a text anywhere.
func (j *journal) contains(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Contains(j.raw.Bytes(), []byte(text))
}

// since returns the decisions after a mark.
func (j *journal) since(mark int) []guard.Line {
	j.mu.Lock()
	defer j.mu.Unlock()
	return ofKind(j.lines[min(mark, len(j.lines)):], guard.KindDecision)
}

// wait waits until there are n lines of a kind after a mark.
// Errors: of ctx, with what there is.
func (j *journal) wait(ctx context.Context, mark int, kind guard.Kind, n int) ([]guard.Line, error) {
	for {
		j.mu.Lock()
		got, changed := ofKind(j.lines[min(mark, len(j.lines)):], kind), j.changed
		j.mu.Unlock()
		if len(got) >= n {
			return got, nil
		}
		select {
		case <-changed:
		case <-j.done:
			return got, fmt.Errorf("log: expected %d lines of kind %s, got %d and its end", n, kind, len(got))
		case <-ctx.Done():
			return got, fmt.Errorf("log: expected %d lines of kind %s, got %d: %w", n, kind, len(got), ctx.Err())
		}
	}
}

// close ends the reading; what the guard writes then has nowhere to go, because
// no process that is just being started has our end of the pipe either.
func (j *journal) close() {
	syscall.ForkLock.RLock()
	j.pipe.Close()
	syscall.ForkLock.RUnlock()
	<-j.done
}

// shut is close, and waits until nobody has the reading end any more. A child with a
// user namespace of its own has it between fork and exec, whatever ForkLock says.
// Errors: of ctx; then what the guard writes may still go somewhere.
func (j *journal) shut(ctx context.Context) error {
	raw, err := j.pipe.SyscallConn()
	if err != nil {
		return err
	}
	var writing int
	var failed error
	// Not by Fd, which would let a read of it block for ever.
	err = raw.Control(func(fd uintptr) {
		writing, failed = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("open the other end of the log: %w", err)
	}
	defer unix.Close(writing)
	j.close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		poll := []unix.PollFd{{Fd: int32(writing)}}
		if _, err := unix.Poll(poll, 0); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if poll[0].Revents&unix.POLLERR != 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the log still has a reader: %w", ctx.Err())
		}
	}
}

func ofKind(lines []guard.Line, kind guard.Kind) []guard.Line {
	var out []guard.Line
	for _, l := range lines {
		if l.Kind == kind {
			out = append(out, l)
		}
	}
	return out
}
