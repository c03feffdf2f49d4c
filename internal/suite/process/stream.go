package process

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
)

// streamProbes hold the three streams.
func streamProbes() []probe.Probe {
	unread := holds("stderr-unread", "09", "diagnostics that nobody reads do not stop the process", stderrUnread)
	unread.Level = report.Should
	silent := holds("idle", "08", "a process that is silent for long is neither cut off nor repeated", idle)
	silent.Once = true
	return []probe.Probe{
		holds("bytes", "01", "every byte value goes through as it is, and an empty write means nothing", everyByte),
		holds("half-close", "02", "the child sees the half-close as its end of file and goes on", halfClose),
		holds("end-of-file", "03", "the output ends with a real end of file", endOfFile),
		holds("last-bytes", "04", "what a child writes last is not lost, whether or not it is a line", lastBytes),
		holds("stdin-whole", "05", "one write of a megabyte arrives whole and in order", stdinWhole),
		holds("stderr-apart", "06", "standard error does not appear in the output", stderrApart),
		holds("streams-at-once", "07", "reading one stream does not keep the others from moving", streamsAtOnce),
		silent,
		unread,
		holds("output-kept", "10", "what was written before the exit can be read after it", outputKept),
		holds("stderr-ends", "36", "standard error is a stream that can be read and ends with the process", stderrEnds),
	}
}

func everyByte(t *probe.T) {
	sent := []byte(t.Nonce())
	for i := range 256 {
		sent = append(sent, byte(i))
	}
	sent = append(sent, "\r\n\x00\xff"+t.Nonce()+"\n"...)
	l := run(t, "exec head -c "+strconv.Itoa(len(sent)))
	for _, part := range [][]byte{sent[:100], {}, sent[100:]} {
		if err := l.write(part); !t.Check("write", err == nil, "a write that is taken", err) {
			return
		}
	}
	got := make([]byte, len(sent))
	n, err := io.ReadFull(l.out, got)
	same(t, "same", sent, got[:n], err)
}

func halfClose(t *probe.T) {
	mark, first := t.Nonce(), t.Nonce()
	l := run(t, "cat; echo "+mark)
	l.say(first)
	if !l.expect("before", first) {
		return
	}
	if err := l.halfClose(); !t.Check("close", err == nil, "a half-close", err) {
		return
	}
	l.expect("seen", mark)
}

func endOfFile(t *probe.T) {
	mark := t.Nonce()
	l := run(t, "echo "+mark)
	if !l.expect("output", mark) {
		return
	}
	got, err := l.line()
	t.Check("end", err == io.EOF && got == "", "the end of file", came(got, err))
}

func lastBytes(t *probe.T) {
	want := t.Nonce() + "\n" + t.Nonce()
	l := start(t, t.Machine(probe.Shape{}), program(`printf '%s' "$1"`, want))
	got := make([]byte, len(want))
	n, err := io.ReadFull(l.out, got)
	same(t, "whole", []byte(want), got[:n], err)
}

func stdinWhole(t *probe.T) {
	sent, ready, mark := numbered(t.Nonce(), 1<<20/26+1), t.Nonce(), t.Nonce()
	l := run(t, "echo "+ready+"; exec cat")
	if !l.expect("ready", ready) {
		return
	}
	written := l.feed(func() error {
		if err := l.write(sent); err != nil {
			return err
		}
		return l.write(ending(mark))
	})
	got, err := l.until(mark, len(sent))
	if same(t, "whole", sent, got, err) {
		err := <-written
		t.Check("taken", err == nil, "a write that is taken", err)
	}
}

func stderrApart(t *probe.T) {
	apart, want := t.Nonce(), t.Nonce()
	l := run(t, "echo "+apart+" >&2; echo "+want)
	l.expect("apart", want)
}

// The error stream is held by a reader that waits while input and output move.
func streamsAtOnce(t *probe.T) {
	l := run(t, "exec cat")
	diagnostics := &stream{t: t, from: l.p.Error()}
	l.feed(func() error { _, err := io.Copy(io.Discard, diagnostics); return err })
	moment(t)
	for range 4 {
		line := t.Nonce()
		if err := l.write([]byte(line + "\n")); !t.Check("input", err == nil, "a write that is taken", err) || !l.expect("output", line) {
			return
		}
	}
}

