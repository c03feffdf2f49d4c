package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Process is one that was started and listens.
type Process struct {
	// PID is its process id, valid until Done.
	PID int
	// Start is the first line of its log, with its newline.
	Start []byte

	command *exec.Cmd
	life    *os.File // our end; open while the process is to live
	done    chan struct{}
	ended   error // of Wait; read after done
	said    *tail
}

// Done is closed when the process has ended and is no zombie.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended, once Done: nil where it ended as it was told to,
// else *exec.ExitError. It is nil before.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.ended
	default:
		return nil
	}
}

// Said is the last of what the process said on its standard error: at most 8 KiB,
// empty as long as it is well.
func (p *Process) Said() string { return p.said.String() }

// killAfter is how long a process that was told to end has until it is killed,
// and then again until it is given up. It ends by itself within 5 s.
const killAfter = 8 * time.Second

// StopError is a process that does not end although it was killed.
type StopError struct{ PID int }

func (e *StopError) Error() string {
	return "process " + strconv.Itoa(e.PID) + ": expected to end when killed, got nothing"
}

// Stop ends the process: SIGTERM, and after 8 s, or when ctx is done, SIGKILL. It
// can be called again, and after the process ended by itself.
//
// Blocks: until Done, at most 16 s.
// Errors: *StopError; how it ended is Err.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.command.Process.Signal(syscall.SIGTERM) // one that is done needs none
	if p.awaits(ctx.Done()) {
		return nil
	}
	_ = p.command.Process.Kill()
	if p.awaits(nil) {
		return nil
	}
	return &StopError{p.PID}
}

func (p *Process) awaits(hurry <-chan struct{}) bool {
	late := time.NewTimer(killAfter)
	defer late.Stop()
	select {
	case <-p.done:
		return true
	case <-hurry:
	case <-late.C:
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// reap waits for the end. The pipe of what it said ends with it, because no
// process but itself has the other end.
func (p *Process) reap(said *os.File) {
	_, _ = io.Copy(p.said, said)
	said.Close()
	p.ended = p.command.Wait()
	p.life.Close()
	close(p.done)
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const tailSize = 8 << 10

// Write keeps the end of b.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if over := len(t.last) - tailSize; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(b), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// errNoLine is a process that ended, or closed its output, without a line.
var errNoLine = errors.New("it ended without a line")
