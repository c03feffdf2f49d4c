package guard

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tunnel leads bytes between a client and an origin until both are done or one
// has to go. Each direction has a goroutine; nobody waits for the two.
type tunnel struct {
	guard   *Guard
	session *session
	client  stream
	origin  stream
	request int64 // Seq of the decision

	up, down atomic.Int64 // bytes moved
	last     atomic.Int64 // when bytes last came or went, unix nanoseconds
	running  atomic.Int32 // directions not at their end

	mu   sync.Mutex
	end  End
	idle func() bool // stops the timer
}

// start begins both directions; first is what the client sent already.
func (t *tunnel) start(first []byte) {
	t.touch()
	t.running.Store(2)
	t.mu.Lock()
	t.idle = t.guard.clock.AfterFunc(t.guard.cfg.idle, t.watch)
	t.mu.Unlock()
	go t.lead(t.origin, t.client, &t.up, first)
	go t.lead(t.client, t.origin, &t.down, nil)
}

// lead is one direction. Its end closes the other side's for writing and leaves
// the other direction alone: a client that has said all may still be listening.
func (t *tunnel) lead(dst, src stream, count *atomic.Int64, first []byte) {
	moved := func(n int) { count.Add(int64(n)) }
	writing, err := len(first) > 0, error(nil)
	if writing {
		var n int
		n, err = dst.Write(first)
		moved(n)
	}
	if err == nil {
		writing, err = pump(dst, src, &t.guard.pipes, t.touch, moved)
	}
	switch {
	case err == nil:
	case writing && dst == t.origin && errors.Is(err, syscall.EPIPE):
		// The origin said that it is done before it went: it answers early and
		// closes. Its answer is complete and still on its way to the client. What
		// the client goes on sending is taken off its hands, because closing a
		// socket with unread bytes destroys what it was sent. The idle time goes
		// on meanwhile. A client that went ends the tunnel: nobody reads any more.
		_, _ = io.Copy(io.Discard, src)
	default:
		t.abort(EndReset)
	}
	if t.running.Add(-1) == 0 {
		t.finish() // closing says the rest
		return
	}
	// If dst is gone, the other direction's read says how it went.
	_ = dst.CloseWrite()
}

func (t *tunnel) touch() { t.last.Store(t.guard.clock.Now().UnixNano()) }

// watch ends a tunnel that moved nothing for the idle time. One that moved since
// the timer was set gets the rest of its time.
func (t *tunnel) watch() {
	quiet := t.guard.clock.Now().Sub(time.Unix(0, t.last.Load()))
	if quiet >= t.guard.cfg.idle {
		t.abort(EndIdle)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == "" {
		t.idle = t.guard.clock.AfterFunc(t.guard.cfg.idle-quiet, t.watch)
	}
}

// abort ends both directions now. Both sides get a reset: a transfer that was
// cut must not look like one that is complete. The first end counts.
func (t *tunnel) abort(end End) {
	t.mu.Lock()
	if t.end == "" {
		t.end = end
	}
	t.mu.Unlock()
	reset(t.client)
	reset(t.origin)
}

// finish is called once, when both directions are over.
func (t *tunnel) finish() {
	t.mu.Lock()
	if t.end == "" {
		t.end = EndDone
	}
	end := t.end
	t.idle()
	t.mu.Unlock()
	t.client.Close()
	t.origin.Close()
	up, down := t.up.Load(), t.down.Load()
	// A log that fails here has ended every other tunnel already.
	_, _ = t.guard.log.write(Line{Kind: KindClose, Request: t.request, End: end, UpBytes: &up, DownBytes: &down})
	t.guard.leave(t.session)
}

// reset closes c so that its peer learns that this is no regular end.
func reset(c stream) {
	if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}
