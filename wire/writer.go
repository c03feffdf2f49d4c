package wire

import (
	"encoding/binary"
	"io"
)

// Writer writes frames. It never splits the head of a frame from the beginning
// of its payload, so that a small frame is one write.
// Concurrency: one goroutine at a time.
type Writer struct {
	w   io.Writer
	buf []byte
}

// joinBytes is up to what size a payload is copied behind its head; a longer one
// is written from where it lies.
const joinBytes = 64 << 10

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame.
// Errors: *FrameError where f may not be sent; else the writer's own.
func (w *Writer) Write(f Frame) error {
	if err := check(f.Type, int64(len(f.Payload))); err != nil {
		return err
	}
	w.buf = appendHead(w.buf[:0], f.Type, len(f.Payload))
	return w.flush(f.Payload)
}

// flush writes the head in buf and the payload behind it.
func (w *Writer) flush(payload []byte) error {
	if len(payload) <= joinBytes {
		w.buf = append(w.buf, payload...)
		payload = nil
	}
	if _, err := w.w.Write(w.buf); err != nil {
		return err
	}
	if len(payload) == 0 {
		return nil
	}
	_, err := w.w.Write(payload)
	return err
}

// Message writes m as one frame.
// Errors: those of Encode; *FrameError where m is over 1 MiB.
func (w *Writer) Message(t Type, m Message) error {
	data, err := Encode(m)
	if err != nil {
		return err
	}
	return w.Write(Frame{t, data})
}

// Call writes m as the call of a framed request: as many call frames as it
// takes.
func (w *Writer) Call(m Message) error {
	data, err := Encode(m)
	if err != nil {
		return err
	}
	return w.split(TypeCall, data)
}

// Data writes data as data frames, none where it is empty.
func (w *Writer) Data(data []byte) error { return w.split(TypeData, data) }

func (w *Writer) split(t Type, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), MaxFrameBytes)
		if err := w.Write(Frame{t, data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Output writes data, which begins at offset in its stream, as out or err
// frames.
func (w *Writer) Output(t Type, offset int64, data []byte) error {
	if t != TypeOut && t != TypeErr {
		return &FrameError{Reason: UnexpectedFrame, Type: t, Length: int64(len(data))}
	}
	if offset < 0 || offset > maxOffset-int64(len(data)) {
		return &FrameError{Reason: BadPayload, Type: t, Length: int64(len(data))}
	}
	for len(data) > 0 {
		n := min(len(data), MaxOutputChunk)
		w.buf = binary.BigEndian.AppendUint64(appendHead(w.buf[:0], t, offsetBytes+n), uint64(offset))
		if err := w.flush(data[:n]); err != nil {
			return err
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}

// Ping writes a heartbeat.
func (w *Writer) Ping() error { return w.Write(Frame{Type: TypePing}) }

// Error writes the terminal error frame of a framed response.
func (w *Writer) Error(failure error) error {
	body, _, err := EncodeError(failure)
	if err != nil {
		return err
	}
	return w.Write(Frame{TypeError, body})
}
