package server

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// pick makes a process whose every event the test decides.
func pick(t *testing.T, change func(*Options)) (*live, *puppet) {
	t.Helper()
	h := &hooked{}
	made := puppets(h)
	f := newFixture(t, func(o *Options) {
		hook(h)(o)
		if change != nil {
			change(o)
		}
	})
	l := f.spawn(f.active(), "x")
	return l, <-made
}

func (l *live) say(p *puppet, data string) {
	l.Helper()
	_, err := io.WriteString(p.outW, data)
	l.must(err)
}

// taken waits until the journal has n bytes.
func (l *live) taken(n int64) *process {
	l.Helper()
	p, err := l.s.processes.find(l.instance, l.id)
	l.must(err)
	for {
		p.mu.Lock()
		end := p.out.end
		p.mu.Unlock()
		if end >= n {
			return p
		}
		runtime.Gosched()
	}
}

// close ends all that a puppet has.
func (p *puppet) close(code int64) {
	p.outW.Close()
	p.errW.Close()
	p.leave(sandbox.Exited(code), nil)
}

func TestW47ACutAtEveryByteChangesNothing(t *testing.T) {
	l, p := pick(t, nil)
	l.say(p, "hello")
	l.taken(5)
	l.say(p, " world")
	p.close(0)
	l.exit()
	whole, err := io.ReadAll(l.open(0, 0).resp.Body)
	l.must(err)
	for cut := range len(whole) + 1 {
		// What a reader has whole before the cut, it asks for no more.
		r := wire.NewReader(bytes.NewReader(whole[:cut]))
		var have []byte
		for {
			f, err := r.Next()
			if err != nil {
				if cut < len(whole) && err != io.EOF && !errors.Is(err, &wire.FrameError{Reason: wire.FrameTruncation}) {
					t.Fatal(err)
				}
				break
			}
			if f.Type == wire.TypeOut {
				_, data, err := f.Output()
				l.must(err)
				have = append(have, data...)
			}
		}
		s := l.attach(int64(len(have)))
		got := s.drain(int64(len(have)))
		s.complete(got, 0)
		if all := string(have) + string(got.out); all != "hello world" {
			t.Fatalf("cut at %d: %q", cut, all)
		}
	}
}

func TestW49AReconnectionGoesOnAtItsCursor(t *testing.T) {
	l, p := pick(t, nil)
	s := l.attach(0)
	l.say(p, "one")
	if at, data, err := s.next().Output(); err != nil || at != 0 || string(data) != "one" {
		t.Fatal(at, string(data), err)
	}
	s.cancel()
	l.say(p, "two")
	l.taken(6)
	s = l.attach(3)
	p.close(0)
	got := s.drain(3)
	s.complete(got, 0)
	if string(got.out) != "two" || got.outEnd.Digest != digestOf([]byte("onetwo")) {
		t.Errorf("%q", got.out)
	}
}

func TestW58BelowTheLowWaterMarkIsTruncated(t *testing.T) {
	l, p := pick(t, func(o *Options) { o.OutputWindow = wire.MinOutputWindowBytes })
	data := randomBytes(wire.MinOutputWindowBytes + 1000)
	_, err := p.outW.Write(data)
	l.must(err)
	l.taken(int64(len(data)))
	s := l.attach(1000) // exactly the mark
	if at, _, err := s.next().Output(); err != nil || at != 1000 {
		t.Fatal(at, err)
	}
	for range 2 {
		e := l.wantTag(l.open(999, 0).refused(), wire.TagOutputTruncated)
		if e.LowWater != 1000 {
			t.Errorf("low water %d", e.LowWater)
		}
	}
	if got := l.exit(); got.Exit == nil || got.Exit.Signal != "SIGKILL" {
		t.Errorf("%+v", got)
	}
	l.wantTag(l.open(2000, 0).refused(), wire.TagOutputTruncated) // and stays so
	if got := s.drain(1000 + int64(batchBytes)); got.low == nil {
		t.Errorf("%v %v", got.order, got.end)
	}
}

