package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// inputProbes are of what a live process is sent, and of how it is held.
func inputProbes() []probe.Probe {
	return []probe.Probe{
		ofProcess("input.again", "30", "input that is delivered again is taken once", inputAgain),
		ofProcess("input.overlap", "31", "of input that overlaps what was taken, only the tail is taken", overlap),
		ofProcess("input.gap", "32", "input beyond a gap is refused by name, and none of it is taken", inputGap),
		ofProcess("input.credit", "33", "the limit of input never decreases", creditKept),
		ofProcess("input.full", "34", "input beyond the credit is refused whole, and the credit comes back when the process reads", bufferFull),
		ofProcess("input.end", "35", "the half-close is an end of file behind the last byte, and ends nothing else", halfClosed),
		ofProcess("input.end-again", "36", "the half-close is for good: again it is nothing, and input behind it is refused by name", endedTwice),
		ofProcess("input.closed", "37", "input to a process that is gone, or closed its end, is refused with that cause", inputClosed),
		ofProcess("process.one", "38", "an instance has one live process, and room for the next once that has ended", oneProcess),
		ofProcess("process.tombstone", "39", "a process that was destroyed before it was opened never will be", destroyedEarly),
		ofProcess("process.signal", "40", "a signal that is delivered again arrives once, and after the exit not at all", signalOnce),
		ofProcess("process.wait", "41", "an exit can be waited for at any time, as often as one likes, and after a destroy", waitAnyTime),
		ofProcess("process.destroy", "42", "a process can be destroyed again and again", destroyAgain),
	}
}

func inputAgain(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	first, second := t.Nonce(), t.Nonce()
	w := o.feed(p, 0, first, false)
	again := o.feed(p, 0, first, false)
	t.Check("offset", again.InputOffset == w.InputOffset, strconv.FormatInt(w.InputOffset, 10), again.InputOffset)
	// The answer to this one is lost: nobody waits for it.
	q := o.request(wire.ProcessInput, wire.InputCall{InstanceID: o.id, ProcessID: p.ProcessID, Offset: int64(len(first))})
	q.data = []byte(second)
	lose(t, q)
	o.feed(p, int64(len(first)), second, true)
	_, out, _ := o.attach(p, 0).rest().output()
	t.Check("once", string(out) == first+second, first+second, string(out))
}

// lose delivers q, and closes the connection before the answer is read.
func lose(t *probe.T, q request) {
	r, err := q.http(t.Target().Wire)
	if err != nil {
		t.Unjudged("request", err.Error())
	}
	c, err := t.Target().Wire.Dial(t.Context())
	t.Need("connected", err)
	defer c.Close()
	t.Need("sent", r.Write(c))
}

func overlap(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	text := t.Nonce() + t.Nonce()
	o.feed(p, 0, text[:20], false)
	a := o.input(p, 10, text[10:], true)
	t.Check("taken", a.failure() == nil, "the rest", a.failure())
	out, _ := o.attach(p, 0).says(text)
	t.Check("tail", out == text, text, out)
}

func inputGap(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	text := t.Nonce()
	w := o.feed(p, 0, text, false)
	a := o.input(p, w.InputOffset+1, "x", false)
	if refused(t, "refused", a, wire.TagInputGap) {
		_, e := refusedBy(a)
		t.Check("offset", e.InputOffset == w.InputOffset, strconv.FormatInt(w.InputOffset, 10), e.InputOffset)
	}
	again := o.feed(p, w.InputOffset, "", false)
	t.Check("none", again.InputOffset == w.InputOffset, strconv.FormatInt(w.InputOffset, 10), again.InputOffset)
}

func creditKept(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	var offset int64
	limit := p.InputOffset + p.InputCredit
	for range 8 {
		w := o.feed(p, offset, t.Nonce(), false)
		offset += 16
		t.Check("taken", w.InputOffset == offset, strconv.FormatInt(offset, 10), w.InputOffset)
		sum := w.InputOffset + w.InputCredit
		t.Check("kept", sum >= limit, "at least "+strconv.FormatInt(limit, 10), sum)
		limit = max(limit, sum)
	}
}

