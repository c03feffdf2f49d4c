package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// process is one live process and its journal: what it wrote, kept from byte 0
// whether or not anybody reads. Nothing that a reader does makes it wait, unless
// Options.HoldOutput says so.
//
// Goroutines: one for each of its three streams and one for its exit, all begun
// by start and ended with the process; and one for a destruction. The registry
// waits for them.
// Locks: hashing before mu; mu before those of the leases.
// Source: contract "openProcess".
type process struct {
	s        *Server
	id       wire.ProcessID
	op       wire.OperationID
	instance sandbox.InstanceID
	lease    string
	digest   sandbox.Digest // of the request that opened it; "" is a tombstone

	ready chan struct{} // closed once it was opened, or will not be
	inner sandbox.Process

	ctx     context.Context // ends with the instance
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	exited  chan struct{} // closed once exit or lost is set
	flushed chan struct{} // closed once both streams ended

	hashing sync.Mutex // around sum and every append to out
	sum     hash.Hash

	mu        sync.Mutex
	opened    bool
	doomed    bool // destroyed by name, perhaps before it was opened
	evidence  sandbox.Evidence
	out, errs ring
	outEnd    *wire.OutEnd
	errEnd    *wire.ErrEnd
	exit      *sandbox.Exit
	lost      error // the provider lost it: there is no exit and there will be none
	truncated bool  // a reader fell behind the low-water mark
	input     input
	reader    *attachment
	latest    wire.AttachID     // the newest attachment's
	overtaken [32]wire.AttachID // of those that were newest before, the last first
	killing   *unwinding
	given     int64      // how much of out the readers have had
	room      *sync.Cond // of mu: a held process may have room, or come to its end
	held      bool       // pumpOutput waits for a reader
}

func newProcess(s *Server, id wire.ProcessID) *process {
	p := &process{
		s: s, id: id, ready: make(chan struct{}), exited: make(chan struct{}), flushed: make(chan struct{}), sum: sha256.New(),
		out: ring{limit: s.opt.OutputWindow}, errs: ring{limit: wire.ErrorWindowBytes},
		input: input{size: int64(s.opt.InputBuffer), wake: make(chan struct{}, 1)},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.room = sync.NewCond(&p.mu)
	if s.opt.HoldOutput {
		context.AfterFunc(p.ctx, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.room.Broadcast()
		})
	}
	return p
}

// start takes over what the provider opened.
func (p *process) start(inner sandbox.Process) error {
	p.inner = inner
	in, out, errs := inner.Input(), inner.Output(), inner.Error()
	p.evidence = inner.Evidence()
	if in == nil || out == nil || errs == nil {
		return errors.New("the provider opened a process without its streams")
	}
	p.mu.Lock()
	p.opened = true
	_, err := wire.Encode(p.openedLocked())
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.tasks.Go(func() { p.pumpOutput(out) })
	p.tasks.Go(func() { p.pumpError(errs) })
	p.tasks.Go(func() { p.pumpInput(in) })
	p.tasks.Go(p.reap)
	return nil
}

// openedLocked is what every attachment begins with. The caller holds p.mu.
func (p *process) openedLocked() wire.Opened {
	w := p.input.window()
	return wire.Opened{
		ProcessID: p.id, Evidence: p.evidence, InputOffset: w.InputOffset, InputCredit: w.InputCredit,
		LowWater: p.out.low(), OutputWindowBytes: int64(p.out.limit),
	}
}

// notify wakes the reader, which looks for itself. The caller holds p.mu.
func (p *process) notify() {
	if p.reader != nil {
		p.reader.notify()
	}
}

// pumpBytes is how much is taken from a stream at once: a pipe holds no more.
const pumpBytes = 64 << 10

func (p *process) pumpOutput(r io.Reader) {
	err := p.pump(r, make([]byte, pumpBytes), func(b []byte) {
		p.hold(len(b))
		p.hashing.Lock()
		defer p.hashing.Unlock()
		p.sum.Write(b) // not under mu: a reader need not wait for it
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.outEnd != nil {
			return // ended by force; whoever holds it still writes to nobody
		}
		p.out.write(b)
		if p.reader != nil && p.reader.at < p.out.low() {
			p.truncate()
		}
		p.notify()
	})
	p.hashing.Lock()
	defer p.hashing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	// A provider closes the streams of what it destroys; anywhere else a broken
	// stream is no end.
	killed := p.killing != nil || p.doomed
	if err != io.EOF && !killed && p.outEnd == nil {
		p.loseLocked(err)
		return
	}
	p.endOutput(err != io.EOF)
}