func TestW59ACursorAheadFailsClosed(t *testing.T) {
	l, p := pick(t, nil)
	l.say(p, "abc")
	l.taken(3)
	if e := l.wantTag(l.open(4, 0).refused(), wire.TagCursorAhead); e.End != 3 {
		t.Errorf("end %d", e.End)
	}
	if got := l.exit(); got.Exit == nil || got.Exit.Signal != "SIGKILL" {
		t.Errorf("%+v", got)
	}
}

func TestW60W61ASlowReaderIsTruncatedAndNeverBlocksThePump(t *testing.T) {
	l, p := pick(t, func(o *Options) { o.OutputWindow = wire.MinOutputWindowBytes })
	s := l.attach(0) // its socket stays open and nobody reads it
	chunk := randomBytes(1 << 20)
	var sent []byte
	for range 64 {
		if _, err := p.outW.Write(chunk); err != nil {
			break // killed
		}
		sent = append(sent, chunk...)
	}
	if got := l.exit(); got.Exit == nil || got.Exit.Signal != "SIGKILL" {
		t.Fatalf("%+v", got)
	}
	got := s.drain(0) // fails on a hole
	if got.low == nil || !bytes.HasPrefix(sent, got.out) || int64(len(got.out)) >= got.low.LowWater {
		t.Errorf("%d bytes of %d, %v %v", len(got.out), len(sent), got.low, got.end)
	}
	l.wantTag(l.open(int64(len(got.out)), 0).refused(), wire.TagOutputTruncated)
}

func TestW62AnExitWhileNobodyReadsIsKept(t *testing.T) {
	f := newFixture(t, nil)
	l := f.spawn(f.active(), "sh", "-c", "echo out; echo err >&2; exit 5")
	l.exit()
	for range 2 {
		s := l.attach(0)
		got := s.drain(0)
		s.complete(got, 5)
		if string(got.out) != "out\n" || string(got.err) != "err\n" {
			t.Errorf("%q %q", got.out, got.err)
		}
	}
}

func TestW63StandardOutputMayEndLongBeforeTheExit(t *testing.T) {
	l, p := pick(t, nil)
	s := l.attach(0)
	l.say(p, "x")
	p.outW.Close()
	if f := s.next(); f.Type != wire.TypeOut {
		t.Fatalf("%x", f.Type)
	}
	if f := s.next(); f.Type != wire.TypeOutEnd {
		t.Fatalf("%x", f.Type)
	}
	if !l.running() {
		t.Error("an end of output is no exit")
	}
	p.close(0)
	got := s.drain(1)
	if got.exit == nil || got.errEnd == nil || got.outEnd != nil {
		t.Errorf("%v", got.order)
	}
}

func TestW64WhoeverHoldsTheOutputAfterTheExitIsCutOff(t *testing.T) {
	clock := newFakeClock()
	l, p := pick(t, func(o *Options) { o.Clock = clock })
	l.say(p, "before")
	s := l.attach(0)
	p.leave(sandbox.Exited(0), nil)
	if got := l.exit(); got.Exit == nil { // settled although the output is not
		t.Fatalf("%+v", got)
	}
	l.say(p, " after")
	l.taken(12)
	l.awaitTimers(clock, 2) // the heartbeat and the drain
	clock.Advance(wire.MaxDrainMS * time.Millisecond)
	got := s.drain(0)
	s.complete(got, 0)
	if !got.outEnd.Forced || string(got.out) != "before after" || got.outEnd.Digest != digestOf(got.out) {
		t.Errorf("%+v %q", got.outEnd, got.out)
	}
	l.say(p, "nobody hears") // and nobody waits for whoever says it
	s = l.attach(12)
	s.complete(s.drain(12), 0)
}

func TestW65AFloodOfStandardErrorDoesNotCount(t *testing.T) {
	l, p := pick(t, func(o *Options) { o.OutputWindow = wire.MinOutputWindowBytes })
	l.say(p, "kept")
	kept := l.taken(4)
	chunk := randomBytes(1 << 20)
	for range 8 {
		_, err := p.errW.Write(chunk)
		l.must(err)
	}
	p.close(0)
	l.exit()
	<-kept.flushed // what was written is journaled by another goroutine
	s := l.attach(0)
	got := s.drain(0)
	s.complete(got, 0)
	if string(got.out) != "kept" || len(got.err) != wire.ErrorWindowBytes || !bytes.HasSuffix(chunk, got.err) || got.errEnd.Offset != 8<<20 {
		t.Errorf("%q, %d bytes, end %d", got.out, len(got.err), got.errEnd.Offset)
	}
}

