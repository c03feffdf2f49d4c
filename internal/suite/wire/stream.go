package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// ofProcess is a probe of a live process.
func ofProcess(id, clause, title string, run func(*probe.T)) probe.Probe {
	return probe.Probe{ID: "wire." + id, Suite: of, Clause: "CF-WS-" + clause, Title: title, Run: run,
		Source: `docs/wire.md "A live process"`, Requires: []report.Token{report.Process, report.OpenProcess}}
}

// streamProbes are of what a live process writes, and of those who read it.
func streamProbes() []probe.Probe {
	return slices.Concat([]probe.Probe{
		ofProcess("stream.open", "01", "every attachment begins with what open_process answered, its evidence unchanged", openFirst),
		ofProcess("stream.cursor", "02", "an attachment begins at its cursor or at most 64 KiB below, and has all from there", anyCursor),
		ofProcess("stream.end", "03", "every attachment to what is over ends with the same facts, each once", saidOnce),
		ofProcess("stream.detached", "04", "what ends while nobody reads is told whole to who comes later", endsAlone),
		ofProcess("stream.silent", "05", "a silent stream has its heartbeat, and does not end", silent),
		ofProcess("stream.poll", "06", "a poll answers what there is or what comes, and says that it is over", polls),
		ofProcess("stream.readers", "07", "the newest reader has the stream, and the older one is told so", newestWins),
		ofProcess("stream.late", "08", "an attachment that was overtaken on its way takes the stream from nobody", lateReader),
		ofProcess("stream.closed", "09", "the end of the output is told at once, long before an exit", closedEarly),
		ofProcess("stream.unknown", "10", "a process that nobody opened is not found, by that name", unknownProcess),
		ofProcess("stream.churn", "11", "readers that come and go by the dozen leave the stream as it was", churn),
		ofProcess("stream.bytes", "12", "bytes of any value pass both ways as they are", anyByte),
		ofProcess("stream.cuts", "13", "a connection that breaks anywhere costs not one byte", brokenOff),
	}, windowProbes())
}

func openFirst(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce() + "\n"
	p := o.open("echo " + mark[:len(mark)-1] + "; read -r line")
	check := func(cursor int64) {
		s := o.read(wire.StreamRequest{ProcessID: p.ProcessID, Cursor: cursor})
		defer s.close()
		f, err := s.Next()
		if !t.Check("first", err == nil && f.Type == wire.TypeOpen, "an open frame before all", f.Type) {
			return
		}
		again, err := wire.Decode[wire.Opened](f.Payload)
		t.Need("form", err)
		t.Check("evidence", reflect.DeepEqual(again.Evidence, p.Evidence), "the evidence of the answer", again.Evidence)
		t.Check("process", again.ProcessID == p.ProcessID && again.OutputWindowBytes == p.OutputWindowBytes, "the process and its window", again.ProcessID)
	}
	s := o.attach(p, 0)
	_, err := s.says(mark)
	t.Need("runs", err)
	check(0)
	check(int64(len(mark)))
	o.feed(p, 0, "\n", false)
	o.exit(p)
	check(0)
	check(int64(len(mark)))
}

// counted is a shell command that writes n numbers of eight bytes a line, and
// what it writes.
func counted(t *probe.T, n int) (script string, want []byte) {
	first := 1_000_000 + int(t.Bytes(1)[0])*1000
	for i := range n {
		want = append(strconv.AppendInt(want, int64(first+i), 10), '\n')
	}
	return fmt.Sprintf("seq %d %d", first, first+n-1), want
}

func anyCursor(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	script, want := counted(t, 24_000)
	end := int64(len(want))
	p := o.open("read -r line; exec " + script)
	live := o.attach(p, 0)
	o.feed(p, 0, "\n", false)
	_, out, whole := live.rest().output()
	t.Check("bytes", whole && bytes.Equal(out, want), "what was written", out)
	for _, cursor := range []int64{0, 1, 7, wire.RewindBytes - 1, wire.RewindBytes, wire.RewindBytes + 1, end / 2, end - 1, end} {
		h := o.attach(p, cursor).rest()
		from, out, whole := h.output()
		at := " of cursor " + strconv.FormatInt(cursor, 10)
		t.Check("gap", whole, "frames that join", h.String()+at)
		if from < 0 {
			t.Check("all", cursor == end, "output"+at, h)
			continue
		}
		t.Check("above", from <= cursor, "the first byte"+at, from)
		t.Check("below", from >= cursor-wire.RewindBytes, "at most 64 KiB below"+at, from)
		t.Check("bytes", from <= end && bytes.Equal(out, want[min(from, end):]), "what was written"+at, out)
	}
}

