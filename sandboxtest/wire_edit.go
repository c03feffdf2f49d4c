package sandboxtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/checkfu/checkfu/wire"
)

// changed lets change alter each request before the server sees it, and say
// whether that was the fault.
func changed(change func(*http.Request) bool) func(http.Handler, *Env) http.Handler {
	return func(h http.Handler, env *Env) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if change(r) {
				env.Fire()
			}
			h.ServeHTTP(w, r)
		})
	}
}

// bodyOf reads the body of a request and lets the server read it again.
func bodyOf(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body) // half of one is refused behind us
	setBody(r, body)
	return body
}

func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// repaired makes right what a request to one of endpoints has wrong, which is
// what a lenient reader does. Of a framed body that is its first frame.
func repaired(repair func(string) string, endpoints ...wire.Endpoint) func(http.Handler, *Env) http.Handler {
	return changed(func(r *http.Request) bool {
		e, _ := wire.ParsePath(r.URL.Path)
		if !slices.Contains(endpoints, e) {
			return false
		}
		body := bodyOf(r)
		if t, _ := e.Traits(); !t.FramedRequest {
			made := repair(string(body))
			setBody(r, []byte(made))
			return made != string(body)
		}
		frames := looseFrames(body)
		if len(frames) == 0 {
			return false
		}
		call := string(frames[0].payload)
		made := repair(call)
		frames[0] = looseFrame{frames[0].kind, uint32(len(made)), []byte(made)}
		if made != call {
			setBody(r, joined(frames))
		}
		return made != call
	})
}

// looseFrame is a frame as it came, with the length that it says.
type looseFrame struct {
	kind    wire.Type
	length  uint32
	payload []byte
}

func looseFrames(body []byte) (all []looseFrame) {
	for len(body) >= 5 {
		f := looseFrame{kind: wire.Type(body[0]), length: binary.BigEndian.Uint32(body[1:])}
		n := min(int(f.length), len(body)-5)
		f.payload, body = body[5:5+n], body[5+n:]
		all = append(all, f)
	}
	return all
}

func joined(frames []looseFrame) (body []byte) {
	for _, f := range frames {
		body = append(binary.BigEndian.AppendUint32(append(body, byte(f.kind)), f.length), f.payload...)
	}
	return body
}

// reframed changes the frames of an execute.
func reframed(change func([]looseFrame) ([]looseFrame, bool)) func(http.Handler, *Env) http.Handler {
	return changed(func(r *http.Request) bool {
		if r.URL.Path != wire.Execute.Path() {
			return false
		}
		frames, fault := change(looseFrames(bodyOf(r)))
		if fault {
			setBody(r, joined(frames))
		}
		return fault
	})
}

// reply is an answer before it is sent.
type reply struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header is the answer's.
func (t *reply) Header() http.Header { return t.header }

// WriteHeader notes the status.
func (t *reply) WriteHeader(status int) { t.status = status }

// Write keeps a part of the body.
func (t *reply) Write(b []byte) (int, error) { return t.body.Write(b) }

// say makes text the body.
func (t *reply) say(text string) {
	t.body.Reset()
	t.body.WriteString(text)
}

// instead replaces old in the body and says whether it was there.
func (t *reply) instead(old, text string) bool {
	made := bytes.ReplaceAll(t.body.Bytes(), []byte(old), []byte(text))
	was := !bytes.Equal(made, t.body.Bytes())
	t.say(string(made))
	return was
}

// send sends the answer as it is now.
func (t *reply) send(w http.ResponseWriter) {
	for name, values := range t.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(t.body.Len()))
	w.WriteHeader(t.status)
	_, _ = w.Write(t.body.Bytes()) // who has gone, has gone
}

// listen lets the server answer into memory.
func listen(h http.Handler, r *http.Request) *reply {
	t := &reply{status: http.StatusOK, header: http.Header{}}
	h.ServeHTTP(t, r)
	return t
}

// retold lets change alter each answer but a stream's, and say whether that was
// the fault.
func retold(change func(*http.Request, *reply) bool) func(http.Handler, *Env) http.Handler {
	return func(h http.Handler, env *Env) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == wire.ProcessStream.Path() {
				h.ServeHTTP(w, r)
				return
			}
			t := listen(h, r)
			if change(r, t) {
				env.Fire()
			}
			t.send(w)
		})
	}
}

// knowing is changed with the token of the provider: the first request that a
// server gets is from somebody who has it.
func knowing(change func(token string, r *http.Request) bool) func(http.Handler, *Env) http.Handler {
	return func(h http.Handler, env *Env) http.Handler {
		var once sync.Once
		token := ""
		return changed(func(r *http.Request) bool {
			once.Do(func() { token = r.Header.Get(wire.HeaderAuthorization) })
			return change(token, r)
		})(h, env)
	}
}

// byHand says that a request was written by a probe: a client names its time.
func byHand(r *http.Request) bool { return r.Header.Get(wire.HeaderDeadline) == "" }
