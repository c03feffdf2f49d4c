package wire

import (
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/wire"
)

// windowProbes are of what is kept of the output, and of readers that lack what
// is not.
func windowProbes() []probe.Probe {
	return []probe.Probe{
		ofProcess("stream.ahead", "14", "a cursor beyond the end is refused by name, and the process is killed", cursorAhead),
		ofProcess("stream.low-water", "15", "the low-water mark is served, and what lies below is refused for good", lowWater),
		ofProcess("stream.overrun", "16", "a reader that is overtaken is told so, and never reads across a hole", overrun),
		ofProcess("stream.stalled", "17", "a reader that stands still holds up nobody", stalled),
		ofProcess("stream.stderr", "18", "a flood of diagnostics takes nothing from the output", diagnostics),
	}
}

func cursorAhead(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce() + "\n"
	p := o.open("echo " + mark[:len(mark)-1] + "; exec cat")
	_, err := o.attach(p, 0).says(mark)
	t.Need("runs", err)
	s, a := o.ask(wire.StreamRequest{ProcessID: p.ProcessID, Cursor: int64(len(mark)) + 1})
	if s.Reader != nil {
		t.Fatal("refused", string(wire.TagCursorAhead), "a stream")
	}
	refused(t, "refused", a, wire.TagCursorAhead)
	_, e := refusedBy(a)
	t.Check("end", e.End == int64(len(mark)), strconv.Itoa(len(mark)), e.End)
	exit := o.exit(p)
	t.Check("killed", killed(exit), "an exit by a signal", exitText(exit))
}

// maxWindow is the longest window that is filled for a probe.
const maxWindow = 16 << 20

// round is how much the process of lowWater writes for each line.
const round = 256 << 10

func lowWater(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("while read -r line; do yes " + t.Nonce() + " | head -c " + strconv.Itoa(round) + "; done")
	if p.OutputWindowBytes > maxWindow {
		t.NotHere("its window is too long to be filled here")
	}
	// Each round is read before the next begins: nobody is overtaken.
	s := o.read(wire.StreamRequest{ProcessID: p.ProcessID})
	var end int64
	for n := int64(0); end <= p.OutputWindowBytes; n++ {
		o.feed(p, n, "\n", false)
		end += round
		s.limit(patience)
		_, _, err := s.soon(func(f wire.Frame) bool {
			offset, data, err := f.Output()
			return f.Type == wire.TypeOut && err == nil && offset+int64(len(data)) == end
		})
		t.Need("output", err)
	}
	s = o.attach(p, end)
	f, err := s.Next()
	t.Need("open", err)
	opened, err := wire.Decode[wire.Opened](f.Payload)
	t.Need("open", err)
	low := opened.LowWater
	t.Check("kept", low <= end-p.OutputWindowBytes, "all of the window", low)
	if low == 0 {
		t.NotHere("it keeps more than its window")
	}
	s, a := o.ask(wire.StreamRequest{ProcessID: p.ProcessID, Cursor: low})
	if !t.Check("at", s.Reader != nil, "a stream from the low-water mark", a.failure()) {
		return
	}
	f, _, err = s.soon(is(wire.TypeOut))
	t.Need("at", err)
	offset, _, _ := f.Output()
	t.Check("at", offset == low, strconv.FormatInt(low, 10), offset)
	s.close()
	if !truncated(t, o, "refused", p, low-1) {
		return
	}
	truncated(t, o, "again", p, end)
	exit := o.exit(p)
	t.Check("killed", killed(exit), "an exit by a signal", exitText(exit))
}

// truncated asks for what nobody gets any more.
func truncated(t *probe.T, o *own, check string, p wire.Opened, cursor int64) bool {
	s, a := o.ask(wire.StreamRequest{ProcessID: p.ProcessID, Cursor: cursor})
	if s.Reader != nil {
		return t.Check(check, false, string(wire.TagOutputTruncated), "a stream")
	}
	return refused(t, check, a, wire.TagOutputTruncated)
}

func overrun(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	p := o.open("read -r line; exec yes " + t.Nonce())
	s := o.read(wire.StreamRequest{ProcessID: p.ProcessID})
	o.feed(p, 0, "\n", false)
	f, _, err := s.soon(is(wire.TypeOut))
	t.Need("output", err)
	offset, data, _ := f.Output()
	next := offset + int64(len(data))
	// Here the reader stands still.
	exit := o.exit(p)
	t.Check("killed", killed(exit), "an exit by a signal", exitText(exit))
	s.limit(patience)
	ends := false
	for err == nil && !ends {
		if f, err = s.Next(); err != nil {
			break
		}
		switch f.Type {
		case wire.TypeOut:
			offset, data, _ := f.Output()
			if !t.Check("no-hole", offset == next, strconv.FormatInt(next, 10), offset) {
				return
			}
			next += int64(len(data))
		case wire.TypeOutEnd:
			ends = t.Check("no-end", false, "no end of what is not whole", "out_end")
		case wire.TypeTruncated:
			ends = true
		}
	}
	t.Check("told", ends || broken(err), "truncated, or a connection that breaks", err)
	truncated(t, o, "again", p, next)
}

// broken says that a connection broke: nobody ended what it carried, and its
// reader did not give up. A frame is no less broken by that than the rest.
func broken(err error) bool {
	if bad := (*wire.FrameError)(nil); errors.As(err, &bad) && bad.Reason != wire.FrameTruncation {
		return false
	}
	return err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded)
}

func stalled(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	const much = 2 << 20
	p := o.open("read -r line; yes " + t.Nonce() + " | head -c " + strconv.Itoa(much) + "; exit 6")
	s := o.read(wire.StreamRequest{ProcessID: p.ProcessID})
	o.feed(p, 0, "\n", false)
	f, _, err := s.soon(is(wire.TypeOut))
	t.Need("output", err)
	_, data, _ := f.Output()
	n := len(data)
	exit := o.exit(p)
	if !t.Check("exits", exited(exit, 6), "code 6", exitText(exit)) {
		return
	}
	s.limit(patience)
	_, rest, whole := s.rest().output()
	t.Check("whole", whole && n+len(rest) == much, strconv.Itoa(much), n+len(rest))
}

func diagnostics(t *probe.T) {
	o := allocate(t, probe.Shape{}).activate()
	mark := t.Nonce() + "\n"
	p := o.open("echo " + mark[:len(mark)-1] + "; yes " + t.Nonce() + " | head -c 5242880 >&2; exec cat")
	after := t.Nonce() + "\n"
	o.feed(p, 0, after, true)
	s := o.read(wire.StreamRequest{ProcessID: p.ProcessID})
	h := s.rest()
	_, out, _ := h.output()
	t.Check("whole", string(out) == mark+after, mark+after, h)
	s = o.read(wire.StreamRequest{ProcessID: p.ProcessID})
	h = s.rest()
	_, out, _ = h.output()
	t.Check("again", string(out) == mark+after, mark+after, h)
}
