package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/checkfu/checkfu/wire"
)

// input is standard input: absolute offsets under an absolute limit that never
// decreases, one delivery at a time, so that a repeated one is recognised and
// nothing is ever taken twice.
type input struct {
	p *process

	turn   sync.Mutex // held by the one write or half-close that is under way
	closed bool       // under turn

	mu     sync.Mutex
	offset int64 // taken by the provider, as far as we know
	sent   int64 // the end of what was ever sent
	limit  int64 // up to which it takes
	room   chan struct{}
}

// Write returns when the provider has taken all of b. It waits for credit as
// long as the process lives.
// Errors: io.ErrClosedPipe after the half-close, after the exit, or where the
// process closed its end; else why the stream broke.
func (in *input) Write(b []byte) (n int, err error) {
	in.turn.Lock()
	defer in.turn.Unlock()
	for len(b) > 0 {
		if in.closed {
			return n, io.ErrClosedPipe
		}
		if err := in.p.over(); err != nil {
			return n, err
		}
		part, err := in.credit(len(b))
		if err != nil {
			return n, err
		}
		taken, err := in.deliver(b[:part], false)
		n, b = n+taken, b[taken:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close is the half-close: after all bytes, free of credit, once.
func (in *input) Close() error {
	in.turn.Lock()
	defer in.turn.Unlock()
	if in.closed || in.p.over() != nil {
		in.closed = true
		return nil
	}
	_, err := in.deliver(nil, true)
	if err == nil || errors.Is(err, io.ErrClosedPipe) {
		in.closed = true
		return nil
	}
	return err
}

// Windows normally arrive on the stream. Where that is held up, by an
// intermediary or by an output that nobody reads, they are asked for.
const (
	firstProbe = 50 * time.Millisecond
	lastProbe  = 2 * time.Second
)

// credit waits until at least one byte may be sent, and says how many of want.
func (in *input) credit(want int) (int, error) {
	for wait := firstProbe; ; wait = min(2*wait, lastProbe) {
		in.mu.Lock()
		free, room := in.limit-in.offset, in.room
		in.mu.Unlock()
		if free > 0 {
			return int(min(free, int64(want), wire.MaxInputBytes)), nil
		}
		t := time.NewTimer(wait)
		select {
		case <-room:
		case <-in.p.live.Done():
		case <-t.C:
			if _, err := in.deliver(nil, false); err != nil {
				t.Stop()
				return 0, err
			}
		}
		t.Stop()
		if err := in.p.over(); err != nil {
			return 0, err
		}
	}
}

// inputGrace is how long a delivery outlives the process.
const inputGrace = 5 * time.Second

// deliver sends one part and says how much of it was taken: all, or nothing
// where the credit was not what it was said to be.
func (in *input) deliver(part []byte, end bool) (int, error) {
	p := in.p
	in.mu.Lock()
	offset := in.offset
	in.sent = max(in.sent, offset+int64(len(part)))
	in.mu.Unlock()
	k, err := p.c.newFramedCall(wire.ProcessInput, p.lease, wire.InputCall{
		InstanceID: p.instance, ProcessID: p.id, Offset: offset, End: end,
	}, part)
	if err != nil {
		return 0, err
	}
	k.budget = wire.MaxDeadline
	var w wire.Window
	ctx, cancel := context.WithCancel(p.c.calling)
	defer cancel()
	// The exit can be quicker on its way than the answer to what the process
	// still took: that answer is waited for, or a taken write would be called
	// lost.
	defer context.AfterFunc(p.live, func() {
		t := time.NewTimer(inputGrace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-ctx.Done():
		}
	})()
	err = p.c.exchange(ctx, k, into(&w))
	if err == nil {
		if w.InputOffset < offset+int64(len(part)) {
			return 0, p.violate(broken(wire.ProcessInput, "input_offset", "at least "+number(offset+int64(len(part))), number(w.InputOffset)))
		}
		if err := in.window(w); err != nil {
			return 0, p.violate(err)
		}
		return len(part), nil
	}
	return in.refused(k, offset, len(part), err)
}

func (in *input) refused(k call, offset int64, part int, err error) (int, error) {
	p := in.p
	w, ok := err.(*wire.Error)
	if !ok {
		if why := p.over(); why != nil {
			return 0, why // it ended meanwhile
		}
		return 0, p.c.contract(k, err)
	}
	switch w.Tag {
	case wire.TagInputBufferFull, wire.TagInputGap:
		now := wire.Window{InputOffset: w.InputOffset, InputCredit: w.InputCredit}
		// A gap would mean that it lost what it had taken; a buffer that is full
		// although it said otherwise is no more than a wait.
		if w.Tag == wire.TagInputGap || w.InputOffset < offset {
			return 0, p.violate(broken(wire.ProcessInput, "input_offset", "at least "+number(offset)+", which was taken", number(w.InputOffset)))
		}
		if part == 0 {
			return 0, p.violate(broken(wire.ProcessInput, "_tag", "room for nothing", string(w.Tag)))
		}
		if now.InputOffset+now.InputCredit >= offset+int64(part) {
			return 0, p.violate(broken(wire.ProcessInput, "input_credit", "less than what it refused for want of it", number(now.InputCredit)))
		}
		if err := in.full(now); err != nil {
			return 0, p.violate(err)
		}
		return int(min(w.InputOffset-offset, int64(part))), nil
	case wire.TagInputClosed:
		if why := p.over(); why != nil && why != io.ErrClosedPipe {
			return 0, why // it is gone because of that
		}
		return 0, &closedInput{w}
	}
	if w.Violation() {
		return 0, p.violate(p.c.translate(k, w))
	}
	return 0, p.c.translate(k, w)
}

// closedInput is io.ErrClosedPipe that says why.
type closedInput struct{ cause *wire.Error }

func (e *closedInput) Error() string        { return io.ErrClosedPipe.Error() + ": " + e.cause.Cause }
func (e *closedInput) Is(target error) bool { return target == io.ErrClosedPipe }
func (e *closedInput) Unwrap() error        { return e.cause }

// window takes what the provider says it has taken and will take. Both only
// grow: one that was overtaken on its way says less and is ignored.
func (in *input) window(w wire.Window) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w.InputOffset > in.sent {
		return broken(wire.ProcessInput, "input_offset", "at most "+number(in.sent)+", which was sent", number(w.InputOffset))
	}
	in.offset = max(in.offset, w.InputOffset)
	if sum := w.InputOffset + w.InputCredit; sum > in.limit {
		in.limit = sum
		close(in.room)
		in.room = make(chan struct{})
	}
	return nil
}

// full takes a refusal for want of credit: the limit was less than we thought.
func (in *input) full(w wire.Window) error {
	in.mu.Lock()
	in.limit = min(in.limit, max(w.InputOffset+w.InputCredit, in.offset))
	in.mu.Unlock()
	return in.window(w)
}