func TestW66SilenceIsFilledWithPings(t *testing.T) {
	clock := newFakeClock()
	l, p := pick(t, func(o *Options) { o.Clock = clock })
	s := l.attach(0)
	for range 100 { // a hundred heartbeats are no end
		l.awaitTimers(clock, 1)
		clock.Advance(time.Second) // what the reader asked for
		if f, err := s.r.Next(); err != nil || f.Type != wire.TypePing {
			t.Fatalf("%x %v", f.Type, err)
		}
	}
	p.close(0)
	s.complete(s.drain(0), 0)
}

func TestW67APollEndsWithWhatItHas(t *testing.T) {
	clock := newFakeClock()
	l, p := pick(t, func(o *Options) { o.Clock = clock })
	l.say(p, "ready")
	l.taken(5)
	poll := func(cursor int64) rest {
		s := l.open(cursor, 5000)
		if f := s.next(); f.Type != wire.TypeOpen {
			t.Fatalf("%x", f.Type)
		}
		return s.drain(cursor)
	}
	// What there is ends it at once.
	got := poll(0)
	if string(got.out) != "ready" || got.detach == nil || got.detach.Reason != wire.DetachPollEnd {
		t.Fatalf("%q %v", got.out, got.order)
	}
	// What comes ends it.
	done := make(chan rest, 1)
	go func() { done <- poll(5) }()
	l.awaitTimers(clock, 2)
	l.say(p, "more")
	if got = <-done; string(got.out) != "more" || got.detach == nil {
		t.Fatalf("%q %v", got.out, got.order)
	}
	// Nothing ends it at its time.
	go func() { done <- poll(9) }()
	l.awaitTimers(clock, 2)
	clock.Advance(5 * time.Second)
	if got = <-done; got.detach == nil || len(got.out) != 0 {
		t.Fatalf("%v", got.order)
	}
	// The end is the end.
	p.close(0)
	l.exit()
	for {
		if got = poll(9); got.detach == nil {
			break
		}
	}
	if got.outEnd == nil || got.exit == nil || got.errEnd == nil {
		t.Errorf("%v", got.order)
	}
}

func TestW68DrainingDetachesEveryStream(t *testing.T) {
	l, _ := pick(t, nil)
	s := l.attach(0)
	go l.stop()
	if got := s.drain(0); got.detach == nil || got.detach.Reason != wire.DetachDraining {
		t.Errorf("%v %v", got.order, got.end)
	}
}

func TestW69TheNewestReaderWins(t *testing.T) {
	l, p := pick(t, nil)
	old := l.attach(0)
	l.say(p, "x")
	if f := old.next(); f.Type != wire.TypeOut {
		t.Fatalf("%x", f.Type)
	}
	next := l.attach(0)
	got := old.drain(1)
	if got.detach == nil || got.detach.Reason != wire.DetachSuperseded || !got.detach.AttachID.Valid() || len(got.out) != 0 {
		t.Errorf("%+v %v", got.detach, got.end)
	}
	p.close(0)
	all := next.drain(0)
	next.complete(all, 0)
}

// A network that delivers an attachment a second time, late, lets nobody fall
// out who came since.
func TestALateAttachmentTakesNobodysPlace(t *testing.T) {
	l, p := pick(t, nil)
	first := wire.StreamRequest{InstanceID: l.instance, ProcessID: l.id, AttachID: wire.NewAttachID(), HeartbeatMS: 1000}
	old := l.ask(first)
	old.next() // open
	l.say(p, "x")
	if f := old.next(); f.Type != wire.TypeOut {
		t.Fatalf("%x", f.Type)
	}
	next := l.attach(0)
	old.drain(1)
	late := l.ask(first)
	late.next() // open
	if got := late.drain(0); got.detach == nil || got.detach.Reason != wire.DetachSuperseded || got.detach.AttachID == first.AttachID {
		t.Errorf("%+v", got.detach)
	}
	p.close(0)
	all := next.drain(0)
	next.complete(all, 0)
}

