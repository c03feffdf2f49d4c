package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// stream is one attachment that is read by hand.
type stream struct {
	*wire.Reader
	close func()
	limit func(time.Duration)
}

// beat is the heartbeat that probes ask for: what does not come is missed after
// some of them.
const beat = 1500

// ask attaches a reader. What m leaves out is as it should be. Where the
// attachment was refused, the answer says how, and there is no stream.
func (o *own) ask(m wire.StreamRequest) (stream, answer) {
	m.InstanceID = o.id
	if m.AttachID == "" {
		m.AttachID = wire.NewAttachID()
	}
	if m.HeartbeatMS == 0 {
		m.HeartbeatMS = beat
	}
	response, c, err := begin(o.t.Context(), o.t, o.request(wire.ProcessStream, m))
	o.t.Need("attach", err)
	o.t.Defer(func() { c.Close() })
	a := answer{status: response.StatusCode, header: response.Header}
	if a.status != 200 {
		a.body, _ = io.ReadAll(io.LimitReader(response.Body, wire.MaxErrorBytes))
		c.Close()
		return stream{}, a
	}
	s := stream{wire.NewReader(response.Body), func() { c.Close() }, func(d time.Duration) { _ = c.SetReadDeadline(time.Now().Add(d)) }}
	s.limit(patience)
	return s, a
}

// read attaches a reader that is not refused.
func (o *own) read(m wire.StreamRequest) stream {
	s, a := o.ask(m)
	if s.Reader == nil {
		o.t.Fatal("attach", "a stream", a.failure())
	}
	return s
}

// attach follows a process from cursor on.
func (o *own) attach(p wire.Opened, cursor int64) stream {
	return o.read(wire.StreamRequest{ProcessID: p.ProcessID, Cursor: cursor})
}

// until reads frames up to one that is wanted, and what was written by then.
func (s stream) until(want func(wire.Frame) bool) (f wire.Frame, out []byte, err error) {
	for {
		if f, err = s.Next(); err != nil {
			return f, out, err
		}
		if f.Type == wire.TypeOut {
			_, data, err := f.Output()
			if err != nil {
				return f, out, err
			}
			out = append(out, data...)
		}
		if want(f) {
			return f, out, nil
		}
	}
}

// errMissed is what did not come.
var errMissed = errors.New("nothing but pings for " + quick.String())

// soon is until, for what must come without anything that it waits for. Ten
// pings alone are no time: a provider may give them as often as it likes, and a
// reader that was held up finds many at once.
func (s stream) soon(want func(wire.Frame) bool) (f wire.Frame, out []byte, err error) {
	pings, began, missed := 0, time.Now(), false
	f, out, err = s.until(func(f wire.Frame) bool {
		if pings++; f.Type != wire.TypePing {
			pings, began = 0, time.Now()
		}
		missed = pings >= 10 && time.Since(began) > quick
		return missed || want(f)
	})
	if missed {
		err = errMissed
	}
	return f, out, err
}

// says reads up to text, which is to be all that is written until then.
func (s stream) says(text string) (string, error) {
	n := 0
	_, out, err := s.soon(func(f wire.Frame) bool {
		if f.Type == wire.TypeOut {
			n += len(f.Payload) - 8
		}
		return n >= len(text)
	})
	return string(out), err
}

func is(want wire.Type) func(wire.Frame) bool {
	return func(f wire.Frame) bool { return f.Type == want }
}

// heard is all that one attachment said.
type heard struct {
	frames []wire.Frame
	err    error // io.EOF for an end of the body
}

// rest reads a stream that ends by itself, soon.
func (s stream) rest() heard {
	var h heard
	_, _, h.err = s.soon(func(f wire.Frame) bool {
		f.Payload = bytes.Clone(f.Payload)
		h.frames = append(h.frames, f)
		return false
	})
	return h
}

// output joins what was written. from is where it begins, -1 if there is none;
// whole says that nothing between was left out.
func (h heard) output() (from int64, data []byte, whole bool) {
	from, whole = -1, true
	for _, f := range h.of(wire.TypeOut) {
		offset, part, err := f.Output()
		if from < 0 {
			from = offset
		}
		whole = whole && err == nil && offset == from+int64(len(data))
		data = append(data, part...)
	}
	return from, data, whole
}

