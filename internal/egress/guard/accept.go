package guard

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// accept takes connections until ctx ends.
func (g *Guard) accept(ctx context.Context, ln net.Listener) error {
	g.spare.held()
	defer g.spare.spend()
	pause := firstPause
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		refused := false
		if exhausted(err) {
			g.evict()
			if g.spare.spend() {
				if conn, err = ln.Accept(); err == nil {
					refused = !g.spare.held()
				}
			}
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			if ctx.Err() != nil {
				return nil
			}
			return err
		case err != nil:
			g.spare.held()
			if !g.wait(ctx, pause) {
				return nil
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		c, ok := conn.(stream)
		switch {
		case !ok:
			conn.Close()
		case refused:
			g.turnAway(c)
			g.spare.held()
		default:
			g.ends.Add(1)
			go g.begin(c).run()
		}
	}
}

// turnAway refuses a connection for which there is no descriptor to spare. It
// does not wait for its head.
func (g *Guard) turnAway(c stream) {
	l := Line{Kind: KindDecision, Decision: Deny, Reason: policy.ReasonLimit, Status: 503, Facts: facts[policy.ReasonLimit]}
	text := denial(503, policy.ReasonLimit)
	if _, err := g.log.write(l); err != nil {
		text = unaccounted
	}
	_ = c.SetWriteDeadline(time.Now().Add(replyTime))
	_, _ = io.WriteString(c, text)
	_ = c.CloseWrite()
	if raw, err := c.SyscallConn(); err == nil { // see lingerBytes
		var unread [MaxHeadBytes]byte
		_ = raw.Read(func(fd uintptr) bool { _, _ = unix.Read(int(fd), unread[:]); return true })
	}
	c.Close()
}

const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// wait waits for d, and reports whether ctx still holds.
func (g *Guard) wait(ctx context.Context, d time.Duration) bool {
	over := make(chan struct{})
	stop := g.clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}