func (p *process) pumpError(r io.Reader) {
	_ = p.pump(r, make([]byte, pumpBytes/4), func(b []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.errEnd == nil {
			p.errs.write(b)
			p.notify()
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endError()
}

// pump gives every piece of r to take, and returns what ended r.
func (p *process) pump(r io.Reader, buf []byte, take func([]byte)) (err error) {
	defer p.s.caught(&err)
	for empty := 0; empty < 100; {
		n, err := r.Read(buf)
		if n > 0 {
			empty = 0
			take(buf[:n])
		} else {
			empty++
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// endOutput is the end of standard output, with the digest of all of it. The
// caller holds hashing and mu.
func (p *process) endOutput(forced bool) {
	if p.outEnd == nil {
		p.room.Broadcast()
		p.outEnd = &wire.OutEnd{Digest: sandbox.Digest("sha256:" + hex.EncodeToString(p.sum.Sum(nil))), Forced: forced, Offset: p.out.end}
		p.ended()
	}
}

// endError is the end of standard error. The caller holds mu.
func (p *process) endError() {
	if p.errEnd == nil {
		p.errEnd = &wire.ErrEnd{Offset: p.errs.end}
		p.ended()
	}
}

func (p *process) ended() {
	if p.outEnd != nil && p.errEnd != nil {
		close(p.flushed)
	}
	p.notify()
}

// reap waits for the exit, and after it for the streams, which somebody else may
// hold: they are ended by force then.
func (p *process) reap() {
	exit, err := p.wait()
	p.mu.Lock()
	switch {
	case err == nil && p.lost == nil:
		p.exit = &exit
		p.input.stop(wire.CauseExited)
		close(p.exited)
		p.notify()
	case p.lost == nil:
		p.loseLocked(err)
	}
	p.mu.Unlock()
	for p.drains() {
	}
}

// drains waits for the ends of the streams, or ends them, and reports whether it has to
// be asked again: where output is held, no time runs against a reader that is there.
func (p *process) drains() bool {
	due, stop := p.s.clock.NewTimer(wire.MaxDrainMS * time.Millisecond)
	defer stop()
	select {
	case <-p.flushed:
	case <-p.ctx.Done():
	case <-due:
		p.hashing.Lock()
		defer p.hashing.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.s.opt.HoldOutput && p.reader != nil && p.reader.at < p.out.end {
			return true
		}
		p.endOutput(true)
		p.endError()
	}
	return false
}

// hold waits until n more bytes of output leave half of the window to what a reader may
// have to be given again, where output is held.
func (p *process) hold(n int) {
	if !p.s.opt.HoldOutput {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		read := p.given
		if p.reader != nil {
			read = p.reader.at
		}
		over := p.outEnd != nil || p.lost != nil || p.killing != nil || p.ctx.Err() != nil
		if p.held = !over && p.out.end+int64(n)-read > int64(p.out.limit/2); !p.held {
			return
		}
		p.room.Wait()
	}
}

func (p *process) wait() (exit sandbox.Exit, err error) {
	defer p.s.caught(&err)
	exit, err = p.inner.Wait(p.ctx)
	if err == nil {
		err = exit.Validate()
	}
	return exit, err
}

// loseLocked gives the process up: without its exit, or without a part of its
// output, there is nothing true to be said about its end. The caller holds mu.
func (p *process) loseLocked(cause error) {
	if p.lost != nil {
		return
	}
	p.lost = sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, cause)
	p.room.Broadcast()
	p.input.stop(wire.CauseExited)
	if p.exit == nil {
		close(p.exited)
	}
	if p.inner != nil {
		p.killLocked()
	}
	p.notify()
}

// truncate is the end of a process whose reader cannot be given what it lacks.
// The caller holds mu.
func (p *process) truncate() {
	p.truncated = true
	p.killLocked()
	p.notify()
}

// killLocked begins to destroy the process and all its descendants, or joins
// whoever does. The caller holds mu.
func (p *process) killLocked() *unwinding {
	if u := p.killing; u != nil {
		select {
		case <-u.settled:
			if u.err == nil {
				return u
			}
		default:
			return u
		}
	}
	u := &unwinding{settled: make(chan struct{})}
	p.killing = u
	p.room.Broadcast()
	p.tasks.Go(func() {
		defer close(u.settled)
		ctx, cancel := context.WithTimeout(context.Background(), sandbox.RollbackSeconds*time.Second)
		defer cancel()
		defer p.s.caught(&u.err)
		u.err = p.inner.Destroy(ctx)
	})
	return u
}

// retireBound is how long the provider has to let go of what it destroyed.
const retireBound = sandbox.RollbackSeconds * time.Second

// retire ends a process with its instance, or its server. It returns when no
// goroutine of it runs, or says to the log that the provider holds one.
func (p *process) retire() {
	bound := time.NewTimer(retireBound)
	defer bound.Stop()
	select {
	case <-p.ready:
	case <-bound.C:
		p.s.log(errors.New("the provider does not come back from opening a process"))
		return
	}
	p.mu.Lock()
	var u *unwinding
	if p.opened && p.inner != nil {
		u = p.killLocked()
	}
	p.mu.Unlock()
	if u != nil {
		select {
		case <-u.settled:
		case <-bound.C:
			p.s.log(errors.New("the provider does not come back from destroying a process"))
			p.cancel()
			return
		}
		if u.err != nil {
			p.s.log(u.err)
		} else {
			// What was destroyed has an exit, which a reader may still be told.
			soon := time.NewTimer(time.Second)
			select {
			case <-p.exited:
			case <-soon.C:
			}
			soon.Stop()
		}
	}
	p.cancel()
	p.mu.Lock()
	p.notify()
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		p.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-bound.C:
		p.s.log(errors.New("the provider keeps the streams of a process that it destroyed"))
	}
}
