package server

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// attachment is one reader of a process. What is below is guarded by the
// process's lock, but wake.
type attachment struct {
	id    wire.AttachID
	epoch int64
	wake  chan struct{}
	line  *line

	at        int64 // the next byte of output that it is given
	errAt     int64
	saidOut   bool
	saidErr   bool
	saidExit  bool
	delivered bool         // something was sent that ends a poll
	detach    *wire.Detach // why it has to end
}

func (a *attachment) notify() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// end makes the attachment end with reason. The caller holds the process's lock.
func (a *attachment) end(d wire.Detach) {
	if a.detach == nil {
		a.detach = &d
		a.line.hurry()
		a.notify()
	}
}

// line is the connection of one attachment. A reader that stands still may hold
// it up for stall; one that was detached has no such time.
type line struct {
	outbox
	mu      sync.Mutex
	hurried bool
	gone    bool
}

// hurryBound is how long a detached reader has to take its last frame: the next
// reader, or the next epoch, must not hear of it for longer than a second.
const hurryBound = 500 * time.Millisecond

func (l *line) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone && !l.hurried {
		l.hurried = true
		_ = l.rc.SetWriteDeadline(time.Now().Add(hurryBound))
	}
}

// send writes frames and sees them off.
func (l *line) send(b []byte) error {
	l.mu.Lock()
	if now := time.Now(); !l.hurried && l.until.Sub(now) < l.stall/2 {
		l.until = now.Add(l.stall)
		_ = l.rc.SetWriteDeadline(l.until)
	}
	l.mu.Unlock()
	if _, err := l.w.Write(b); err != nil {
		return err
	}
	return l.rc.Flush()
}

// leave is the end of the handler, after which its connection may belong to
// another request.
func (l *line) leave(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	if err == nil {
		l.release()
	}
}

// attach makes c the reader of the process, from cursor on, in place of any
// other: a connection that nobody knows to be dead must not lock out its owner.
// Errors: *wire.Error with TagLeaseFenced, TagOutputTruncated or TagCursorAhead,
// after the latter two of which the process is killed; OperationFailed with
// process_lost.
func (p *process) attach(c *call, m wire.StreamRequest) (*attachment, []byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Under the lock that a fence takes after it raised the epoch: either it
	// sees this attachment or this sees the epoch.
	if err := p.s.leases.current(c.header.Lease); err != nil {
		return nil, nil, err
	}
	a := &attachment{
		id: m.AttachID, epoch: c.header.Lease.Epoch, wake: make(chan struct{}, 1), at: m.Cursor, errAt: p.errs.low(),
		line: &line{outbox: outbox{w: c.w, rc: http.NewResponseController(c.w), stall: p.s.opt.Stall}},
	}
	switch {
	case p.lost != nil:
		return nil, nil, p.lost
	case slices.Contains(p.overtaken[:], m.AttachID):
		// A delivery that was late. It takes the place of nobody, nor kills by a
		// cursor that was right when it was sent.
		a.end(wire.Detach{Reason: wire.DetachSuperseded, AttachID: p.latest})
		frames, err := message(nil, wire.TypeOpen, p.openedLocked())
		return a, frames, err
	case m.Cursor > p.out.end:
		p.killLocked()
		return nil, nil, &wire.Error{Tag: wire.TagCursorAhead, End: p.out.end}
	case m.Cursor < p.out.low():
		p.truncate()
	}
	if p.truncated {
		return nil, nil, &wire.Error{Tag: wire.TagOutputTruncated, LowWater: p.out.low()}
	}
	if p.reader != nil {
		p.reader.end(wire.Detach{Reason: wire.DetachSuperseded, AttachID: m.AttachID})
	}
	if p.latest != m.AttachID {
		copy(p.overtaken[1:], p.overtaken[:])
		p.overtaken[0], p.latest = p.latest, m.AttachID
	}
	p.reader = a
	p.room.Broadcast()
	frames, err := message(nil, wire.TypeOpen, p.openedLocked())
	return a, frames, err
}

// detached forgets a reader that has gone.
func (p *process) detached(a *attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reader == a {
		p.reader = nil
	}
}

// message appends m as one frame.
func message(dst []byte, t wire.Type, m wire.Message) ([]byte, error) {
	body, err := wire.Encode(m)
	if err != nil {
		return dst, err
	}
	return wire.AppendFrame(dst, wire.Frame{Type: t, Payload: body}), nil
}

// batchBytes is how much output is sent at once.
const batchBytes = 256 << 10