// bufferFull fills the buffer of a process that does not read yet. How much of
// it goes into a pipe at once is the machine's, so the credit may still come
// back a little meanwhile.
func bufferFull(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	gate, ready := `"$HOME"/`+t.Nonce(), t.Nonce()+"\n"
	p := o.open("echo " + ready[:len(ready)-1] + "; while test ! -e " + gate + "; do :; done; exec cat")
	s := o.read(wire.StreamRequest{ProcessID: p.ProcessID})
	_, err := s.says(ready)
	t.Need("runs", err)
	const most = 2 * wire.MaxInputBufferBytes
	const pipe = 64 << 10 // more than what the machine may take while it is asked
	offset, credit := p.InputOffset, p.InputCredit
	for full, asked := false, 0; !full; asked++ {
		if asked == 1000 {
			t.Fatal("refused", string(wire.TagInputBufferFull)+" once the buffer is full", "credit without end")
		}
		n := min(credit+pipe, wire.MaxInputBytes)
		a := o.input(p, offset, strings.Repeat("y", int(n)), false)
		tag, e := refusedBy(a)
		if full = tag == wire.TagInputBufferFull; !full {
			if a.failure() != nil {
				t.Fatal("refused", string(wire.TagInputBufferFull), a.failure())
			}
			w := value[wire.Window](t, "input", a)
			offset, credit = w.InputOffset, w.InputCredit
			if offset > most {
				t.Fatal("refused", string(wire.TagInputBufferFull)+" within "+strconv.Itoa(most), "everything taken")
			}
			continue
		}
		t.Check("none", e.InputOffset == offset, strconv.FormatInt(offset, 10), e.InputOffset)
		credit = e.InputCredit
		full = credit < n
		if credit > 0 && full { // now to the last byte
			w := o.feed(p, offset, strings.Repeat("y", int(min(credit, wire.MaxInputBytes))), false)
			offset, credit, full = w.InputOffset, w.InputCredit, w.InputCredit == 0
		}
	}
	a := o.input(p, offset, "", true)
	t.Check("free-end", a.failure() == nil, "a half-close that needs no credit", a.failure())
	_, _, err = settled(send(t, o.execute(": >"+gate)))
	t.Control("child-reads", err == nil, err)
	h := s.rest()
	_, out, _ := h.output()
	t.Check("whole", int64(len(out)) == offset, strconv.FormatInt(offset, 10), fmt.Sprint(len(out), h))
	var told int64
	for _, f := range h.of(wire.TypeWindow) {
		w, err := wire.Decode[wire.Window](f.Payload)
		t.Need("window", err)
		told = max(told, w.InputOffset+w.InputCredit)
	}
	t.Check("refilled", told > offset, "a window beyond "+strconv.FormatInt(offset, 10), told)
}

func halfClosed(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark, text := t.Nonce()+"\n", strings.Repeat(t.Nonce(), 64)
	p := o.open("cat; echo " + mark[:len(mark)-1] + "; exec sleep 600")
	s := o.attach(p, 0)
	o.feed(p, 0, text, true)
	got, err := s.says(text + mark)
	if !t.Check("goes-on", err == nil && got == text+mark, "all input, and what is written behind its end", fmt.Sprint(len(got), err)) {
		return
	}
	d := value[wire.Signaled](t, "signal", o.signal(p, sandbox.SignalTerminate, ""))
	t.Check("delivered", d.Delivered, "delivered", d)
	exit := o.exit(p)
	t.Check("signal", killed(exit), "an exit by a signal", exitText(exit))
}

func endedTwice(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("cat; exec sleep 600")
	text := t.Nonce()
	n := int64(len(text))
	o.feed(p, 0, text, true)
	for range 2 {
		a := o.input(p, n, "", true)
		t.Check("again", a.failure() == nil, "a half-close that was taken", a.failure())
	}
	a := o.input(p, 0, text, true)
	t.Check("whole-again", a.failure() == nil, "what was taken", a.failure())
	a = o.input(p, n, "x", false)
	if refused(t, "closed", a, wire.TagInputClosed) {
		_, e := refusedBy(a)
		t.Check("cause", e.Cause == wire.CauseEnded && e.InputOffset == n, wire.CauseEnded, e.Cause)
	}
}

func inputClosed(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exit 0")
	o.exit(p)
	a := o.input(p, 0, "x", false)
	if refused(t, "exited", a, wire.TagInputClosed) {
		_, e := refusedBy(a)
		t.Check("exited-cause", e.Cause == wire.CauseExited, wire.CauseExited, e.Cause)
	}
	file, ready := `"$HOME"/`+t.Nonce(), t.Nonce()+"\n"
	// Closed before it says so: on a busy machine all that follows may be over before
	// a shell gets from one word to the next.
	p = o.open(": >" + file + "; exec sh -c 'echo " + ready[:len(ready)-1] + "; exec sleep 600' <" + file)
	_, err := o.attach(p, 0).says(ready)
	t.Need("runs", err)
	// Nobody knows that an end is closed before a byte was written to it.
	var offset int64
	for range 1000 {
		a = o.input(p, offset, "x", false)
		if a.failure() != nil {
			break
		}
		offset++
	}
	if refused(t, "guest", a, wire.TagInputClosed) {
		_, e := refusedBy(a)
		t.Check("guest-cause", e.Cause == wire.CauseGuestClosed, wire.CauseGuestClosed, e.Cause)
	}
	w := value[wire.Waited](t, "wait", o.wait(p, 1))
	t.Check("lives", w.Running, "a process that runs", w.Exit)
}

