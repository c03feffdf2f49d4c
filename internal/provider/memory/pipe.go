package memory

import (
	"errors"
	"io"
	"sync"
)

// pipeBytes is how much a pipe holds before its writer waits: Linux's default.
const pipeBytes = 64 << 10

// errBrokenPipe is what a writer gets when nobody reads any more.
//
//lint:ignore ST1005 the system's own words, shown as a shell shows them
var errBrokenPipe = errors.New("Broken pipe")

// pipe is a bounded byte pipe in which nothing is lost: a writer waits while
// it is full, a reader while it is empty. What was written before the writer
// closed is still read.
//
// Concurrency: one writer and one reader at a time; the close methods may be
// called by anyone and repeatedly, the first of each kind counts.
type pipe struct {
	mu   sync.Mutex
	cond sync.Cond
	buf  []byte
	wend error // why there will be no more bytes: io.EOF or what the reader gets
	rend error // why nobody will read: what the writer gets once the pipe is full
}

func newPipe() *pipe {
	p := &pipe{}
	p.cond.L = &p.mu
	return p
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for done < len(b) {
		switch {
		case p.wend != nil:
			return done, io.ErrClosedPipe
		// A reader that stood still at its deadline leaves the pipe in place:
		// whether its writer is done does not depend on who came first.
		case p.rend == errBrokenPipe:
			return done, errBrokenPipe
		case len(p.buf) < pipeBytes:
			n := min(pipeBytes-len(p.buf), len(b)-done)
			p.buf = append(p.buf, b[done:done+n]...)
			done += n
			p.cond.Broadcast()
		case p.rend != nil:
			return done, p.rend
		default:
			p.cond.Wait()
		}
	}
	return done, nil
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 && p.wend == nil && len(b) > 0 {
		p.cond.Wait()
	}
	if len(p.buf) == 0 && len(b) > 0 {
		return 0, p.wend
	}
	n := copy(b, p.buf)
	p.buf = append(p.buf[:0], p.buf[n:]...)
	p.cond.Broadcast()
	return n, nil
}

// closeWrite says that no more bytes come; the reader gets err after the rest.
func (p *pipe) closeWrite(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wend == nil {
		p.wend = err
	}
	p.cond.Broadcast()
}

// closeRead says that nobody reads any more; the writer gets err.
func (p *pipe) closeRead(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rend == nil {
		p.rend = err
	}
	p.cond.Broadcast()
}

// Close is the writer's half-close.
func (p *pipe) Close() error {
	p.closeWrite(io.EOF)
	return nil
}

// shut ends both sides. What is in the pipe can still be read.
func (p *pipe) shut() {
	p.closeWrite(io.EOF)
	p.closeRead(errBrokenPipe)
}

// capture collects one output stream of a command, at most limit bytes.
type capture struct {
	mu    sync.Mutex
	limit int64
	data  []byte
	over  func() // called when there was more
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(b)) > c.limit-int64(len(c.data)) {
		c.over()
		return 0, errKilled
	}
	c.data = append(c.data, b...)
	return len(b), nil
}

// lossy is a pipe whose writer never waits: what does not fit is dropped. It
// is good enough for diagnostics and cannot stop the program.
type lossy struct{ *pipe }

func (l lossy) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wend == nil && l.rend == nil {
		l.buf = append(l.buf, b[:min(pipeBytes-len(l.buf), len(b))]...)
		l.cond.Broadcast()
	}
	return len(b), nil
}
