package client

import (
	"io"
	"sync"
)

// pipe is one output stream between the reader of the wire and the reader of
// the process. Memory grows with what is unread, up to max bytes.
type pipe struct {
	max   int
	lossy bool // drops the oldest bytes, and never makes the wire wait

	mu    sync.Mutex
	news  sync.Cond
	ring  []byte
	start int // of what is unread
	size  int
	end   error // after what is unread; nil while it goes on
	loose bool  // nobody waits for this reader any more

	stalled chan struct{} // closed once what comes may come late: see stall
	once    sync.Once
}

const (
	outputBytes = 1 << 20
	errorBytes  = 256 << 10
	ringBytes   = 32 << 10 // at first
)

func newPipe(max int, lossy bool) *pipe {
	p := &pipe{max: max, lossy: lossy, stalled: make(chan struct{})}
	p.news.L = &p.mu
	return p
}

// write hands b over. It waits while max bytes are unread, unless the pipe is
// lossy, loose, or at its end.
func (p *pipe) write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lossy && len(b) > p.max {
		b = b[len(b)-p.max:]
	}
	for len(b) > 0 && p.end == nil {
		if p.size == p.max {
			switch {
			case p.lossy:
				p.skip(min(len(b), p.size))
			case p.loose:
				// A destroyed process whose output nobody reads: what does not
				// fit is gone, and the end says so.
				p.end = errUnread
				p.news.Broadcast()
				return
			default:
				p.stall()
				p.news.Wait()
				continue
			}
		}
		n := p.put(b)
		b = b[n:]
		p.news.Broadcast()
	}
}

// stall says that nothing else need wait for this stream: a write had to, or
// the wire does not bring it.
func (p *pipe) stall() { p.once.Do(func() { close(p.stalled) }) }

// put copies as much of b as fits.
func (p *pipe) put(b []byte) int {
	if want := min(p.size+len(b), p.max); want > len(p.ring) {
		p.grow(want)
	}
	n := min(len(b), len(p.ring)-p.size)
	at := (p.start + p.size) % len(p.ring)
	copied := copy(p.ring[at:], b[:n])
	copy(p.ring, b[copied:n])
	p.size += n
	return n
}

func (p *pipe) grow(want int) {
	next := make([]byte, min(max(2*len(p.ring), want, ringBytes), p.max))
	if p.size > 0 {
		n := copy(next, p.ring[p.start:min(p.start+p.size, len(p.ring))])
		copy(next[n:], p.ring[:p.size-n])
	}
	p.ring, p.start = next, 0
}

func (p *pipe) skip(n int) {
	p.start = (p.start + n) % len(p.ring)
	if p.size -= n; p.size == 0 {
		p.start = 0
	}
}

// Read waits for bytes or the end.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	for p.size == 0 && p.end == nil {
		p.news.Wait()
	}
	if p.size == 0 {
		return 0, p.end
	}
	n := copy(b, p.ring[p.start:min(p.start+p.size, len(p.ring))])
	if rest := p.size - n; rest > 0 && n < len(b) {
		n += copy(b[n:], p.ring[:rest])
	}
	p.skip(n)
	p.news.Broadcast()
	return n, nil
}

// finish ends the stream, after what is unread. The first end counts.
func (p *pipe) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = err
	}
	p.news.Broadcast()
}

// loosen lets writes wait for no reader.
func (p *pipe) loosen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loose = true
	p.news.Broadcast()
}

var _ io.Reader = (*pipe)(nil)