// fill appends the frames of what a lacks; last says that nothing comes after
// them, idle that nothing more is to be had now.
func (p *process) fill(a *attachment, dst []byte) (frames []byte, last, idle bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	say := func(t wire.Type, m wire.Message) {
		if err == nil {
			dst, err = message(dst, t, m)
		}
	}
	switch {
	case a.detach != nil:
		say(wire.TypeDetach, *a.detach)
		return dst, true, true, err
	case p.lost != nil:
		body, _, err := wire.EncodeError(p.lost)
		return wire.AppendFrame(dst, wire.Frame{Type: wire.TypeError, Payload: body}), true, true, err
	case p.truncated:
		say(wire.TypeTruncated, wire.Truncated{LowWater: p.out.low()})
		return dst, true, true, err
	}
	if low := p.errs.low(); a.errAt < low {
		a.errAt = low // a gap, which is legal in what is diagnostic
	}
	for a.errAt < p.errs.end {
		part := p.errs.at(a.errAt, batchBytes)
		dst = wire.AppendOutput(dst, wire.TypeErr, a.errAt, part)
		a.errAt += int64(len(part))
		a.delivered = true
	}
	for room := batchBytes; a.at < p.out.end && room > 0; {
		part := p.out.at(a.at, room)
		dst = wire.AppendOutput(dst, wire.TypeOut, a.at, part)
		a.at += int64(len(part))
		room -= len(part)
		a.delivered = true
	}
	if p.reader == a && a.at > p.given {
		p.given = a.at
	}
	p.room.Broadcast()
	if p.input.news() {
		say(wire.TypeWindow, p.input.window())
	}
	if p.outEnd != nil && a.at == p.out.end && !a.saidOut {
		say(wire.TypeOutEnd, *p.outEnd)
		a.saidOut, a.delivered = true, true
	}
	if p.errEnd != nil && !a.saidErr {
		say(wire.TypeErrEnd, *p.errEnd)
		a.saidErr, a.delivered = true, true
	}
	if p.exit != nil && !a.saidExit {
		say(wire.TypeExit, wire.Exit(*p.exit))
		a.saidExit, a.delivered = true, true
	}
	last = a.saidOut && a.saidErr && a.saidExit
	if !last && p.ctx.Err() != nil && a.at == p.out.end {
		body, _, eerr := wire.EncodeError(sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil))
		return wire.AppendFrame(dst, wire.Frame{Type: wire.TypeError, Payload: body}), true, true, eerr
	}
	return dst, last, a.at == p.out.end, err
}

// processStream serves one attachment.
func (c *call) processStream() error {
	m, err := request[wire.StreamRequest](c)
	if err != nil {
		return err
	}
	p, err := c.process(m.InstanceID, m.ProcessID)
	if err != nil {
		return err
	}
	a, frames, err := p.attach(c, m)
	if err != nil {
		return err
	}
	defer p.detached(a)
	c.s.header(c.w, true)
	c.w.WriteHeader(http.StatusOK)
	err = c.follow(p, a, m, frames)
	a.line.leave(err)
	if err != nil {
		panic(http.ErrAbortHandler) // a stream that ends without its last frame has to look broken
	}
	return nil
}

// follow sends until the last frame. It returns an error where the connection
// did not take all.
func (c *call) follow(p *process, a *attachment, m wire.StreamRequest, frames []byte) error {
	var due <-chan time.Time
	if m.WaitMS > 0 {
		timer, stop := c.s.clock.NewTimer(min(time.Duration(m.WaitMS)*time.Millisecond, c.s.opt.MaxWait))
		defer stop()
		due = timer
	}
	beat := min(time.Duration(m.HeartbeatMS)*time.Millisecond, c.s.opt.Heartbeat)
	for {
		var last, idle bool
		var err error
		frames, last, idle, err = p.fill(a, frames)
		if err != nil {
			c.s.log(err)
			return err
		}
		if due != nil && !last && idle && a.delivered {
			last = true
			if frames, err = message(frames, wire.TypeDetach, wire.Detach{Reason: wire.DetachPollEnd}); err != nil {
				return err
			}
		}
		if len(frames) > 0 {
			if err := a.line.send(frames); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		frames = frames[:0]
		if !idle {
			continue
		}
		quiet, stop := c.s.clock.NewTimer(beat)
		select {
		case <-a.wake:
		case <-quiet:
			frames = wire.AppendFrame(frames, wire.Frame{Type: wire.TypePing})
		case <-due:
			frames, err = message(frames, wire.TypeDetach, wire.Detach{Reason: wire.DetachPollEnd})
			if err == nil {
				err = a.line.send(frames)
			}
			stop()
			return err
		case <-c.r.Context().Done():
			stop()
			return c.r.Context().Err()
		}
		stop()
	}
}
