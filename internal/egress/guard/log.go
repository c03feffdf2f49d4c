package guard

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// LogError says that the log could not be written. What a guard let through
// after that nobody could account for, so it lets nothing through.
type LogError struct {
	Seq int64 // of the line that was lost
	Err error
}

// Error names the line.
func (e *LogError) Error() string {
	return "decision log: line " + strconv.FormatInt(e.Seq, 10) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *LogError) Unwrap() error { return e.Err }

// journal writes lines, each with the digest of the one before. Its first
// failure is its last write: half a line may be out, and whatever came behind
// it would be a chain that does not hold.
type journal struct {
	instance string
	revision sandbox.Digest
	clock    Clock
	failed   chan struct{} // closed at the first failure

	mu   sync.Mutex
	w    io.Writer
	seq  int64
	prev string
	err  *LogError
}

// write completes and writes l and returns its number, which is never 0.
// Errors: *LogError, the same for ever.
func (j *journal) write(l Line) (int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, j.err
	}
	l.V, l.Seq, l.Prev = 1, j.seq+1, j.prev
	l.T = sandbox.At(j.clock.Now())
	l.Instance, l.PolicyRevision = j.instance, j.revision
	data, err := canonical.Encode(l)
	if err == nil {
		// A reader that stalls must not stall us for ever.
		if d, ok := j.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = d.SetWriteDeadline(time.Now().Add(logTime)) // a plain file has none and needs none
		}
		var n int
		if n, err = j.w.Write(append(data, '\n')); err == nil && n != len(data)+1 {
			err = io.ErrShortWrite
		}
	}
	if err != nil {
		j.err = &LogError{Seq: l.Seq, Err: err}
		close(j.failed)
		return 0, j.err
	}
	j.seq, j.prev = l.Seq, canonical.Digest(data)
	return l.Seq, nil
}

// broken returns the failure, if there was one.
func (j *journal) broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		return nil
	}
	return j.err
}

// ChainError says where a log is not what a guard wrote.
type ChainError struct {
	Seq      int64 // of the line at fault
	Expected string
	Got      string
	Err      error // of a line that is no Line, or nil
}

// Error names the line.
func (e *ChainError) Error() string {
	text := "decision log: line " + strconv.FormatInt(e.Seq, 10) + ": expected " + e.Expected
	if e.Err != nil {
		return text + ": " + e.Err.Error()
	}
	return text + ", got " + strconv.Quote(e.Got)
}

// Unwrap returns the cause.
func (e *ChainError) Unwrap() error { return e.Err }

// ReadLog reads a log and holds its chain: no line was changed, taken out, put
// in or moved. Lines missing at the end it cannot see. It returns the lines
// before the fault.
// Errors: *ChainError; the reader's.
func ReadLog(r io.Reader) ([]Line, error) {
	var lines []Line
	prev := ""
	for in := bufio.NewReaderSize(r, MaxLineBytes); ; {
		seq := int64(len(lines) + 1)
		data, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(data) == 0:
			return lines, nil
		case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull):
			return lines, &ChainError{Seq: seq, Expected: "a whole line", Got: strconv.Itoa(len(data)) + " bytes"}
		case err != nil:
			return lines, err
		}
		data = data[:len(data)-1]
		var l Line
		if err := canonical.Decode(data, &l); err != nil {
			return lines, &ChainError{Seq: seq, Expected: "a line of the log", Err: err}
		}
		if l.Seq != seq {
			return lines, &ChainError{Seq: seq, Expected: "its number", Got: strconv.FormatInt(l.Seq, 10)}
		}
		if l.Prev != prev {
			return lines, &ChainError{Seq: seq, Expected: "the digest of the line before, " + strconv.Quote(prev), Got: l.Prev}
		}
		lines, prev = append(lines, l), canonical.Digest(data)
	}
}
