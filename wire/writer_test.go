package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// TestWriter_AgreesWithBody: what a Writer writes as a framed request is what a
// Body is, also where the call and the data take several frames.
func TestWriter_AgreesWithBody(t *testing.T) {
	c := ExecuteCall{InstanceID: "i", Command: command}
	c.Command.Arguments = make([]string, sandbox.MaxArguments)
	for i := range c.Command.Arguments {
		c.Command.Arguments[i] = strings.Repeat("x", 8000)
	}
	c.Command.Stdin = []byte("never in the JSON")
	data := bytes.Repeat([]byte("0123456789"), MaxFrameBytes/5)
	var b bytes.Buffer
	w := NewWriter(&b)
	if err := errors.Join(w.Call(c), w.Data(data), w.Data(nil)); err != nil {
		t.Fatal(err)
	}
	body, err := NewBody(c, data)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(body.Reader())
	if err != nil || !bytes.Equal(raw, b.Bytes()) || RequestDigest(b.Bytes()) != body.Digest() {
		t.Errorf("%d bytes and %d, %v", len(raw), b.Len(), err)
	}
	r := NewReader(&b)
	back, err := ReadCall[ExecuteCall](r)
	c.Command.Stdin = nil
	if err != nil || !equal(back, c) {
		t.Errorf("%v", err)
	}
	if got, err := ReadData(r, int64(len(data)), int64(len(data))); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestReadData_BelievesNoAnnouncement(t *testing.T) {
	const announced = sandbox.MaxFileBytes
	input := AppendFrame(nil, Frame{TypeData, make([]byte, 100)})
	data, err := ReadData(NewReader(bytes.NewReader(input)), announced, announced)
	if err != nil || len(data) != 100 || cap(data) > 4096 {
		t.Errorf("%d bytes in %d, %v", len(data), cap(data), err)
	}
}

func TestWriter_EndsWithAnError(t *testing.T) {
	var b bytes.Buffer
	if err := NewWriter(&b).Error(sandbox.NoInstance("execute", "i")); err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(&b).Next()
	if err != nil || f.Type != TypeError {
		t.Fatal(f.Type, err)
	}
	if failure, err := DecodeError(f.Payload); err != nil || !errors.Is(failure, sandbox.NoInstance("execute", "i")) {
		t.Error(failure, err)
	}
}

// full takes a number of bytes and then fails.
type full int

func (f *full) Write(p []byte) (int, error) {
	if len(p) > int(*f) {
		return 0, io.ErrShortWrite
	}
	*f -= full(len(p))
	return len(p), nil
}

func TestWriter_GivesTheWritersError(t *testing.T) {
	for _, room := range []full{0, 5} {
		for name, write := range map[string]func(*Writer) error{
			"output": func(w *Writer) error { return w.Output(TypeOut, 0, make([]byte, 3*joinBytes)) },
			"data":   func(w *Writer) error { return w.Data(make([]byte, 3*joinBytes)) },
			"leaves": func(w *Writer) error { return w.Leaves(make([]sandbox.Leaf, 1)) },
		} {
			own := room
			if err := write(NewWriter(&own)); err != io.ErrShortWrite {
				t.Errorf("%s with room for %d: %v", name, room, err)
			}
		}
	}
}

func TestRollback_EchoesTheRequest(t *testing.T) {
	if err := (Rollback{opID}).Echo(opID); err != nil {
		t.Error(err)
	}
	if err := (Rollback{opID}).Echo(NewOperationID()); !errors.Is(err, &Error{Tag: TagMalformed}) {
		t.Error(err)
	}
}