// idle passes 90 s where time can be moved. On a real target a full run waits
// for longer than the minute that is the usual timeout; a short one cannot.
func idle(t *probe.T) {
	before, after := t.Nonce(), t.Nonce()
	l := run(t, `while read -r line; do echo "$line"; done`)
	l.say(before)
	if !l.expect("before", before) {
		return
	}
	d := 2 * time.Second
	switch {
	case movable(t):
		d = 90 * time.Second
	case t.StreamBytes() >= 1<<30:
		d = 65 * time.Second
	}
	t.Sleep(d)
	t.Observe("idle for %v", d)
	if err := l.write([]byte(after + "\n")); t.Check("input", err == nil, "a write that is taken", err) {
		l.expect("after", after)
	}
}

func stderrUnread(t *probe.T) {
	mark := t.Nonce()
	// A megabyte in whole lines. Whether the streams are apart is another
	// probe's.
	l := run(t, "yes "+t.Nonce()+" | head -c 1048577 >&2; echo "+mark)
	_, err := l.until(mark, 4<<20)
	t.Check("goes-on", err == nil, "the output after 1 MiB of diagnostics", err)
}

func outputKept(t *probe.T) {
	want := t.Nonce()
	l := run(t, "echo "+want+"; exit 4")
	l.wait()
	l.expect("kept", want)
}

// What of it arrives is best effort.
func stderrEnds(t *probe.T) {
	mark := t.Nonce()
	l := run(t, "echo "+mark+" >&2")
	l.wait()
	got, err := io.ReadAll(io.LimitReader(&stream{t: t, from: l.p.Error()}, 1<<20))
	t.Check("ends", err == nil && len(got) < 1<<20, "an end of file", came(string(got[:min(len(got), 80)]), err))
	if !bytes.Contains(got, []byte(mark)) {
		t.Observe("one line of diagnostics was not delivered")
	}
}

// volumeProbes move much.
func volumeProbes() []probe.Probe {
	all := holds("throughput", "11", "what goes in comes out, however much it is: nothing lost, nothing twice, all in order", throughput)
	all.Once = true
	return []probe.Probe{
		all,
		holds("no-ceiling", "12", "the output is not cut at a ceiling of the provider's own", noCeiling),
		holds("backpressure", "13", "what is written to a child that does not read yet is not lost", backpressure),
		holds("slow-reader", "14", "what nobody reads for a while is not lost", slowReader),
	}
}

// noCeiling counts; what the bytes are is held by the others.
func noCeiling(t *probe.T) {
	line := t.Nonce()
	want := int64(5<<20) / 17 * 17 // whole lines, past the 4 MiB that one consumer collects
	l := run(t, "yes "+line+" | head -c "+strconv.FormatInt(want, 10))
	n, err := l.flood(want)
	t.Check("whole", n == want, fmt.Sprintf("%d bytes", want), fmt.Sprintf("%d bytes, then %v", n, err))
}

// backpressure lets the child read only once a command has made a file.
func backpressure(t *probe.T) {
	const piece = 64 << 10
	gate, mark, sent := "/tmp/"+t.Nonce(), t.Nonce(), numbered(t.Nonce(), 1<<20/26+1)
	m := t.Machine(probe.Shape{})
	l := start(t, m, program("while test ! -e "+gate+"; do :; done; rm -f "+gate+"; exec cat"))
	written := l.feed(func() error {
		for left := sent; len(left) > 0; left = left[min(piece, len(left)):] {
			if err := l.write(left[:min(piece, len(left))]); err != nil {
				return err
			}
		}
		return l.write(ending(mark))
	})
	moment(t)
	if len(written) > 0 {
		t.Observe("the writer was not held: all was buffered")
	}
	opened := m.Sh(": > " + gate)
	t.Control("child-reads", probe.Code(opened) == 0, "the file that lets the child read could not be made")
	got, err := l.until(mark, len(sent))
	same(t, "whole", sent, got, err)
}

func slowReader(t *probe.T) {
	first := 1_000_000 + int(t.Bytes(1)[0])*1000
	last := first + 1<<17 - 1 // eight bytes a line: a megabyte, sixteen times a pipe
	l := run(t, "exec seq "+strconv.Itoa(first)+" "+strconv.Itoa(last))
	t.Sleep(time.Second)
	want := make([]byte, 0, 1<<20)
	for n := first; n <= last; n++ {
		want = append(strconv.AppendInt(want, int64(n), 10), '\n')
	}
	got := make([]byte, len(want))
	n, err := io.ReadFull(l.out, got)
	same(t, "whole", want, got[:n], err)
}
