package authorkit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Outcome is what a reader of one attachment has in the end.
type Outcome struct {
	// End is complete (all of out_end, err_end and exit came), dropped (the
	// connection ended before), the reason of a detach, truncated, error, or
	// violation.
	End    string          `json:"end"`
	Prefix string          `json:"prefix_hex"` // what the reader had before: cursor bytes
	Output string          `json:"output_hex"` // what it has now, the prefix included
	Exit   json.RawMessage `json:"exit,omitempty"`
	Why    string          `json:"why,omitempty"` // of a violation
}

// reader is the filter that a Runner puts behind an attachment: it takes what
// is new, drops what it has, and refuses what cannot be.
type reader struct {
	output                []byte
	opened, outEnd, ended bool
	exit                  json.RawMessage
}

// violated is how a stream broke the wire.
type violated string

func (v violated) Error() string { return string(v) }

// take reads one frame. end is not "" where the attachment is over.
func (r *reader) take(f wire.Frame) (end string, err error) {
	if (f.Type == wire.TypeOpen) == r.opened && f.Type != wire.TypeError {
		return "", violated("open is the first frame and comes once")
	}
	switch f.Type {
	case wire.TypeOpen:
		r.opened = true
		_, err = wire.Decode[wire.Opened](f.Payload)
	case wire.TypeOut:
		offset, data, bad := f.Output()
		have := int64(len(r.output))
		switch {
		case bad != nil:
			return "", bad
		case r.outEnd:
			return "", violated("out after out_end")
		case offset > have:
			return "", violated("a gap")
		case offset+int64(len(data)) > have:
			r.output = append(r.output, data[have-offset:]...)
		}
	case wire.TypeErr:
		if r.ended {
			return "", violated("err after err_end")
		}
		_, _, err = f.Output()
	case wire.TypeOutEnd:
		m, bad := wire.Decode[wire.OutEnd](f.Payload)
		sum := sha256.Sum256(r.output)
		switch {
		case bad != nil:
			return "", bad
		case r.outEnd:
			return "", violated("out_end twice")
		case m.Offset != int64(len(r.output)):
			return "", violated("out_end at another offset")
		case string(m.Digest) != "sha256:"+hex.EncodeToString(sum[:]):
			return "", violated("out_end with another digest")
		}
		r.outEnd = true
	case wire.TypeErrEnd:
		if r.ended {
			return "", violated("err_end twice")
		}
		r.ended = true
		_, err = wire.Decode[wire.ErrEnd](f.Payload)
	case wire.TypeExit:
		if r.exit != nil {
			return "", violated("exit twice")
		}
		r.exit = bytes.Clone(f.Payload)
		_, err = wire.Decode[wire.Exit](f.Payload)
	case wire.TypeWindow:
		_, err = wire.Decode[wire.Window](f.Payload)
	case wire.TypePing:
	case wire.TypeDetach:
		m, bad := wire.Decode[wire.Detach](f.Payload)
		return string(m.Reason), bad
	case wire.TypeTruncated:
		_, err = wire.Decode[wire.Truncated](f.Payload)
		return "truncated", err
	case wire.TypeError:
		_, err = wire.DecodeError(f.Payload)
		return "error", err
	default:
		return "", violated("a frame that no stream has")
	}
	if err == nil && r.outEnd && r.ended && r.exit != nil {
		end = "complete"
	}
	return end, err
}

// Read is the outcome of an attachment that carried data, for a reader who has
// prefix already. It is the reference for the scenarios, and no client: that one
// is wire/client.
func Read(prefix, data []byte) Outcome {
	r := &reader{output: bytes.Clone(prefix)}
	o := Outcome{Prefix: hex.EncodeToString(prefix)}
	frames := wire.NewReader(bytes.NewReader(data))
	for o.End == "" {
		f, err := frames.Next()
		if err == nil {
			o.End, err = r.take(f)
		}
		var broken *wire.FrameError
		switch {
		case err == nil:
		case err == io.EOF, errors.As(err, &broken) && broken.Reason == wire.FrameTruncation:
			o.End = "dropped"
		default:
			o.End, o.Why = "violation", err.Error()
			if v, ok := err.(violated); ok {
				o.Why = string(v)
			} else if errors.As(err, &broken) {
				o.Why = string(broken.Reason)
			}
		}
	}
	o.Output, o.Exit = hex.EncodeToString(r.output), r.exit
	return o
}