// of are the frames of one type.
func (h heard) of(t wire.Type) (all []wire.Frame) {
	for _, f := range h.frames {
		if f.Type == t {
			all = append(all, f)
		}
	}
	return all
}

// detached is the reason of the last frame, "" where it is another one.
func (h heard) detached() wire.DetachReason {
	if n := len(h.frames); n > 0 && h.frames[n-1].Type == wire.TypeDetach && h.err == io.EOF {
		d, _ := wire.Decode[wire.Detach](h.frames[n-1].Payload)
		return d.Reason
	}
	return ""
}

// String lists the types, once where they repeat, and the end.
func (h heard) String() string {
	var types []string
	for _, f := range h.frames {
		types = append(types, "0x"+strconv.FormatInt(int64(f.Type), 16))
	}
	s := "frames"
	for _, t := range slices.Compact(types) {
		s += " " + t
	}
	if h.err != nil {
		s += ", then " + h.err.Error()
	}
	return s
}

// input sends data that begins at offset, and the half-close behind it.
func (o *own) input(p wire.Opened, offset int64, data string, end bool) answer {
	q := o.request(wire.ProcessInput, wire.InputCall{InstanceID: o.id, ProcessID: p.ProcessID, Offset: offset, End: end})
	q.data = []byte(data)
	return send(o.t, q)
}

// feed is input that is to be taken.
func (o *own) feed(p wire.Opened, offset int64, data string, end bool) wire.Window {
	return value[wire.Window](o.t, "input", o.input(p, offset, data, end))
}

// wait is one process_wait.
func (o *own) wait(p wire.Opened, ms int64) answer {
	return send(o.t, o.request(wire.ProcessWait, wire.WaitRequest{InstanceID: o.id, ProcessID: p.ProcessID, WaitMS: ms}))
}

// waited is process_wait until there is an exit, or it is refused: a hold may be
// as short as the provider likes, so what is bounded is the time. One that holds
// nothing is asked for some ten seconds.
func (o *own) waited(p wire.Opened, ms int64) answer {
	for began, n := time.Now(), 1; ; n++ {
		a := o.wait(p, ms)
		w, err := wire.Decode[wire.Waited](a.body)
		if a.failure() != nil || err != nil || !w.Running || n == 500 || time.Since(began) > patience {
			return a
		}
		breathe(o.t.Context(), pause)
	}
}

// exit waits for an exit. It is the zero value where none came.
func (o *own) exit(p wire.Opened) sandbox.Exit {
	if w := value[wire.Waited](o.t, "wait", o.waited(p, 5000)); w.Exit != nil {
		return *w.Exit
	}
	return sandbox.Exit{}
}

func exited(e sandbox.Exit, code int64) bool { return e.ExitCode != nil && *e.ExitCode == code }

// exitText spells an exit for a finding.
func exitText(e sandbox.Exit) string {
	switch {
	case e.ExitCode != nil:
		return "code " + strconv.FormatInt(*e.ExitCode, 10)
	case e.Signal != "":
		return e.Signal
	}
	return "no exit"
}

// killed says that a process was ended from outside: by name, or as a machine
// that knows only codes says it.
func killed(e sandbox.Exit) bool { return e.Signal != "" || e.ExitCode != nil && *e.ExitCode > 128 }

func (o *own) signal(p wire.Opened, s sandbox.ControlSignal, id wire.OperationID) answer {
	q := o.request(wire.ProcessSignal, wire.SignalRequest{InstanceID: o.id, ProcessID: p.ProcessID, Signal: s})
	q.operation = id
	return send(o.t, q)
}

// take destroys a process.
func (o *own) take(id wire.ProcessID) answer {
	return send(o.t, o.request(wire.ProcessDestroy, wire.ProcessRequest{InstanceID: o.id, ProcessID: id}))
}

// process is a live process that runs a script.
func process(script string) sandbox.ProcessRequest {
	c := probe.Command(script)
	return sandbox.ProcessRequest{Executable: c.Executable, Arguments: c.Arguments, WorkingDirectory: c.WorkingDirectory, Environment: c.Environment}
}

// opening is the request that opens script as a live process.
func (o *own) opening(id wire.ProcessID, script string) request {
	return o.request(wire.OpenProcess, wire.OpenProcessRequest{InstanceID: o.id, ProcessID: id, Process: process(script)})
}
