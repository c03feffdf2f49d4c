package guard

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// run is the life of a connection up to its tunnel.
func (s *session) run() {
	if !s.request() {
		s.conn.Close()
		s.guard.leave(s)
	}
}

// request reads one request, writes its one line, and reports whether a tunnel
// has taken over.
func (s *session) request() bool {
	g := s.guard
	l := Line{Kind: KindDecision, Decision: Deny}
	text, rest, err := s.readHead()
	if errors.Is(err, errSilence) {
		return false
	}
	if err != errOther { // that is not even a word of HTTP, and may be anything
		l.Raw = asked(text)
	}
	ctx, origin := g.ctx, (*socket)(nil)
	if err == nil {
		ctx, origin, err = s.decide(text, &l)
	}
	established := false // the client was told
	if err == nil && l.Mode == policy.ModeTLS {
		established = true
		if err = s.establish(); err == nil {
			rest, err = s.readHello(rest, &l)
		}
	}
	if err == nil {
		t := &tunnel{guard: g, session: s, client: s.conn, origin: origin}
		if err = g.open(ctx, s, t); err == nil {
			l.Decision, l.Status = Allow, 200
			if t.request, err = g.log.write(l); err == nil {
				if !established {
					_ = s.establish() // a client that is gone is found by the tunnel
				}
				t.start(rest)
				return true
			}
		}
	}
	if origin != nil {
		origin.Close()
	}
	if ctx != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	g.exit(s)
	s.refuse(err, &l, established)
	return false
}

// readHead reads the head within its time.
// Errors: errSilence; a *policy.Refusal.
func (s *session) readHead() (text string, rest []byte, err error) {
	late := s.bounded(s.guard.cfg.headTime, func() {
		text, rest, err = readHead(s.conn, s.guard.cfg.headBytes)
	})
	var refused *policy.Refusal
	switch {
	case errors.Is(err, errSilence), errors.As(err, &refused):
	case late, isTimeout(err):
		err = refuse(policy.ReasonLimit, 408, "head", "a whole one in time", "a part")
	case err != nil:
		err = refuse(policy.ReasonMalformed, 0, "head", "a whole one", "a part")
	}
	return text, rest, err
}

// bounded calls read, which reads from the connection, and ends it after d. late
// reports that this has happened; then the connection is read no more.
func (s *session) bounded(d time.Duration, read func()) (late bool) {
	stop := s.guard.clock.AfterFunc(d, func() { _ = s.conn.SetReadDeadline(past) })
	read()
	return !stop()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// decide takes a head to a connected origin, or refuses it. It writes into l
// what it learns. ctx is nil as long as the request is not let in.
func (s *session) decide(text string, l *Line) (ctx context.Context, origin *socket, err error) {
	g := s.guard
	head, err := ParseHead(text)
	if err == nil {
		err = head.check()
	}
	if err != nil {
		return nil, nil, err
	}
	target, err := g.steps.Parse(head.Target)
	if err != nil {
		return nil, nil, err
	}
	l.Host, l.Port = target.Host, int64(target.Port)
	if err := head.agree(target); err != nil {
		return nil, nil, err
	}
	if err := g.log.broken(); err != nil {
		return nil, nil, err
	}
	if !g.clock.Now().Before(g.cfg.expires) {
		return nil, nil, errExpired
	}
	if l.Mode, err = g.steps.Match(target); err != nil {
		return nil, nil, err
	}
	l.Pinned = g.cfg.pins.Of(target.Host)
	if ctx, err = g.enter(s); err != nil {
		return nil, nil, err
	}
	answers, err := g.resolve(ctx, target.Host, l)
	if err != nil {
		return ctx, nil, err
	}
	if err := g.steps.Admit(target.Host, answers); err != nil {
		return ctx, nil, err
	}
	pinned, err := g.steps.Pin(ctx, target.Host, answers)
	if err != nil {
		return ctx, nil, err
	}
	if origin, err = g.dial(ctx, target, pinned, l); err != nil {
		return ctx, nil, err
	}
	if !g.spare.held() { // it was the last one
		origin.Close()
		return ctx, nil, refuse(policy.ReasonLimit, 503, "descriptors", "one to spare", "none")
	}
	return ctx, origin, nil
}

func (g *Guard) resolve(ctx context.Context, host string, l *Line) ([]netip.Addr, error) {
	ctx, cancel := g.within(ctx, resolveTime)
	defer cancel()
	began := g.clock.Now()
	answers, err := g.steps.Resolve(ctx, host)
	took := g.clock.Now().Sub(began).Milliseconds()
	l.DNSMillis = &took
	for _, a := range answers[:min(len(answers), 2*policy.MaxAnswers+2)] {
		l.Answers = append(l.Answers, a.String())
	}
	return answers, err
}

// readHello reads the ClientHello within its time and judges it. taken is what
// the origin gets first.
func (s *session) readHello(rest []byte, l *Line) (taken []byte, err error) {
	var h Hello
	late := s.bounded(helloTime, func() { h, taken, err = readHello(s.conn, rest) })
	var refused *policy.Refusal
	switch {
	case errors.As(err, &refused):
		return nil, err
	case late, isTimeout(err):
		return nil, refuse(policy.ReasonLimit, 0, "hello", "a whole one in time", "a part")
	case err != nil:
		return nil, refuse(policy.ReasonSNIMissing, 0, "hello", "a ClientHello", "an end")
	}
	l.SNI, l.ECH = loggableName(h.ServerName), h.ECH
	return taken, s.guard.steps.Hello(l.Host, h)
}

// establish says that the way is open.
func (s *session) establish() error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(replyTime))
	_, err := io.WriteString(s.conn, established)
	_ = s.conn.SetWriteDeadline(time.Time{})
	return err
}

// refuse writes the line of a denied request, and then tells the client, if it
// was not told that the way is open.
func (s *session) refuse(err error, l *Line, established bool) {
	var why *policy.Refusal
	if !errors.As(err, &why) {
		var broken *LogError
		if !errors.As(err, &broken) && !errors.Is(err, context.Canceled) {
			why = refuse(policy.ReasonUpstreamFailed, 502, "", "", "") // a step of a test's
		} else {
			why = refuse(policy.ReasonLimit, 503, "", "", "")
		}
	}
	l.Decision, l.Status = Deny, 0
	l.Reason, l.Facts = why.Reason, facts[why.Reason]
	if !established {
		l.Status = int64(why.Status)
	}
	text := denial(why.Status, why.Reason)
	if _, err := s.guard.log.write(*l); err != nil {
		text = unaccounted
	}
	if established || why.Status == 0 {
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(replyTime))
	if _, err := io.WriteString(s.conn, text); err != nil {
		return
	}
	// See lingerBytes. Nothing of it is parsed: one request for each connection.
	_ = s.conn.CloseWrite()
	s.bounded(lingerTime, func() { _, _ = io.CopyN(io.Discard, s.conn, lingerBytes) })
}
