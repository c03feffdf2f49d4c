package guest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStartRequest(t *testing.T) {
	for _, r := range []startRequest{
		{argv: []string{"a"}, dir: "/"},
		{null: [3]bool{true, false, true}, cgroup: true, argv: []string{"a", "", "b c"}, env: []string{"A=\n", ""}, dir: "/x y"},
	} {
		b, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseStart(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.env) == 0 {
			got.env = nil
		}
		if d := cmp.Diff(&r, got, cmp.AllowUnexported(startRequest{})); d != "" {
			t.Error(d)
		}
		for n := range b {
			if _, err := parseStart(b[:n]); err == nil {
				t.Errorf("the first %d of %d bytes were accepted", n, len(b))
			}
		}
		if _, err := parseStart(append(b, 0)); err == nil {
			t.Error("bytes after the end were accepted")
		}
	}
}

func TestRequestRefusals(t *testing.T) {
	for field, r := range map[string]startRequest{
		"argv": {dir: "/"},
		"dir":  {argv: []string{"a"}, dir: "x"},
		"env":  {argv: []string{"a"}, dir: "/", env: []string{"A\x00"}},
	} {
		_, err := r.encode()
		if bad, ok := errors.AsType[*WireError](err); !ok || bad.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	big := startRequest{argv: []string{"a", strings.Repeat("x", MaxMessage)}, dir: "/"}
	if _, err := big.encode(); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("got %v", err)
	}
	// A count that would make a huge list out of a few bytes.
	huge := []byte{0, 0, 1, 0, 0, 0, '/', 0xff, 0xff, 0xff, 0x7f}
	if _, err := parseStart(huge); err == nil {
		t.Error("a huge count was accepted")
	}
}

func TestHeaderRefusals(t *testing.T) {
	good := header{size: 8, kind: kindStart, files: 4, command: 7}
	if got, err := parseHeader(good.append(nil), MaxMessage); err != nil || got != good {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"short":       good.append(nil)[:11],
		"too large":   header{size: MaxMessage + 1, kind: kindStart}.append(nil),
		"reserved":    {0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0},
		"five files":  header{kind: kindStart, files: 5}.append(nil),
		"signal file": header{kind: kindSignal, files: 1}.append(nil),
	} {
		if h, err := parseHeader(b, MaxMessage); err == nil {
			t.Errorf("%s: accepted as %+v", name, h)
		}
	}
}

// TestClientRefuses feeds a Client what no init of ours would say.
func TestClientRefuses(t *testing.T) {
	hello := message(kindHello, 0, 0, []byte{version})
	for name, said := range map[string][]byte{
		"nothing":                 {},
		"noise":                   []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"another version":         message(kindHello, 0, 0, []byte{version + 1}),
		"hello twice":             append(bytes.Clone(hello), hello...),
		"started before hello":    message(kindStarted, 1, 0, nil),
		"exit of nothing":         append(bytes.Clone(hello), message(kindExited, 9, 0, []byte{0, 0})...),
		"exit before start":       append(bytes.Clone(hello), message(kindExited, 1, 0, []byte{0, 0})...),
		"started twice":           append(bytes.Clone(hello), append(message(kindStarted, 1, 0, nil), message(kindStarted, 1, 0, nil)...)...),
		"code and signal":         append(bytes.Clone(hello), append(message(kindStarted, 1, 0, nil), message(kindExited, 1, 0, []byte{1, 9})...)...),
		"signal 65":               append(bytes.Clone(hello), append(message(kindStarted, 1, 0, nil), message(kindExited, 1, 0, []byte{0, 65})...)...),
		"exit twice":              append(bytes.Clone(hello), append(message(kindStarted, 1, 0, nil), append(message(kindExited, 1, 0, []byte{1, 0}), message(kindExited, 1, 0, []byte{2, 0})...)...)...),
		"ack of nothing":          append(bytes.Clone(hello), message(kindSignalled, 1, 0, nil)...),
		"a request":               append(bytes.Clone(hello), message(kindSignal, 1, 0, []byte{9})...),
		"failed without an errno": append(bytes.Clone(hello), message(kindFailed, 1, 0, []byte{0, 0, 0, 0, 0, 0, 0, 0})...),
		"a huge answer":           append(bytes.Clone(hello), header{size: maxAnswer + 1, kind: kindFailed, command: 1}.append(nil)...),
	} {
		t.Run(name, func(t *testing.T) {
			c, theirs, err := Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			asked := make(chan error, 1)
			go func() {
				p, err := c.Start(t.Context(), Start{Argv: []string{"a"}, Dir: "/"})
				if err == nil {
					_, err = p.Wait(t.Context())
				}
				asked <- err
			}()
			// The request is on its way before anything is answered.
			if _, err := theirs.Read(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
			theirs.Write(said)
			theirs.Close()
			select {
			case <-c.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("the client went on")
			}
			if err := c.Err(); err == nil {
				t.Error("no reason")
			}
			// The one truthful prefix may have been taken as an exit.
			if err := <-asked; err == nil && name != "exit twice" {
				t.Error("an answer was made up")
			}
		})
	}
}

func FuzzParseStart(f *testing.F) {
	r := startRequest{null: [3]bool{true}, argv: []string{"a", "b"}, env: []string{"A=b"}, dir: "/"}
	b, _ := r.encode()
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseStart(body)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("%x became %x, %v", body, again, err)
		}
	})
}

func FuzzParseAnswers(f *testing.F) {
	f.Add((&StartFailure{Path: "/x", Errno: syscall.ENOENT}).encode())
	f.Add(Exit{Signal: 9}.encode())
	f.Add(header{size: 2, kind: kindExited, command: 1}.append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		if e, err := parseFailure(body); err == nil && len(e.Path) <= maxPath && !bytes.Equal(e.encode(), body) {
			t.Fatalf("failure %+v from %x", e, body)
		}
		if e, err := parseExit(body); err == nil && !bytes.Equal(e.encode(), body) {
			t.Fatalf("exit %+v from %x", e, body)
		}
		if h, err := parseHeader(body, maxAnswer); err == nil && !bytes.Equal(h.append(nil), body) {
			t.Fatalf("header %+v from %x", h, body)
		}
	})
}

// FuzzClient has a machine say anything at all: the client must end with a
// reason, and invent no exit for a command that was never answered.
func FuzzClient(f *testing.F) {
	hello := message(kindHello, 0, 0, []byte{version})
	f.Add(hello)
	f.Add(append(bytes.Clone(hello), message(kindStarted, 1, 0, nil)...))
	f.Fuzz(func(t *testing.T, said []byte) {
		c, theirs, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p := &Command{client: c, name: 1, answer: make(chan struct{}), ended: make(chan struct{})}
		c.mu.Lock()
		c.commands[1] = p
		c.mu.Unlock()
		go func(w *os.File) {
			w.Write(said)
			w.Close()
		}(theirs)
		select {
		case <-c.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the client never ended")
		}
		if c.Err() == nil || isClosed(p.ended) && !isClosed(p.answer) {
			t.Fatal("an exit without a start")
		}
	})
}