func saidOnce(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce() + "\n"
	p := o.open("read -r line; echo " + mark[:len(mark)-1] + "; echo x >&2; exit 3")
	first := o.attach(p, 0)
	o.feed(p, 0, "\n", false)
	check := func(h heard) {
		t.Check("over", h.err == io.EOF, "the end of the body behind the last fact", h)
		if ends := h.of(wire.TypeOutEnd); t.Check("out-end", len(ends) == 1, "one out_end", h) {
			e, err := wire.Decode[wire.OutEnd](ends[0].Payload)
			t.Need("form", err)
			t.Check("offset", e.Offset == int64(len(mark)), strconv.Itoa(len(mark)), e.Offset)
			t.Check("digest", e.Digest == wire.RequestDigest([]byte(mark)), "the digest of all output", e.Digest)
		}
		t.Check("err-end", len(h.of(wire.TypeErrEnd)) == 1, "one err_end", h)
		if exits := h.of(wire.TypeExit); t.Check("exit", len(exits) == 1, "one exit", h) {
			e, err := wire.Decode[wire.Exit](exits[0].Payload)
			t.Check("cause", err == nil && exited(sandbox.Exit(e), 3), "the exit code 3 and nothing else", exits[0].Payload)
		}
		over := false
		for _, f := range h.frames {
			t.Check("order", f.Type != wire.TypeOut || !over, "out_end behind the last out", h)
			over = over || f.Type == wire.TypeOutEnd
		}
	}
	check(first.rest())
	for _, cursor := range []int64{0, 5, int64(len(mark))} {
		check(o.attach(p, cursor).rest())
	}
}

func endsAlone(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce() + "\n"
	p := o.open("echo " + mark[:len(mark)-1] + "; exit 5")
	e := o.exit(p)
	t.Check("waited", exited(e, 5), "code 5", exitText(e))
	h := o.attach(p, 0).rest()
	_, out, _ := h.output()
	t.Check("output", string(out) == mark, mark, string(out))
	t.Check("exit", len(h.of(wire.TypeExit)) > 0, "an exit", h)
}

func silent(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	s := o.read(wire.StreamRequest{ProcessID: p.ProcessID, HeartbeatMS: wire.MinHeartbeatMS})
	s.limit(3 * quick)
	for range 2 {
		if _, _, err := s.until(is(wire.TypePing)); !t.Check("ping", err == nil, "a ping for each second without a word", err) {
			return
		}
	}
	mark := t.Nonce() + "\n"
	o.feed(p, 0, mark, false)
	got, err := s.says(mark)
	t.Check("goes-on", err == nil && got == mark, mark, got)
}

func polls(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	poll := func(wait int64) stream {
		return o.read(wire.StreamRequest{ProcessID: p.ProcessID, WaitMS: wait})
	}
	h := poll(1).rest()
	_, out, _ := h.output()
	t.Check("empty", len(out) == 0 && h.detached() == wire.DetachPollEnd, "no output and poll_end", h)

	s, mark := poll(wire.DefaultWaitMS), t.Nonce()+"\n"
	_, _, err := s.soon(is(wire.TypeOpen))
	t.Need("opened", err)
	o.feed(p, 0, mark, false)
	h = s.rest()
	_, out, _ = h.output()
	t.Check("waits", len(out) > 0 && strings.HasPrefix(mark, string(out)), "what comes while it waits", h)
	t.Check("end", h.detached() == wire.DetachPollEnd, "poll_end behind that", h)

	_, err = o.attach(p, 0).says(mark)
	t.Need("all-written", err)
	h = poll(wire.DefaultWaitMS).rest()
	_, out, _ = h.output()
	t.Check("data", string(out) == mark && h.detached() == wire.DetachPollEnd, "what there is, and poll_end at once", h)
}

