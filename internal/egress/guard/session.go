package guard

import (
	"container/list"
	"context"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// session is one connection from its accept to its end. Its fields but conn
// belong to the guard's lock.
type session struct {
	guard   *Guard
	conn    stream
	element *list.Element // in guard.heads, or nil
	evicted bool
	cancel  context.CancelCauseFunc // of the request
	tunnel  *tunnel
}

// begin takes a connection among the unfinished heads. If there are too many,
// the oldest goes: an honest head comes within milliseconds, one of a flood
// never, so whoever is oldest is the flood.
func (g *Guard) begin(c stream) *session {
	s := &session{guard: g, conn: c}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue(s)
	return s
}

// queue puts s behind the other heads. The lock is held.
func (g *Guard) queue(s *session) {
	s.element = g.heads.PushBack(s)
	if g.heads.Len() > MaxHeads {
		g.drop()
	}
	if g.over {
		s.conn.Close()
	}
}

// drop ends the oldest head, if there is one. The lock is held.
func (g *Guard) drop() {
	if first := g.heads.Front(); first != nil {
		oldest := first.Value.(*session)
		oldest.evicted = true
		_ = oldest.conn.SetReadDeadline(past)
		g.unqueue(oldest)
	}
}

// evict is drop, for want of descriptors.
func (g *Guard) evict() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop()
}

func (g *Guard) unqueue(s *session) {
	if s.element != nil {
		g.heads.Remove(s.element)
		s.element = nil
	}
}

// enter makes s one of the requests, which are bounded by Limits.Tunnels, and
// gives it the context that lives as long as the guard, the lease and the log.
// Errors: a *policy.Refusal; context.Canceled if the guard is ending.
func (g *Guard) enter(s *session) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(g.ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	switch {
	case g.over:
		err = context.Canceled
	case g.expired:
		err = errExpired
	case s.evicted:
		err = refuse(policy.ReasonLimit, 503, "heads", "a head in time", "one that came too late")
	case len(g.requests) >= g.cfg.tunnels:
		err = refuse(policy.ReasonLimit, 503, "tunnels", "one that is free", "none")
	default:
		g.unqueue(s)
		s.cancel = cancel
		g.requests[s] = true
		return ctx, nil
	}
	cancel(nil)
	return nil, err
}

// open makes t the tunnel of s, unless s was interrupted on its way.
func (g *Guard) open(ctx context.Context, s *session, t *tunnel) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.tunnel = t
	return nil
}

// exit takes s out of the requests. A refused one waits with the heads for its
// client to read the answer.
func (g *Guard) exit(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.requests[s] {
		delete(g.requests, s)
		s.cancel(nil)
		s.tunnel = nil
		g.queue(s)
	}
}

// leave forgets s; its connection is closed.
func (g *Guard) leave(s *session) {
	g.mu.Lock()
	g.unqueue(s)
	delete(g.requests, s)
	if s.cancel != nil {
		s.cancel(nil)
	}
	g.mu.Unlock()
	g.ends.Done()
}
