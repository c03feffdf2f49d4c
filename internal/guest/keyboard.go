package guest

import (
	"encoding/binary"
	"io"
	"strconv"
	"strings"
	"sync"
)

// TerminalSize is what a terminal shows, in characters. 0 is not known.
type TerminalSize struct{ Rows, Columns uint16 }

// String is the form in which "pty" takes it: ROWSxCOLUMNS.
func (s TerminalSize) String() string {
	return strconv.Itoa(int(s.Rows)) + "x" + strconv.Itoa(int(s.Columns))
}

// parseTerminalSize reads ROWSxCOLUMNS, two numbers of 0 to 65535.
func parseTerminalSize(arg string) (TerminalSize, error) {
	rows, columns, _ := strings.Cut(arg, "x")
	r, rerr := strconv.ParseUint(rows, 10, 16)
	c, cerr := strconv.ParseUint(columns, 10, 16)
	s := TerminalSize{uint16(r), uint16(c)}
	if rerr != nil || cerr != nil || s.String() != arg {
		return TerminalSize{}, &WireError{Field: "terminal size", Want: "ROWSxCOLUMNS, each 0 to 65535", Got: arg}
	}
	return s, nil
}

// What a person does at a terminal reaches "pty" as frames on its standard
// input; what the terminal shows comes back as plain bytes. A frame is a header
// and a body, integers little-endian:
//
//	kind u8, body length u16
const frameHeader = 3

const (
	frameTyped  = 1 // 1 to maxTyped bytes, as the terminal gives them
	frameResize = 2 // rows u16, columns u16
)

// maxTyped bounds the body of one frame.
const maxTyped = 4 << 10

// Keyboard writes frames for "pty". It does not own the writer.
// Concurrency: both methods may be called at once; a frame is one write, whole.
type Keyboard struct {
	mu sync.Mutex
	w  io.Writer
}

// NewKeyboard writes its frames to w.
func NewKeyboard(w io.Writer) *Keyboard { return &Keyboard{w: w} }

// Write passes on what was typed, in one frame or several.
// Errors: the writer's, with how many bytes of p went before.
func (k *Keyboard) Write(p []byte) (n int, err error) {
	for n < len(p) {
		piece := p[n:min(len(p), n+maxTyped)]
		if err := k.frame(frameTyped, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// Resize says how large the terminal is from now on.
// Errors: the writer's.
func (k *Keyboard) Resize(s TerminalSize) error {
	body := binary.LittleEndian.AppendUint16(nil, s.Rows)
	return k.frame(frameResize, binary.LittleEndian.AppendUint16(body, s.Columns))
}

func (k *Keyboard) frame(kind byte, body []byte) error {
	b := binary.LittleEndian.AppendUint16([]byte{kind}, uint16(len(body)))
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.w.Write(append(b, body...))
	return err
}

// stroke is one frame as read: bytes that were typed, or a size.
type stroke struct {
	typed []byte // nil where size counts; good until the next read
	size  TerminalSize
}

// strokes reads frames.
type strokes struct {
	r    io.Reader
	body [maxTyped]byte
}

// next reads one frame.
// Errors: io.EOF where the input ends between two; io.ErrUnexpectedEOF within
// one; *WireError for what is none.
func (s *strokes) next() (stroke, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(s.r, header[:]); err != nil {
		return stroke{}, err
	}
	size := int(binary.LittleEndian.Uint16(header[1:]))
	switch {
	case header[0] != frameTyped && header[0] != frameResize:
		return stroke{}, refuse("frame kind", "1 or 2", int(header[0]))
	case header[0] == frameTyped && (size == 0 || size > maxTyped):
		return stroke{}, refuse("frame length", "1 to "+strconv.Itoa(maxTyped), size)
	case header[0] == frameResize && size != 4:
		return stroke{}, refuse("frame length", "4", size)
	}
	body := s.body[:size]
	if _, err := io.ReadFull(s.r, body); err == io.EOF {
		return stroke{}, io.ErrUnexpectedEOF
	} else if err != nil {
		return stroke{}, err
	}
	if header[0] == frameTyped {
		return stroke{typed: body}, nil
	}
	return stroke{size: TerminalSize{binary.LittleEndian.Uint16(body), binary.LittleEndian.Uint16(body[2:])}}, nil
}