// streams are attachments, as a Runner reads them.
func streams() (all []Scenario) {
	open := says(wire.TypeOpen, opened())
	end := func(text string) func(*wire.Writer) error {
		return says(wire.TypeOutEnd, wire.OutEnd{Digest: digest([]byte(text)), Offset: int64(len(text))})
	}
	errEnd := says(wire.TypeErrEnd, wire.ErrEnd{})
	exit := says(wire.TypeExit, wire.Exit(sandbox.Exited(0)))
	done := does(end(hello), errEnd, exit)
	add := func(name, about, prefix, want string, steps ...func(*wire.Writer) error) {
		var b bytes.Buffer
		if err := does(steps...)(wire.NewWriter(&b)); err != nil {
			panic("authorkit: " + err.Error())
		}
		o := Read([]byte(prefix), b.Bytes())
		if o.End != want {
			panic("authorkit: stream " + name + " ends as " + o.End + ": " + o.Why)
		}
		all = append(all, Scenario{Kind: "stream", Name: name, Says: about, Cursor: ref(int64(len(prefix))), Hex: hex.EncodeToString(b.Bytes()),
			Frames: takeApart(b.Bytes(), true), Outcome: &o})
	}
	add("whole", "from the first byte to the exit", "", "complete", open, out(0, hello), done)
	add("in-pieces", "chunk borders mean nothing", "", "complete", open, out(0, "he"), out(2, "l"), out(3, "lo\n"), done)
	add("ends-in-any-order", "the three ends are three facts", "", "complete", open, exit, out(0, hello), errEnd, end(hello))
	add("no-output", "a process that said nothing", "", "complete", open, end(""), errEnd, exit)
	add("quiet", "pings and windows mean nothing for the output", "", "complete", open, (*wire.Writer).Ping, says(wire.TypeWindow, wire.Window{InputCredit: 1}), out(0, hello), (*wire.Writer).Ping, done)
	add("stderr-gap", "standard error may have gaps", "", "complete", open, stderr(0, "a"), stderr(1000, "b"), out(0, hello), done)
	add("resumed", "from the cursor", "hel", "complete", open, out(3, "lo\n"), done)
	add("resumed-overlap", "a replay may begin below the cursor: what the reader has is cut", "hel", "complete", open, out(0, hello), done)
	add("resumed-repeat", "or repeat frames that lie below it whole", "hel", "complete", open, out(0, "he"), out(2, "l"), out(3, "lo\n"), done)
	add("resumed-rechunked", "or cut them at other places", "hel", "complete", open, out(1, "el"), out(2, "llo"), out(4, "o\n"), done)
	add("resumed-at-the-end", "there was nothing left but the ends", hello, "complete", open, done)
	add("dropped-at-a-border", "the connection ended: never an exit", "", "dropped", open, out(0, hello))
	add("dropped-before-open", "or before anything", "", "dropped")
	add("dropped-before-exit", "two of the three ends are not all", "", "dropped", open, out(0, hello), end(hello), errEnd)
	add("poll-end", "a poll", "", "poll_end", open, out(0, hello), says(wire.TypeDetach, wire.Detach{Reason: wire.DetachPollEnd}))
	add("superseded", "another reader", "", "superseded", open, says(wire.TypeDetach, wire.Detach{Reason: wire.DetachSuperseded, AttachID: otherAttach}))
	add("fenced", "another epoch", "", "fenced", open, says(wire.TypeDetach, wire.Detach{Reason: wire.DetachFenced, LeaseEpoch: 8}))
	add("draining", "attach again", "", "draining", open, says(wire.TypeDetach, wire.Detach{Reason: wire.DetachDraining}))
	add("truncated", "the reader was overtaken", "", "truncated", open, out(0, "he"), says(wire.TypeTruncated, wire.Truncated{LowWater: 4096}))
	add("error", "a failure after the status was sent", "", "error", open, fails(sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProcessLost, nil)))
	add("violation-no-open", "output before the open frame", "", "violation", out(0, hello))
	add("violation-second-open", "two open frames", "", "violation", open, open)
	add("violation-gap", "a byte is missing", "", "violation", open, out(1, "ello\n"))
	add("violation-out-after-end", "more after the end", "", "violation", open, out(0, hello), end(hello), out(6, "!"))
	add("violation-err-after-end", "likewise", "", "violation", open, errEnd, stderr(0, "w"))
	add("violation-other-offset", "an end at another place", "", "violation", open, out(0, hello), says(wire.TypeOutEnd, wire.OutEnd{Digest: digest([]byte(hello)), Offset: 7}))
	add("violation-other-digest", "an end of another output", "", "violation", open, out(0, hello), says(wire.TypeOutEnd, wire.OutEnd{Digest: digest(nil), Offset: 6}))
	add("violation-overlap-with-other-bytes", "what is cut is not compared: the digest is", "HEL", "violation", open, out(0, hello), end(hello))
	add("violation-two-exits", "one exit", "", "violation", open, exit, exit)
	add("violation-two-out-ends", "one end", "", "violation", open, end(""), end(""))
	add("violation-data", "a frame of another body", "", "violation", open, data(hello))
	return all
}

