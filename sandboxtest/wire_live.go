package sandboxtest

import (
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// lived is what a saboteur has seen of one live process.
type lived struct {
	opened   bool
	open     []byte // the payload of the last open frame
	low      int64  // its low-water mark
	attached int
	ids      map[wire.AttachID]bool
	sent     int64 // output that was on its way to any reader
	unread   bool  // a reader has output and not yet the end
	broken   bool  // the last reader's stream has no last frame
	exit     *sandbox.Exit
	refused  bool // as truncated
	doomed   bool // something was done to it that it does not know of
	ended    bool // the half-close was taken
	taken    int64
	credit   int64
	inputs   int64
	gone     bool // destroyed by name
}

// liveCall is one request about a live process on its way to the server. What
// it is of is set, the rest is zero.
type liveCall struct {
	wireCall
	env     *Env
	process *lived
	stream  wire.StreamRequest
	input   wire.InputCall
	data    []byte // of input
	wait    wire.WaitRequest
	// frame changes each frame of a stream; false breaks the connection.
	frame func(f wire.Frame) ([]wire.Frame, bool)
	// after changes an answer that is no stream.
	after func(a *reply)
}

var processID = regexp.MustCompile(`"process_id":"(pr_[0-9a-f]{32})"`)

// living makes a saboteur of a rule that sees each call about a live process.
// The call goes on where the rule says true. Nothing of the rule runs beside
// anything else of it.
func living(rule func(c *liveCall) bool) func(http.Handler, *Env) http.Handler {
	return func(h http.Handler, env *Env) http.Handler {
		var mu sync.Mutex
		all := map[string]*lived{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := &liveCall{wireCall: wireCall{w: w, r: r}, env: env}
			c.endpoint, _ = wire.ParsePath(r.URL.Path)
			// What is too long is refused before it has come, by the server itself.
			if c.endpoint != wire.OpenProcess && !strings.HasPrefix(string(c.endpoint), "process_") || r.ContentLength > wire.MaxInputRequestBytes {
				h.ServeHTTP(w, r)
				return
			}
			body := bodyOf(r)
			found := processID.FindSubmatch(body)
			if found == nil || !c.read(body) {
				h.ServeHTTP(w, r)
				return
			}
			mu.Lock()
			if c.process = all[string(found[1])]; c.process == nil {
				c.process = &lived{ids: map[wire.AttachID]bool{}}
				all[string(found[1])] = c.process
			}
			on := rule(c)
			mu.Unlock()
			switch {
			case !on:
			case c.endpoint == wire.ProcessStream:
				h.ServeHTTP(&framing{ResponseWriter: w, c: c, mu: &mu, status: http.StatusOK}, r)
			default:
				a := listen(h, r)
				mu.Lock()
				c.note(a)
				if c.after != nil {
					c.after(a)
				}
				mu.Unlock()
				a.send(w)
			}
		})
	}
}

// read reads what the call says.
func (c *liveCall) read(body []byte) bool {
	var err error
	switch c.endpoint {
	case wire.ProcessStream:
		c.stream, err = wire.Decode[wire.StreamRequest](body)
	case wire.ProcessWait:
		c.wait, err = wire.Decode[wire.WaitRequest](body)
	case wire.ProcessInput:
		frames := wire.NewReader(bytes.NewReader(body))
		if c.input, err = wire.ReadCall[wire.InputCall](frames); err == nil {
			c.data, err = wire.ReadData(frames, 0, wire.MaxInputBytes)
		}
	}
	return err == nil
}

// rewrite makes the request what c says now.
func (c *liveCall) rewrite() {
	var body []byte
	var err error
	switch c.endpoint {
	case wire.ProcessStream:
		body, err = wire.Encode(c.stream)
	case wire.ProcessInput:
		var out bytes.Buffer
		frames := wire.NewWriter(&out)
		if err = frames.Call(c.input); err == nil && len(c.data) > 0 {
			err = frames.Write(wire.Frame{Type: wire.TypeData, Payload: c.data})
		}
		body = out.Bytes()
	}
	if err != nil { // a fault of the saboteur's file
		panic(err)
	}
	setBody(c.r, body)
}

// note keeps what an answer says.
func (c *liveCall) note(a *reply) {
	p := c.process
	if a.status != http.StatusOK {
		return
	}
	switch c.endpoint {
	case wire.OpenProcess:
		p.opened = true
	case wire.ProcessDestroy:
		p.gone = true
	case wire.ProcessWait:
		if w, err := wire.Decode[wire.Waited](a.body.Bytes()); err == nil && w.Exit != nil {
			p.exit = w.Exit
		}
	case wire.ProcessInput:
		if w, err := wire.Decode[wire.Window](a.body.Bytes()); err == nil {
			p.inputs++
			p.taken, p.credit, p.ended = w.InputOffset, w.InputCredit, p.ended || c.input.End
		}
	}
}