func TestAReaderThatStandsStillIsLetGoOfInTime(t *testing.T) {
	l, p := pick(t, nil)
	stuck := l.attach(0)
	go func() { _, _ = p.outW.Write(make([]byte, 7<<20)) }() // more than a socket takes
	l.taken(7 << 20)
	next := l.attach(7 << 20)
	// The handler of the old one ends although its socket is full.
	for {
		l.s.mu.Lock()
		n := len(l.s.calls)
		l.s.mu.Unlock()
		if n == 0 && handlersOf("processStream") == 1 {
			break
		}
		runtime.Gosched()
	}
	p.close(0)
	next.complete(next.drain(7<<20), 0)
	if got := stuck.drain(0); got.outEnd != nil {
		t.Errorf("%v", got.order)
	}
}

// handlersOf counts the goroutines in a method.
func handlersOf(name string) int {
	buf := make([]byte, 1<<20)
	return bytes.Count(buf[:runtime.Stack(buf, true)], []byte("(*call)."+name+"("))
}

func TestW72AThousandReadersLeaveNothing(t *testing.T) {
	l, p := pick(t, nil)
	l.say(p, "x")
	l.taken(1)
	l.attach(0).cancel()
	before := runtime.NumGoroutine()
	for range 1000 {
		s := l.attach(0)
		s.cancel()
		s.resp.Body.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+4; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, then %d", before, runtime.NumGoroutine())
		}
	}
	s := l.attach(0)
	p.close(0)
	s.complete(s.drain(0), 0)
}

func TestW73OldProcessesLetGoOfWhatTheyWrote(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	var all []*live
	for range maxRings + 2 {
		l := f.spawn(id, "sh", "-c", "echo x")
		l.exit()
		s := l.attach(0)
		s.complete(s.drain(0), 0)
		all = append(all, l)
	}
	f.wantTag(all[0].open(0, 0).refused(), wire.TagOutputTruncated)
	if got := all[0].exit(); got.Exit == nil || *got.Exit.ExitCode != 0 { // its exit it keeps
		t.Errorf("%+v", got)
	}
	s := all[len(all)-1].attach(0)
	s.complete(s.drain(0), 0)
}

func TestALostProcessHasNoExit(t *testing.T) {
	for name, lose := range map[string]func(*puppet){
		"wait fails":     func(p *puppet) { p.leave(sandbox.Exit{}, errors.New("gone")) },
		"two causes":     func(p *puppet) { e := sandbox.Exited(0); e.Signal = "SIGKILL"; p.leave(e, nil) },
		"broken output":  func(p *puppet) { p.outW.CloseWithError(errors.New("i/o error")) },
		"panicking read": func(p *puppet) { p.outW.CloseWithError(nil); p.leave(sandbox.Exit{}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			l, p := pick(t, nil)
			s := l.attach(0)
			lose(p)
			lost := sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil)
			if got := s.drain(0); !errors.Is(got.failure, lost) || got.exit != nil {
				t.Errorf("%v %v", got.failure, got.order)
			}
			l.want(l.call(wire.ProcessWait, "", wire.WaitRequest{InstanceID: l.instance, ProcessID: l.id, WaitMS: 1000}), lost)
			l.want(l.open(0, 0).refused(), lost)
			select { // by another goroutine than the one that told the loss
			case <-p.killed:
			case <-time.After(time.Minute):
				t.Error("not destroyed")
			}
		})
	}
}

func TestW71EvidenceIsTheSameAtEveryAttachment(t *testing.T) {
	l, p := pick(t, nil)
	want, err := wire.Encode(l.opened)
	l.must(err)
	p.evidence.Provider = "another" // too late
	for range 2 {
		s := l.open(0, 0)
		if f := s.next(); !bytes.Equal(f.Payload, want) {
			t.Errorf("%s\n%s", want, f.Payload)
		}
	}
}

func TestAStreamEndsWithItsCaller(t *testing.T) {
	l, _ := pick(t, nil)
	s := l.attach(0)
	s.cancel()
	for handlersOf("processStream") > 0 {
		runtime.Gosched()
	}
	p, err := l.s.processes.find(l.instance, l.id)
	l.must(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reader != nil {
		t.Error("still attached")
	}
}