func newestWins(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	older := o.attach(p, 0)
	id := wire.NewAttachID()
	newer := o.read(wire.StreamRequest{ProcessID: p.ProcessID, AttachID: id})
	h := older.rest()
	if t.Check("told", h.detached() == wire.DetachSuperseded, "detach, because it was superseded", h) {
		d, _ := wire.Decode[wire.Detach](h.frames[len(h.frames)-1].Payload)
		t.Check("by-whom", d.AttachID == "" || d.AttachID == id, string(id), d.AttachID)
	}
	mark := t.Nonce() + "\n"
	o.feed(p, 0, mark, false)
	got, err := newer.says(mark)
	t.Check("newest", err == nil && got == mark, mark, got)
}

func lateReader(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	id := wire.NewAttachID()
	older := o.read(wire.StreamRequest{ProcessID: p.ProcessID, AttachID: id})
	_, _, err := older.soon(is(wire.TypeOpen))
	t.Need("opened", err)
	newer := o.attach(p, 0)
	_, _, err = newer.soon(is(wire.TypeOpen))
	t.Need("opened", err)
	late := o.read(wire.StreamRequest{ProcessID: p.ProcessID, AttachID: id})
	mark := t.Nonce() + "\n"
	o.feed(p, 0, mark, false)
	got, err := newer.says(mark)
	if !t.Check("stays", err == nil && got == mark, mark, fmt.Sprint(got, err)) {
		return
	}
	h := late.rest()
	_, out, _ := h.output()
	t.Check("told", len(h.of(wire.TypeOpen)) == 1 && len(out) == 0 && h.detached() == wire.DetachSuperseded, "open and detach, because it was superseded", h)
}

func closedEarly(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark, file := t.Nonce()+"\n", t.Nonce()
	p := o.open("echo " + mark[:len(mark)-1] + `; exec cat >"$HOME"/` + file)
	s := o.attach(p, 0)
	f, out, err := s.soon(is(wire.TypeOutEnd))
	if !t.Check("at-once", err == nil && string(out) == mark, "out_end while it runs", err) {
		return
	}
	e, err := wire.Decode[wire.OutEnd](f.Payload)
	t.Check("honest", err == nil && e.Offset == int64(len(mark)) && !e.Forced, "an end that nobody forced", f.Payload)
	w := value[wire.Waited](t, "wait", o.wait(p, 1))
	t.Check("lives", w.Running, "a process that runs", w.Exit)
	o.feed(p, 0, "", true)
	h := s.rest()
	t.Check("exit", len(h.of(wire.TypeExit)) == 1 && len(h.of(wire.TypeOutEnd)) == 0, "the exit in its time", h)
}

func unknownProcess(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := wire.Opened{ProcessID: wire.NewProcessID()}
	_, a := o.ask(wire.StreamRequest{ProcessID: p.ProcessID})
	refused(t, "stream", a, wire.TagProcessNotFound)
	refused(t, "input", o.input(p, 0, "x", false), wire.TagProcessNotFound)
	refused(t, "wait", o.wait(p, 1), wire.TagProcessNotFound)
	refused(t, "signal", o.signal(p, sandbox.SignalTerminate, ""), wire.TagProcessNotFound)
}

func churn(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("exec cat")
	mark := t.Nonce() + "\n"
	o.feed(p, 0, mark, false)
	for i := range 50 {
		s, a := o.ask(wire.StreamRequest{ProcessID: p.ProcessID})
		if !t.Check("attach", s.Reader != nil, "the stream", a.failure()) {
			return
		}
		if i%2 == 0 { // half of them leave before they heard anything
			_, _, err := s.soon(is(wire.TypeOpen))
			t.Need("open", err)
		}
		s.close()
	}
	got, err := o.attach(p, 0).says(mark)
	t.Check("same", err == nil && got == mark, mark, got)
}

func anyByte(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	sent := []byte("\x00\xff\r\n\xc3\x28\xed\xa0\x80\n\r\x00")
	for i := range 256 {
		sent = append(sent, byte(i))
	}
	sent = append(sent, t.Nonce()...)
	p := o.open("exec cat")
	s := o.attach(p, 0)
	o.feed(p, 0, string(sent), true)
	_, got, _ := s.rest().output()
	t.Check("same", bytes.Equal(got, sent), "the bytes that were sent", got)
}

// refusedBy is a failure's tag, and the error itself.
func refusedBy(a answer) (wire.Tag, *wire.Error) {
	var e *wire.Error
	if errors.As(a.failure(), &e) {
		return e.Tag, e
	}
	return "", &wire.Error{}
}