func oneProcess(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	open := &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: sandbox.ActualProcessAlreadyOpen}
	other := o.opening(wire.NewProcessID(), "exec cat")
	t.Refused("second", send(t, other).failure(), open)
	o.feed(p, 0, "", true)
	o.exit(p)
	a := send(t, other)
	t.Check("after", a.failure() == nil, "a process after the first has ended", a.failure())
}

func destroyedEarly(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	id, mark := wire.NewProcessID(), t.Nonce()
	a := o.take(id)
	t.Check("taken", a.failure() == nil, "{}", a.failure())
	a = send(t, o.opening(id, `echo ran >"$HOME"/`+mark+"; exec cat"))
	refused(t, "refused", a, wire.TagOperationRolledBack)
	r, _, err := settled(send(t, o.execute(`test ! -e "$HOME"/`+mark)))
	t.Check("no-effect", err == nil && r.ExitCode != nil && *r.ExitCode == 0, "nothing that ran", err)
}

// signalOnce delivers SIGINT to a process that ignores it, and the same delivery
// again once it no longer does.
func signalOnce(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	first, second, third := t.Nonce()+"\n", t.Nonce()+"\n", t.Nonce()+"\n"
	p := o.open("trap '' INT; echo " + first[:len(first)-1] + "; read -r line; trap - INT; echo " + second[:len(second)-1] + `; read -r line; echo "$line"`)
	s := o.attach(p, 0)
	_, err := s.says(first)
	t.Need("runs", err)
	id := wire.NewOperationID()
	d := value[wire.Signaled](t, "signal", o.signal(p, sandbox.SignalInterrupt, id))
	t.Check("delivered", d.Delivered, "delivered", d)
	// It may still be on its way through the machine: a heartbeat is time enough.
	_, _, err = s.until(is(wire.TypePing))
	t.Need("silent", err)
	o.feed(p, 0, "\n", false)
	_, err = s.says(second)
	t.Need("goes-on", err)
	d = value[wire.Signaled](t, "signal", o.signal(p, sandbox.SignalInterrupt, id))
	t.Check("same-answer", d.Delivered, "delivered", d)
	a := o.input(p, 1, third, false)
	t.Check("once", a.failure() == nil, "a process that still reads", a.failure())
	got, err := s.says(third)
	if !t.Check("once", err == nil && got == third, third, fmt.Sprint(got, err)) {
		return
	}
	exit := o.exit(p)
	t.Check("exit", exited(exit, 0), "code 0", exitText(exit))
	d = value[wire.Signaled](t, "signal", o.signal(p, sandbox.SignalKill, ""))
	t.Check("late", !d.Delivered, "nothing that is delivered", d)
}

func waitAnyTime(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("read -r line; exit 9")
	w := value[wire.Waited](t, "wait", o.wait(p, 0))
	t.Check("running", w.Running, "a process that runs", w.Exit)
	o.feed(p, 0, "\n", false)
	check := func(id string) {
		exit := sandbox.Exit{}
		if a := o.waited(p, wire.DefaultWaitMS); t.Check(id, a.failure() == nil, "the exit", a.failure()) {
			if w := value[wire.Waited](t, "form", a); w.Exit != nil {
				exit = *w.Exit
			}
			t.Check(id, exited(exit, 9), "code 9", exitText(exit))
		}
	}
	check("exit")
	check("again")
	a := o.take(p.ProcessID)
	t.Need("destroy", a.failure())
	check("destroyed")
}

func destroyAgain(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	for range 3 {
		a := o.take(p.ProcessID)
		t.Check("again", a.failure() == nil, "{}", a.failure())
	}
	exit := o.exit(p)
	t.Check("ended", killed(exit), "an exit by a signal", exitText(exit))
	a := o.input(p, 0, "x", false)
	t.Check("gone", errors.Is(a.failure(), &wire.Error{Tag: wire.TagInputClosed}), string(wire.TagInputClosed), a.failure())
}
