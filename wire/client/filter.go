package client

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// filter makes one stream out of any number of attachments to it: whatever a
// provider sends again is dropped by its offset, whatever it leaves out is a
// violation, and the end counts only with the digest of everything.
//
// It sees frames only and no connection, so that what it does is decided by
// the frames alone.
type filter struct {
	first   wire.Opened // as open_process answered
	next    int64       // the first byte of standard output that has not come
	sum     hash.Hash   // of all before it
	errNext int64
	lost    int64 // bytes of standard error that never came

	outEnd *wire.OutEnd
	errEnd *wire.ErrEnd
	exit   *sandbox.Exit

	// Of the present attachment: each control frame comes at most once in it.
	opened, sawOut, sawErr, sawExit bool
	progress                        bool // it gave something that was not known
}

func newFilter(first wire.Opened) *filter { return &filter{first: first, sum: sha256.New()} }

// attach begins another attachment.
func (f *filter) attach() {
	f.opened, f.sawOut, f.sawErr, f.sawExit, f.progress = false, false, false, false, false
}

// complete says that all is known: both ends and the exit.
func (f *filter) complete() bool { return f.outEnd != nil && f.errEnd != nil && f.exit != nil }

// event is what one frame adds. Its bytes lie in the frame.
type event struct {
	out, err []byte
	window   *wire.Window
	outEnd   bool
	errEnd   bool
	exit     *sandbox.Exit
	detach   *wire.Detach
	// truncated and refused end the attachment.
	truncated *wire.Truncated
	refused   error
}

// take takes the next frame of the attachment.
// Errors: *ProtocolError.
func (f *filter) take(frame wire.Frame) (e event, err error) {
	if !f.opened && frame.Type != wire.TypeOpen && frame.Type != wire.TypeError {
		return e, stream("frame", "open first", "type "+strconv.Itoa(int(frame.Type)))
	}
	switch frame.Type {
	case wire.TypeOpen:
		e.window, err = f.open(frame)
	case wire.TypeOut:
		e.out, err = f.output(frame)
	case wire.TypeErr:
		e.err, err = f.diagnostics(frame)
	case wire.TypeOutEnd:
		e.outEnd, err = f.endOutput(frame)
	case wire.TypeErrEnd:
		e.errEnd, err = f.endDiagnostics(frame)
	case wire.TypeWindow:
		e.window, err = message[wire.Window](frame)
	case wire.TypeExit:
		e.exit, err = f.exited(frame)
	case wire.TypeDetach:
		e.detach, err = message[wire.Detach](frame)
	case wire.TypeTruncated:
		e.truncated, err = message[wire.Truncated](frame)
	case wire.TypeError:
		e.refused, err = said(wire.ProcessStream, frame.Payload)
	case wire.TypePing:
	default:
		err = violation(wire.ProcessStream, unexpected(frame))
	}
	return e, err
}

func stream(field, expected, got string) *ProtocolError {
	return broken(wire.ProcessStream, field, expected, got)
}

func message[M wire.Message](f wire.Frame) (*M, error) {
	m, err := wire.Decode[M](f.Payload)
	if err != nil {
		return nil, violation(wire.ProcessStream, err)
	}
	return &m, nil
}

func (f *filter) open(frame wire.Frame) (*wire.Window, error) {
	o, err := message[wire.Opened](frame)
	switch {
	case err != nil:
		return nil, err
	case f.opened:
		return nil, stream("frame", "one open", "a second")
	case o.ProcessID != f.first.ProcessID:
		return nil, stream("process_id", string(f.first.ProcessID), string(o.ProcessID))
	case o.Evidence != f.first.Evidence:
		return nil, stream("evidence", "the same at every attachment", "another")
	}
	f.opened = true
	return &wire.Window{InputOffset: o.InputOffset, InputCredit: o.InputCredit}, nil
}