// become makes the answer m.
func (t *reply) become(m wire.Message) {
	body, err := wire.Encode(m)
	if err != nil {
		panic(err)
	}
	t.status = http.StatusOK
	t.say(string(body))
}

// wireLiveFaults are wrong in a live process as it is reached over a wire.
func wireLiveFaults() []Saboteur {
	return slices.Concat(wireStreamFaults(), wireWindowFaults(), wireInputFaults())
}

// framing takes a stream apart and puts it together as a saboteur wants it.
type framing struct {
	http.ResponseWriter
	c      *liveCall
	mu     *sync.Mutex
	status int
	held   []byte
	broken bool
}

// Unwrap gives net/http what lies under it.
func (f *framing) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader notes the status: only a 200 is a stream.
func (f *framing) WriteHeader(status int) {
	f.mu.Lock()
	p := f.c.process
	switch f.status = status; status {
	case http.StatusOK:
		p.attached++
		p.ids[f.c.stream.AttachID] = true
		p.broken = true
	case http.StatusGone:
		p.refused = true
	}
	f.mu.Unlock()
	f.ResponseWriter.WriteHeader(status)
}

var errBroken = errors.New("broken by the saboteur")

// Write passes whole frames.
func (f *framing) Write(b []byte) (int, error) {
	if f.status != http.StatusOK {
		return f.ResponseWriter.Write(b)
	}
	if f.broken {
		return 0, errBroken
	}
	f.held = append(f.held, b...)
	var out []byte
	f.mu.Lock()
	for !f.broken {
		all := looseFrames(f.held)
		if len(all) == 0 || len(all[0].payload) < int(all[0].length) {
			break
		}
		f.held = f.held[5+len(all[0].payload):]
		frame := wire.Frame{Type: all[0].kind, Payload: all[0].payload}
		f.note(frame)
		made, on := []wire.Frame{frame}, true
		if f.c.frame != nil {
			made, on = f.c.frame(frame)
		}
		for _, m := range made {
			out = wire.AppendFrame(out, m)
		}
		f.broken = !on
	}
	f.mu.Unlock()
	if len(out) > 0 {
		if _, err := f.ResponseWriter.Write(out); err != nil {
			return 0, err
		}
	}
	if f.broken {
		_ = http.NewResponseController(f.ResponseWriter).Flush() // what was said before it breaks
		return 0, errBroken
	}
	return len(b), nil
}

// note keeps what a frame says. The caller holds mu.
func (f *framing) note(frame wire.Frame) {
	p := f.c.process
	switch frame.Type {
	case wire.TypeOpen:
		p.open = bytes.Clone(frame.Payload)
		if o, err := wire.Decode[wire.Opened](frame.Payload); err == nil {
			p.low = o.LowWater
		}
	case wire.TypeOut:
		if offset, data, err := frame.Output(); err == nil {
			p.sent = max(p.sent, offset+int64(len(data)))
			p.unread = true
		}
	case wire.TypeOutEnd, wire.TypeExit:
		p.unread, p.broken = false, false
	case wire.TypeTruncated:
		p.broken = false
	case wire.TypeDetach: // what was superseded may have been broken before
		p.broken = p.broken && bytes.Contains(frame.Payload, []byte(wire.DetachSuperseded))
	}
}

// pretend begins a stream that no server would give, and ends it.
func (c *liveCall) pretend(frames ...wire.Frame) {
	var body []byte
	for _, f := range append([]wire.Frame{{Type: wire.TypeOpen, Payload: c.process.open}}, frames...) {
		body = wire.AppendFrame(body, f)
	}
	h := c.w.Header()
	h.Set("Content-Type", wire.MediaFrames)
	h.Set(wire.HeaderWire, wire.Revision)
	h.Set(wire.HeaderBoot, string(wire.NewBootID()))
	h.Set(wire.HeaderCapabilities, "sha256:"+strings.Repeat("0", 64))
	_, _ = c.w.Write(body)
}

// outFrame is an out frame.
func outFrame(offset int64, data string) wire.Frame {
	f := wire.AppendOutput(nil, wire.TypeOut, offset, []byte(data))
	return wire.Frame{Type: wire.TypeOut, Payload: f[5:]}
}

// jsonFrame is a frame of a message.
func jsonFrame(t wire.Type, m wire.Message) wire.Frame {
	body, err := wire.Encode(m)
	if err != nil {
		panic(err)
	}
	return wire.Frame{Type: t, Payload: body}
}

// pass and drop are what becomes of a frame.
func pass(f wire.Frame) ([]wire.Frame, bool) { return []wire.Frame{f}, true }
func drop(wire.Frame) ([]wire.Frame, bool)   { return nil, true }
