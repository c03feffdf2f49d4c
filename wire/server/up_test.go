package server

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// read takes n bytes of a puppet's standard input.
func (l *live) stdin(p *puppet, n int) string {
	l.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(p.inR, b)
	l.must(err)
	return string(b)
}

func (l *live) window(r response) wire.Window {
	l.Helper()
	return ok[wire.Window](l.fixture, r)
}

func TestW74ARepeatedWriteDoesNothing(t *testing.T) {
	l, p := pick(t, nil)
	for range 3 {
		if w := l.window(l.send(0, []byte("abc"), false)); w.InputOffset != 3 {
			t.Errorf("%+v", w)
		}
	}
	l.window(l.send(3, []byte("d"), true))
	if got, err := io.ReadAll(p.inR); err != nil || string(got) != "abcd" {
		t.Errorf("%q %v", got, err)
	}
}

func TestW75OnlyTheTailOfAnOverlapIsTaken(t *testing.T) {
	l, p := pick(t, nil)
	l.window(l.send(0, []byte("abc"), false))
	if w := l.window(l.send(1, []byte("bcde"), false)); w.InputOffset != 5 {
		t.Errorf("%+v", w)
	}
	if got := l.stdin(p, 5); got != "abcde" {
		t.Errorf("%q", got)
	}
}

func TestW76AWriteAheadIsAGap(t *testing.T) {
	l, p := pick(t, nil)
	l.window(l.send(0, []byte("a"), false))
	if e := l.wantTag(l.send(2, []byte("c"), false), wire.TagInputGap); e.InputOffset != 1 {
		t.Errorf("%+v", e)
	}
	l.window(l.send(1, []byte("bc"), false))
	if got := l.stdin(p, 3); got != "abc" {
		t.Errorf("%q", got)
	}
}

func TestW78AWriteOverTheCreditIsRefusedWhole(t *testing.T) {
	l, p := pick(t, func(o *Options) { o.InputBuffer = wire.MinInputBufferBytes })
	data := randomBytes(wire.MinInputBufferBytes + 1)
	e := l.wantTag(l.send(0, data, true), wire.TagInputBufferFull)
	if e.InputOffset != 0 || e.InputCredit != wire.MinInputBufferBytes {
		t.Errorf("%+v", e)
	}
	l.window(l.send(0, data[:wire.MinInputBufferBytes], false))
	if got := l.stdin(p, wire.MinInputBufferBytes); got != string(data[:wire.MinInputBufferBytes]) {
		t.Error("other bytes")
	}
}

func TestW79W81CreditStaysAtZeroUntilTheGuestReads(t *testing.T) {
	l, p := pick(t, func(o *Options) { o.InputBuffer = wire.MinInputBufferBytes })
	s := l.attach(0)
	data := randomBytes(wire.MinInputBufferBytes)
	if w := l.window(l.send(0, data, false)); w.InputCredit != 0 || w.InputOffset != int64(len(data)) {
		t.Fatalf("%+v", w)
	}
	if e := l.wantTag(l.send(int64(len(data)), []byte("x"), false), wire.TagInputBufferFull); e.InputCredit != 0 {
		t.Errorf("%+v", e)
	}
	l.stdin(p, len(data))
	// Windows come, and their sum never decreases.
	for limit := int64(len(data)); limit < 2*int64(len(data)); {
		f := s.next()
		if f.Type != wire.TypeWindow {
			t.Fatalf("%x", f.Type)
		}
		w := decode[wire.Window](s, f)
		if w.InputOffset+w.InputCredit <= limit {
			t.Fatalf("%+v after %d", w, limit)
		}
		limit = w.InputOffset + w.InputCredit
		if limit == int64(len(data))+inputStep {
			break // half of it is worth a frame, the rest comes with the next
		}
	}
	l.window(l.send(int64(len(data)), []byte("x"), false))
	l.stdin(p, 1)
}

func TestW80ALongFrameOverASmallCredit(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.InputBuffer = wire.MinInputBufferBytes })
	l := f.spawn(f.active(), "cat")
	s := l.attach(0)
	data := randomBytes(1_370_000)
	done := make(chan rest, 1)
	go func() { done <- s.drain(0) }()
	l.feed(data)
	got := <-done
	s.complete(got, 0)
	if !bytes.Equal(got.out, data) {
		t.Error("other bytes")
	}
}

func TestW82TheHalfCloseCostsNoCredit(t *testing.T) {
	l, p := pick(t, func(o *Options) { o.InputBuffer = wire.MinInputBufferBytes })
	data := randomBytes(wire.MinInputBufferBytes)
	if w := l.window(l.send(0, data, false)); w.InputCredit != 0 {
		t.Fatalf("%+v", w)
	}
	for range 2 { // W83: and may be repeated
		l.window(l.send(int64(len(data)), nil, true))
	}
	if got, err := io.ReadAll(p.inR); err != nil || !bytes.Equal(got, data) { // the end comes after all of it
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestW84ASignalWorksAfterTheHalfClose(t *testing.T) {
	f := newFixture(t, nil)
	l := f.spawn(f.active(), "sh", "-c", "cat; sleep 1000")
	l.window(l.send(0, []byte("x"), true))
	op := wire.NewOperationID()
	if got := l.signal(op, sandbox.SignalTerminate); !got.Delivered {
		t.Error("not delivered")
	}
	if got := l.exit(); got.Exit == nil || got.Exit.Signal != "SIGTERM" {
		t.Errorf("%+v", got)
	}
	if got := l.signal("", sandbox.SignalTerminate); got.Delivered {
		t.Error("delivered to an exited process")
	}
	if got := l.signal(op, sandbox.SignalTerminate); !got.Delivered {
		t.Error("a retry answered something else")
	}
}

func (l *live) signal(op wire.OperationID, s sandbox.ControlSignal) wire.Signaled {
	l.Helper()
	return ok[wire.Signaled](l.fixture, l.call(wire.ProcessSignal, op, wire.SignalRequest{InstanceID: l.instance, ProcessID: l.id, Signal: s}))
}

func TestW85WhatComesAfterTheEndIsRefusedByItsCause(t *testing.T) {
	closed := func(l *live, offset int64, cause string) {
		t.Helper()
		if e := l.wantTag(l.send(offset, []byte("late"), false), wire.TagInputClosed); e.Cause != cause {
			t.Errorf("cause %q, want %q", e.Cause, cause)
		}
	}
	l, _ := pick(t, nil)
	l.window(l.send(0, []byte("a"), true))
	closed(l, 1, wire.CauseEnded)

	l, p := pick(t, nil)
	l.window(l.send(0, []byte("a"), false))
	l.stdin(p, 1)
	p.close(0)
	l.exit()
	closed(l, 1, wire.CauseExited)
	l.window(l.send(0, []byte("a"), false)) // W77: a retry of what was taken is still no fault
	l.window(l.send(1, nil, true))

	l, p = pick(t, nil)
	p.inR.CloseWithError(io.ErrClosedPipe)
	l.window(l.send(0, []byte("a"), false))
	proc, err := l.s.processes.find(l.instance, l.id)
	l.must(err)
	for open := true; open; runtime.Gosched() {
		proc.mu.Lock()
		open = proc.input.closed == ""
		proc.mu.Unlock()
	}
	closed(l, 1, wire.CauseGuestClosed)
	if !l.running() {
		t.Error("a closed input is no exit")
	}
}
