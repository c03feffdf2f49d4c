package server

import (
	"bytes"
	"io"

	"github.com/checkfu/checkfu/wire"
)

// input is the standard input of one process on its way there: what was taken
// and not yet written. It is guarded by the process's lock.
type input struct {
	size    int64 // how much is taken beyond what was written
	taken   int64
	written int64
	buf     bytes.Buffer
	end     bool   // the half-close was taken, after taken bytes
	closed  string // the cause: nothing more is taken
	told    int64  // the limit that the caller last learned of
	wake    chan struct{}
}

// window is what the caller may send. Its sum never decreases.
func (in *input) window() wire.Window {
	in.told = in.written + in.size
	return wire.Window{InputOffset: in.taken, InputCredit: in.told - in.taken}
}

// news says whether a window is worth a frame: where the caller is about to run
// out of what it knows of.
func (in *input) news() bool {
	limit := in.written + in.size
	return limit > in.told && (limit-in.told >= in.size/4 || in.told-in.taken < in.size/4)
}

func (in *input) refuse(tag wire.Tag) *wire.Error {
	w := in.window()
	e := &wire.Error{Tag: tag, InputOffset: w.InputOffset, InputCredit: w.InputCredit}
	if tag == wire.TagInputClosed {
		e.Cause = in.closed
		if in.end && in.closed == "" {
			e.Cause = wire.CauseEnded
		}
	}
	return e
}

// take accepts data that begins at offset, and the end after it: all of it or
// nothing. What was taken before is passed over, so that a repetition does
// nothing.
// Errors: *wire.Error with TagInputGap, TagInputClosed or TagInputBufferFull.
func (in *input) take(offset int64, data []byte, end bool) error {
	if offset > in.taken {
		if in.closed != "" {
			// What a process took that is lost with a server nobody knows; it is gone,
			// and no gap is its caller's fault.
			return in.refuse(wire.TagInputClosed)
		}
		return in.refuse(wire.TagInputGap)
	}
	if known := in.taken - offset; known >= int64(len(data)) {
		data = nil
	} else {
		data = data[known:]
	}
	last := max(offset, in.taken) + int64(len(data))
	switch {
	case len(data) > 0 && (in.end || in.closed != ""):
		return in.refuse(wire.TagInputClosed)
	case int64(len(data)) > in.written+in.size-in.taken:
		return in.refuse(wire.TagInputBufferFull)
	}
	if in.closed == "" {
		in.buf.Write(data)
	}
	in.taken = last
	in.end = in.end || end
	in.poke()
	return nil
}

// stop refuses everything further.
func (in *input) stop(cause string) {
	if in.closed == "" {
		in.closed = cause
	}
	in.buf.Reset()
	in.poke()
}

func (in *input) poke() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// inputStep is how much is written to the process at once: credit comes back in
// such steps.
const inputStep = 32 << 10

// pumpInput writes what was taken, then closes. A write waits for the process
// and ends with it.
func (p *process) pumpInput(w io.WriteCloser) {
	var err error
	defer func() {
		if err != nil {
			p.s.log(err)
		}
	}()
	defer p.s.caught(&err)
	defer w.Close()
	step := make([]byte, inputStep)
	for {
		p.mu.Lock()
		n := copy(step, p.input.buf.Next(inputStep))
		over := p.input.closed != "" || n == 0 && p.input.end
		p.mu.Unlock()
		if over {
			return
		}
		if n == 0 {
			select {
			case <-p.input.wake:
			case <-p.ctx.Done():
				return
			}
			continue
		}
		done, err := w.Write(step[:n])
		p.mu.Lock()
		p.input.written += int64(min(max(done, 0), n))
		if err != nil || done < n {
			p.input.stop(wire.CauseGuestClosed)
		}
		if p.reader != nil && p.input.news() {
			p.reader.notify()
		}
		p.mu.Unlock()
	}
}
