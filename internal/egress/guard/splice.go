package guard

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stream is one end of a tunnel: a bare socket, whose descriptor the kernel can
// splice, and whose two directions end apart.
type stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

const (
	bufferBytes = 16 << 10
	pipeBytes   = 1 << 20 // asked for; with small segments a pipe is full long before its bytes
	spareFeeds  = 32      // pipes kept for the next transfer
)

// buffers are what small transfers go through. A direction that waits for bytes
// holds neither a buffer nor a pipe: a thousand idle tunnels cost their sockets.
var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// feed is a pipe between two sockets.
type feed struct{ r, w int }

func (f feed) close() {
	_ = unix.Close(f.r)
	_ = unix.Close(f.w)
}

// feeds are the pipes at hand, all empty.
type feeds struct {
	spare *spare
	mu    sync.Mutex
	free  []feed
	over  bool
}

// take gives a pipe, and false if there is no descriptor left for one.
func (s *feeds) take() (feed, bool) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		f := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return f, true
	}
	s.mu.Unlock()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return feed{}, false
	}
	if !s.spare.held() { // a pipe is a comfort
		feed{fds[0], fds[1]}.close()
		return feed{}, false
	}
	// Where the user's share of pipe memory is used up it stays as it is.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes)
	return feed{fds[0], fds[1]}, true
}

// give takes back a pipe that is empty.
func (s *feeds) give(f feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.free) == spareFeeds {
		f.close()
		return
	}
	s.free = append(s.free, f)
}

// end closes all pipes, also those that are given back later.
func (s *feeds) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.free {
		f.close()
	}
	s.free, s.over = nil, true
}

// pump moves bytes from src to dst until src ends. It calls touch whenever some
// came or went, and moved after each step with how many went out. Small pieces are read and written; where a whole
// buffer comes at once, the next steps are spliced, and no byte is copied.
// Errors: the socket's; nil is the end of src. writing says that it was dst that
// failed, with bytes of src in hand.
func pump(dst, src stream, pipes *feeds, touch func(), moved func(n int)) (writing bool, err error) {
	from, err := src.SyscallConn()
	if err != nil {
		return false, err
	}
	to, err := dst.SyscallConn()
	if err != nil {
		return false, err
	}
	p := transfer{pipes: pipes, touch: touch}
	in, out := p.in, p.out // one closure each, not one for each step
	for {
		if err := from.Read(in); err != nil {
			return false, err
		}
		if p.err != nil || p.n == 0 {
			p.release()
			return false, p.err
		}
		n := p.n
		if p.buffer != nil {
			_, err = dst.Write(p.buffer[:n])
			p.bulk = n == bufferBytes && !p.never
		} else if err = to.Write(out); err == nil {
			err = p.err
			p.bulk = n >= bufferBytes
		}
		if err != nil {
			p.drop()
			return true, err
		}
		p.release()
		moved(n)
	}
}

// transfer is one direction's step: in fills a buffer or a pipe, out drains the
// pipe. Both are called by the poller, and say false when they have to wait.
type transfer struct {
	pipes  *feeds
	touch  func()
	bulk   bool // the next step is spliced
	never  bool // this pair of sockets cannot be
	buffer *[bufferBytes]byte
	pipe   feed
	piped  bool
	n      int // bytes that came
	left   int // bytes in the pipe
	err    error
}

func (p *transfer) in(fd uintptr) bool {
	p.err = nil
	if p.bulk && !p.piped {
		p.pipe, p.piped = p.pipes.take()
	}
	if p.piped {
		n, err := again(func() (int64, error) {
			n, err := unix.Splice(int(fd), nil, p.pipe.w, nil, pipeBytes, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			return int64(n), err
		})
		switch {
		case errors.Is(err, unix.EAGAIN):
			p.release()
			return false
		case errors.Is(err, unix.EINVAL):
			p.release()
			p.bulk, p.never = false, true
		default:
			p.n, p.left, p.err = int(n), int(n), err
			p.touch()
			return true
		}
	}
	p.buffer = buffers.Get().(*[bufferBytes]byte)
	n, err := again(func() (int64, error) {
		n, err := unix.Read(int(fd), p.buffer[:])
		return int64(n), err
	})
	if errors.Is(err, unix.EAGAIN) {
		p.release()
		return false
	}
	p.n, p.err = int(n), err
	p.touch()
	return true
}

func (p *transfer) out(fd uintptr) bool {
	p.err = nil
	for p.left > 0 {
		n, err := again(func() (int64, error) {
			n, err := unix.Splice(p.pipe.r, nil, int(fd), nil, p.left, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			return int64(n), err
		})
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil || n == 0 {
			p.err = err
			if err == nil {
				p.err = unix.EPIPE
			}
			return true
		}
		p.left -= int(n)
		p.touch() // a slow reader of a full pipe is not idle
	}
	return true
}

// release gives back what the step held; the pipe is empty.
func (p *transfer) release() {
	if p.buffer != nil {
		buffers.Put(p.buffer)
		p.buffer = nil
	}
	if p.piped {
		p.pipes.give(p.pipe)
		p.piped = false
	}
}

// drop is release for a pipe that may hold bytes of this tunnel: they must not
// be the first bytes of the next.
func (p *transfer) drop() {
	if p.piped {
		p.pipe.close()
		p.piped = false
	}
	p.release()
}

// again repeats a call that a signal interrupted.
func again(call func() (int64, error)) (int64, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
