package relay

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// past is a deadline that ends a wait now.
var past = time.Unix(1, 0)

// body is the body of a request on its way to the gateway. The transport reads it
// in a goroutine of its own, perhaps still after it has answered, so whoever reads
// on behind it closes it first.
type body struct {
	conn  net.Conn
	in    *bufio.Reader
	src   io.Reader
	left  int64 // that may still come
	sized bool  // exactly left comes
	moved func(n int)

	mu      sync.Mutex // held by Read
	refusal error      // *route.Refusal, why it ended early
	read    int64
	closed  atomic.Bool
	whole   chan struct{} // closed once all of it was read
}

// newBody reads a body of n bytes or, where n is chunked, of at most that many.
// moved is told of each piece.
func newBody(conn net.Conn, in *bufio.Reader, n, most int64, moved func(int)) *body {
	b := &body{conn: conn, in: in, src: in, left: n, sized: n != chunked, moved: moved, whole: make(chan struct{})}
	switch n {
	case chunked:
		b.src, b.left = httputil.NewChunkedReader(in), most
	case 0:
		close(b.whole)
	}
	return b
}

// Read reads a piece, as it comes.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isWhole() {
		return 0, io.EOF
	}
	if b.refusal != nil {
		return 0, b.refusal
	}
	_ = b.conn.SetReadDeadline(time.Now().Add(bodyTime))
	if b.closed.Load() { // after the deadline, which Close has set in the meantime
		return 0, io.ErrClosedPipe
	}
	if b.sized && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.src.Read(p)
	b.read += int64(n)
	b.left -= int64(n)
	b.moved(n)
	switch {
	case b.left < 0: // only a chunked one can
		b.refusal = tooLarge(b.read + b.left)
	case b.sized && b.left == 0, !b.sized && err == io.EOF:
		close(b.whole)
		err = io.EOF
	case err != nil && b.closed.Load(): // it was Close that ended the wait
		return n, io.ErrClosedPipe
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.refusal = &route.Refusal{Status: 408, Reason: route.ReasonTimeout, Message: "expected more of the body within " + bodyTime.String()}
	case err != nil:
		b.refusal = badBody(400, "a whole body, framed as announced")
	}
	if b.refusal != nil {
		return 0, b.refusal
	}
	return n, err
}

// Close ends a Read and all after it.
func (b *body) Close() error {
	if b.isWhole() {
		return nil // its deadline is another's now
	}
	b.closed.Store(true)
	_ = b.conn.SetReadDeadline(past)
	b.mu.Lock()
	defer b.mu.Unlock()
	return nil
}

func (b *body) isWhole() bool {
	select {
	case <-b.whole:
		return true
	default:
		return false
	}
}

// outcome is how much was read and why it ended early.
func (b *body) outcome() (read int64, refusal error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read, b.refusal
}

// watch calls gone when the workload ends the connection after its request is
// whole. One that only ends its own half is taken for gone, as other servers do:
// the two cannot be told apart while it says nothing. The function answered ends
// the watch, and returns when it has ended.
func (b *body) watch(gone func()) (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-b.whole:
		case <-over:
			return
		}
		_ = b.conn.SetReadDeadline(time.Time{})
		for n, scratch := 0, make([]byte, 64); n < lineBytes; {
			select {
			case <-over: // after the deadline, which end has set in the meantime
				return
			default:
			}
			got, err := b.in.Read(scratch)
			if n += got; err != nil {
				break
			}
		}
		select {
		case <-over:
		default:
			gone() // or it sends more than it was asked for
		}
	}()
	return func() {
		close(over)
		if b.isWhole() {
			_ = b.conn.SetReadDeadline(past)
		}
		<-ended
	}
}
