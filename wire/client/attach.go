package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// reader keeps one stream up over any number of attachments.
type reader struct {
	p       *process
	filter  *filter
	own     [16]wire.AttachID // the last attachments, to know a superseder by
	count   int
	silent  int  // attachments in a row that gave not one byte
	polling bool // an intermediary keeps the stream back: ask instead
}

// Pauses between attachments that fail. One that came to something begins
// again at the first.
var pauses = [...]time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, lastPause}

// idlePause is the least between attachments that brought nothing: a peer that
// says open and leaves, again and again, is not worth a busy loop.
const idlePause = 250 * time.Millisecond

// patientAttaches is how many attachments in a row may fail before the exit is
// asked for beside them: a stream that nothing lets through must not hide it.
const patientAttaches = 3

// How an attachment ended, beside complete (nil), *undelivered and failures.
var (
	errAgain  = errors.New("attach again")
	errSilent = errors.New("not one byte")
)

// follow reads the stream until it is complete, breaks, or is cut. There is no
// last try: a process lives as long as its instance, also behind a network
// that is away.
func (p *process) follow(f *filter) {
	defer p.done()
	defer p.cut(nil)
	r := &reader{p: p, filter: f}
	for failed := 0; ; {
		err := r.attach(p.reading)
		again := (*undelivered)(nil)
		var rest time.Duration
		switch {
		case p.reading.Err() != nil:
			p.end(context.Cause(p.reading))
			return
		case err == nil:
			return
		case !errors.As(err, &again) && err != errAgain && err != errSilent:
			p.end(err)
			return
		case !f.opened:
			rest = pauses[min(failed, len(pauses)-1)]
			if failed++; failed > patientAttaches {
				p.out.stall() // whoever waits for the exit asks for it
			}
		case f.progress:
			failed = 0
		default:
			failed, rest = 0, idlePause
		}
		if again != nil {
			rest = max(rest, again.after)
		}
		if pause(p.reading, rest) != nil {
			p.end(context.Cause(p.reading))
			return
		}
	}
}

// end ends a stream that is not complete. After a violation the process goes.
func (p *process) end(err error) {
	if err == ErrClosed {
		err = sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, ErrClosed)
	}
	p.fail(err)
	if broke := (*ProtocolError)(nil); errors.As(err, &broke) {
		_ = p.destroy(context.Background()) // best effort: the failure is told already
	}
}

// attach makes one attachment and reads it to its end.
func (r *reader) attach(ctx context.Context) error {
	p, c := r.p, r.p.c
	r.filter.attach()
	id := wire.NewAttachID()
	r.own[r.count%len(r.own)] = id
	r.count++
	request := wire.StreamRequest{
		InstanceID: p.instance, ProcessID: p.id, AttachID: id, Cursor: r.filter.next,
		HeartbeatMS: c.options.Heartbeat.Milliseconds(),
	}
	watch := &watch{first: 2 * c.options.Heartbeat, later: 3*c.options.Heartbeat + 5*time.Second}
	if r.polling {
		request.WaitMS = c.options.Wait.Milliseconds()
		watch.first, watch.later = c.options.Wait+slack, c.options.Wait+slack
	}
	k, err := c.newCall(wire.ProcessStream, p.lease, request)
	if err != nil {
		return err
	}
	k.hold, k.silent, k.late = 0, false, min(watch.first, slack)
	if r.polling {
		k.hold = c.options.Wait // a buffering intermediary holds the headers too
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch.start(func() { cancel(errSilent) })
	defer watch.stop()
	err = c.deliver(ctx, k, false, func(b *body) error {
		watch.r = b.r
		b.r = watch
		return r.read(b)
	})
	return r.ended(ctx, watch, k, err)
}

// ended sorts how an attachment ended.
func (r *reader) ended(ctx context.Context, w *watch, k call, err error) error {
	if w.any {
		r.silent = 0
	} else if context.Cause(ctx) == errSilent || errors.Is(err, errLate) {
		// Neither headers nor a byte for as long as two heartbeats take.
		if r.silent++; r.silent == 2 {
			r.polling = true
		}
		return errSilent
	}
	if refused, ok := err.(*wire.Error); ok {
		return r.p.c.translate(k, refused)
	}
	return err
}

// read reads the frames of one attachment.
func (r *reader) read(b *body) error {
	frames := wire.NewReader(b.r)
	for {
		f, err := frames.Next()
		if err != nil {
			// What came of a frame counts: else a link that breaks sooner than a
			// frame is long would never get on.
			if rest, ok := frames.Rest(); ok {
				if broke := r.take(rest); broke != nil {
					return broke
				}
			}
			return fault(b.endpoint, err) // an end without a word is a dropped connection, never an exit
		}
		if err := r.take(f); err != nil {
			return err
		}
		if r.filter.complete() {
			return nil
		}
	}
}

func (r *reader) take(f wire.Frame) error {
	e, err := r.filter.take(f)
	if err != nil {
		return err
	}
	return r.apply(e)
}

// apply passes on what one frame adds.
func (r *reader) apply(e event) error {
	p := r.p
	switch {
	case len(e.out) > 0:
		p.out.write(e.out)
	case len(e.err) > 0:
		p.errs.write(e.err)
	case e.outEnd:
		p.out.finish(io.EOF)
	case e.errEnd:
		p.errs.finish(io.EOF)
	case e.exit != nil:
		p.exited(*e.exit)
	case e.window != nil:
		return p.in.window(*e.window)
	case e.truncated != nil:
		return sandbox.Failed(sandbox.OpOpenProcess, wire.ReasonOutputTruncated, nil)
	case e.refused != nil:
		return refusal(e.refused)
	case e.detach != nil:
		return r.detached(*e.detach)
	}
	return nil
}

// detached says what to do when the provider ends an attachment.
func (r *reader) detached(d wire.Detach) error {
	if d.Reason == wire.DetachPollEnd || d.Reason == wire.DetachDraining {
		return errAgain
	}
	for _, id := range r.own {
		if d.Reason == wire.DetachSuperseded && id != "" && id == d.AttachID {
			return errAgain // by ourselves: a delivery that came twice
		}
	}
	// Another reader, or another epoch, has it. To take it back would be a fight
	// that nobody wins.
	return sandbox.Conflict(sandbox.OpOpenProcess, wire.ExpectedCurrentLease, wire.ActualStaleLease)
}

// watch is a body that may not be silent for long. Time runs only while the
// wire is waited for, not while the process's own reader is.
type watch struct {
	r            io.Reader
	first, later time.Duration
	any          bool // a byte came
	timer        *time.Timer
}

func (w *watch) start(cut func()) {
	w.timer = time.AfterFunc(w.later+slack, cut) // for what comes before the body
}

func (w *watch) stop() { w.timer.Stop() }

func (w *watch) Read(b []byte) (int, error) {
	limit := w.later
	if !w.any {
		limit = w.first
	}
	w.timer.Reset(limit)
	n, err := w.r.Read(b)
	w.timer.Stop()
	w.any = w.any || n > 0
	return n, err
}