func (f *filter) output(frame wire.Frame) ([]byte, error) {
	offset, data, err := frame.Output()
	if err != nil {
		return nil, violation(wire.ProcessStream, err)
	}
	end := offset + int64(len(data))
	switch {
	case f.sawOut:
		return nil, stream("frame", "no out after out_end", "one")
	case offset > f.next:
		return nil, stream("offset", "at most "+number(f.next)+": nothing is left out", number(offset))
	case end <= f.next:
		return nil, nil
	case f.outEnd != nil:
		return nil, stream("offset", "an end at "+number(f.outEnd.Offset)+", as announced", number(end))
	}
	data = data[f.next-offset:]
	f.sum.Write(data)
	f.next, f.progress = end, true
	return data, nil
}

func (f *filter) diagnostics(frame wire.Frame) ([]byte, error) {
	offset, data, err := frame.Output()
	if err != nil {
		return nil, violation(wire.ProcessStream, err)
	}
	end := offset + int64(len(data))
	switch {
	case f.sawErr:
		return nil, stream("frame", "no err after err_end", "one")
	case end <= f.errNext:
		return nil, nil
	case f.errEnd != nil && end > f.errEnd.Offset:
		return nil, stream("offset", "an end of standard error at "+number(f.errEnd.Offset)+", as announced", number(end))
	case offset > f.errNext:
		f.lost += offset - f.errNext // best effort: it says so, and goes on
	default:
		data = data[f.errNext-offset:]
	}
	f.errNext, f.progress = end, true
	return data, nil
}

func (f *filter) endOutput(frame wire.Frame) (bool, error) {
	o, err := message[wire.OutEnd](frame)
	switch {
	case err != nil:
		return false, err
	case f.sawOut:
		return false, stream("frame", "one out_end", "a second")
	case f.outEnd != nil && *f.outEnd != *o:
		return false, stream("out_end", "the same at every attachment", "another")
	case o.Offset != f.next:
		return false, stream("out_end.offset", number(f.next)+", which came", number(o.Offset))
	}
	if got := sandbox.Digest("sha256:" + hex.EncodeToString(f.sum.Sum(nil))); got != o.Digest {
		return false, stream("out_end.digest", string(got)+", of what came", string(o.Digest))
	}
	news := f.outEnd == nil
	f.outEnd, f.sawOut = o, true
	f.progress = f.progress || news
	return news, nil
}

func (f *filter) endDiagnostics(frame wire.Frame) (bool, error) {
	e, err := message[wire.ErrEnd](frame)
	switch {
	case err != nil:
		return false, err
	case f.sawErr:
		return false, stream("frame", "one err_end", "a second")
	case f.errEnd != nil && *f.errEnd != *e:
		return false, stream("err_end", "the same at every attachment", "another")
	case e.Offset < f.errNext:
		return false, stream("err_end.offset", "at least "+number(f.errNext)+", which came", number(e.Offset))
	}
	f.lost += e.Offset - f.errNext
	news := f.errEnd == nil
	f.errEnd, f.errNext, f.sawErr = e, e.Offset, true
	f.progress = f.progress || news
	return news, nil
}

func (f *filter) exited(frame wire.Frame) (*sandbox.Exit, error) {
	x, err := message[wire.Exit](frame)
	if err != nil {
		return nil, err
	}
	e := sandbox.Exit(*x)
	switch {
	case f.sawExit:
		return nil, stream("frame", "one exit", "a second")
	case f.exit != nil && !sameExit(*f.exit, e):
		return nil, stream("exit", spell(*f.exit)+", as before", spell(e))
	}
	f.sawExit = true
	if f.exit != nil {
		return nil, nil
	}
	f.exit, f.progress = &e, true
	return &e, nil
}

func sameExit(a, b sandbox.Exit) bool {
	if a.Signal != b.Signal || (a.ExitCode == nil) != (b.ExitCode == nil) {
		return false
	}
	return a.ExitCode == nil || *a.ExitCode == *b.ExitCode
}

func spell(e sandbox.Exit) string {
	if e.ExitCode != nil {
		return "exit_code " + number(*e.ExitCode)
	}
	return e.Signal
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
