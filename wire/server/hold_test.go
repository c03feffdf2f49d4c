package server

import (
	"bytes"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func held(o *Options) { o.OutputWindow, o.HoldOutput = wire.MinOutputWindowBytes, true }

// eventually polls for what another goroutine does.
func (p *process) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		p.mu.Lock()
		so := holds()
		p.mu.Unlock()
		if so {
			return
		}
		if time.Now().After(end) {
			t.Fatal("still not so: " + what)
		}
	}
}

// write has the puppet write chunks until it is told how many were taken.
func (p *puppet) write(chunk []byte, times int) <-chan int {
	taken := make(chan int, 1)
	go func() {
		n := 0
		for range times {
			if _, err := p.outW.Write(chunk); err != nil {
				break
			}
			n++
		}
		taken <- n
	}()
	return taken
}

// Where output is held, a reader that is slow loses nothing, nor one that comes again
// after a cut, also where the process has ended long before; and nothing but half of
// the window waits for it.
func TestHeldOutputWaitsForItsReader(t *testing.T) {
	// What a cut loses is what was sent and not received: on this kind of socket MiBs.
	const many = 24
	l, p := pick(t, func(o *Options) { held(o); o.OutputWindow = 32 << 20 })
	s := l.attach(0) // and reads nothing
	inner := l.taken(0)
	chunk := randomBytes(1 << 20)
	taken := p.write(chunk, many)
	inner.eventually(t, "it is held", func() bool { return inner.held })
	var out []byte
	for cuts := 0; cuts < 3; {
		f := s.next()
		if f.Type != wire.TypeOut {
			t.Fatalf("frame %x", f.Type)
		}
		at, data, err := f.Output()
		if l.must(err); at != int64(len(out)) {
			t.Fatalf("at %d, want %d", at, len(out))
		}
		if out = append(out, data...); len(out) > (cuts+1)<<20 {
			cuts++
			s.cancel()
			s.resp.Body.Close()
			inner.eventually(t, "its reader is gone", func() bool { return inner.reader == nil })
			s = l.attach(int64(len(out)))
		}
	}
	done := make(chan rest, 1)
	go func() { done <- s.drain(int64(len(out))) }()
	if n := <-taken; n != many {
		t.Fatalf("%d chunks were taken", n)
	}
	p.close(0)
	got := <-done
	s.complete(got, 0)
	want := bytes.Repeat(chunk, many)
	if !bytes.Equal(append(out, got.out...), want) || got.outEnd.Forced || got.outEnd.Digest != digestOf(want) {
		t.Errorf("%d bytes, %+v", len(out)+len(got.out), got.outEnd)
	}
}

// drainClock fires the timer of the last output of a process when the test says so.
type drainClock struct {
	thenClock
	fire chan time.Time
}

func (c drainClock) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	if d == wire.MaxDrainMS*time.Millisecond {
		return c.fire, func() bool { return true }
	}
	return c.thenClock.NewTimer(d)
}

// A process that has ended gives its last output to a reader that is slower than the
// time that there is for that, and to none that has gone.
func TestHeldOutputOutlivesItsProcess(t *testing.T) {
	for _, stays := range []bool{true, false} {
		clock := drainClock{newThenClock(), make(chan time.Time)}
		l, p := pick(t, func(o *Options) { held(o); o.Clock = clock })
		s := l.attach(0)
		inner := l.taken(0)
		inner.mu.Lock()
		line := &inner.reader.line.mu
		inner.mu.Unlock()
		line.Lock() // nothing is sent: a socket takes MiBs
		chunk := randomBytes(1 << 20)
		taken := p.write(chunk, 16)
		inner.eventually(t, "it is held", func() bool { return inner.held })
		p.leave(sandbox.Exited(0), nil)
		for range 3 {
			clock.fire <- time.Now()
		}
		line.Unlock()
		if !stays {
			s.cancel()
			s.resp.Body.Close()
			inner.eventually(t, "the reader is gone", func() bool { return inner.reader == nil })
			clock.fire <- time.Now()
			if n := <-taken; n == 16 {
				p.outW.Close()
			}
			inner.eventually(t, "its output is ended", func() bool { return inner.outEnd != nil })
			if !inner.outEnd.Forced {
				t.Error("it came to its end by itself")
			}
			l.destroy()
			continue
		}
		done := make(chan rest, 1)
		go func() { done <- s.drain(0) }()
		if n := <-taken; n != 16 {
			t.Fatalf("%d chunks were taken", n)
		}
		p.outW.Close()
		p.errW.Close()
		got := <-done
		s.complete(got, 0)
		if !bytes.Equal(got.out, bytes.Repeat(chunk, 16)) || got.outEnd.Forced {
			t.Errorf("%d bytes, %+v", len(got.out), got.outEnd)
		}
	}
}

// What is held ends when it is ended, and with its instance and its server.
func TestHeldOutputHoldsUpNoEnd(t *testing.T) {
	for name, end := range map[string]func(*live){
		"destroyed":        func(l *live) { l.destroy() },
		"with its machine": func(l *live) { l.must(l.s.opt.Provider.Destroy(l.Context(), l.instance)) },
		"with its server":  func(l *live) { l.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			l, p := pick(t, held)
			inner := l.taken(0)
			taken := p.write(randomBytes(1<<20), 32) // and nobody reads
			inner.eventually(t, "it is held", func() bool { return inner.held })
			end(l)
			if name == "with its machine" {
				l.destroy() // the puppet is no part of it
			}
			if n := <-taken; n > wire.MinOutputWindowBytes>>20 {
				t.Errorf("%d MiB were taken", n)
			}
		})
	}
}