// frameScenarios are one frame of each type.
func frameScenarios() (all []Scenario) {
	add := func(name, about string, response bool, step func(*wire.Writer) error) {
		var b bytes.Buffer
		if err := step(wire.NewWriter(&b)); err != nil {
			panic("authorkit: " + err.Error())
		}
		all = append(all, Scenario{Kind: "frame", Name: name, Says: about, Hex: hex.EncodeToString(b.Bytes()), Frames: takeApart(b.Bytes(), response)})
	}
	add("01-call", "the call of a framed request", false, func(w *wire.Writer) error { return w.Call(fileCall()) })
	add("01-call-in-two", "a call may take several frames: they come first and are joined", false, func(w *wire.Writer) error {
		body := encode(fileCall())
		if err := w.Write(wire.Frame{Type: wire.TypeCall, Payload: body[:20]}); err != nil {
			return err
		}
		return w.Write(wire.Frame{Type: wire.TypeCall, Payload: body[20:]})
	})
	add("01-result", "the result of a framed response", true, result(wire.FileResult{Size: 6, Digest: digest([]byte(hello))}))
	add("02-data", "raw bytes", true, data("\x00\xff\r\n"))
	add("02-data-empty", "a data frame may be empty, though nobody needs to write it", true, func(w *wire.Writer) error { return w.Write(wire.Frame{Type: wire.TypeData}) })
	add("03-item", "one file of a batch", true, says(wire.TypeItem, wire.FileItem{Status: wire.ItemRefused, Reason: sandbox.RefusedTooLarge}))
	add("04-error", "a failure after the status was sent", true, fails(sandbox.OverLimit(sandbox.StreamStdout, 1<<20)))
	add("10-open", "the first frame of every attachment", true, says(wire.TypeOpen, opened()))
	add("11-out", "standard output at an offset", true, out(0, hello))
	add("11-out-highest", "the last byte that an offset can name", true, out(sandbox.MaxInteger-1, "x"))
	add("12-err", "standard error", true, stderr(0, "w\n"))
	add("13-out-end", "all of it", true, says(wire.TypeOutEnd, wire.OutEnd{Digest: digest([]byte(hello)), Offset: 6}))
	add("14-err-end", "likewise", true, says(wire.TypeErrEnd, wire.ErrEnd{Offset: 2}))
	add("15-window", "input that was taken, and credit", true, says(wire.TypeWindow, wire.Window{InputOffset: 6, InputCredit: 65536}))
	add("16-exit", "an exit by code", true, says(wire.TypeExit, wire.Exit(sandbox.Exited(0))))
	add("16-exit-signal", "an exit by signal", true, says(wire.TypeExit, wire.Exit(sandbox.Signaled("SIGKILL"))))
	add("17-detach", "the last frame of an attachment", true, says(wire.TypeDetach, wire.Detach{Reason: wire.DetachSuperseded}))
	add("18-truncated", "likewise, and of the process", true, says(wire.TypeTruncated, wire.Truncated{LowWater: 11611392}))
	add("1f-ping", "a heartbeat", true, (*wire.Writer).Ping)
	return all
}

// refusedFrames are inputs that no reader of frames may take.
func refusedFrames() (all []Scenario) {
	for _, c := range []struct{ name, says, hex string }{
		{"type-00", "no such type", "0000000000"}, {"type-05", "no such type", "0500000000"}, {"type-0f", "no such type", "0f00000000"},
		{"type-19", "no such type", "1900000000"}, {"type-1e", "no such type", "1e00000000"}, {"type-20", "no such type", "2000000000"},
		{"type-ff", "no such type", "ff00000000"},
		{"text-of-a-proxy", "a page instead of frames", hex.EncodeToString([]byte("<html>502</html>"))},
		{"one-byte-too-long", "1 MiB and one byte: refused by its head alone", "0200100001"},
		{"longest-length", "four GiB that nobody may allocate", "02ffffffff"},
		{"ping-with-bytes", "a ping says nothing", "1f0000000178"},
		{"out-without-bytes", "an offset and nothing", "11000000080000000000000000"},
		{"out-without-offset", "seven bytes are no offset", "1100000007" + "00000000000000"},
		{"err-empty", "nothing at all", "1200000000"},
		{"cut-in-the-type", "one byte of five", "02"},
		{"cut-in-the-length", "four bytes of five", "02000000"},
		{"cut-before-the-payload", "a head", "0200000003"},
		{"cut-in-the-payload", "two bytes of three", "02000000036162"},
		{"good-then-unknown", "what came before stands", "1f000000001e00000000"},
		{"good-then-cut", "likewise", "1f0000000011"},
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			panic("authorkit: " + err.Error())
		}
		s := Scenario{Kind: "refused-frame", Name: c.name, Says: c.says, Hex: c.hex, Frames: takeApart(data, true)}
		r := wire.NewReader(bytes.NewReader(data))
		for err == nil {
			_, err = r.Next()
		}
		var broken *wire.FrameError
		if !errors.As(err, &broken) {
			panic("authorkit: " + c.name + " is taken")
		}
		s.Reason = string(broken.Reason)
		all = append(all, s)
	}
	all = append(all, Scenario{Kind: "refused-frame", Name: "out-at-the-end", Says: "its last byte would have no offset",
		Hex: "1100000009" + "001fffffffffffff" + "78", Reason: string(wire.BadPayload)})
	return all
}
