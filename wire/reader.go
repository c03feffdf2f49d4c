package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// Reader reads frames. It reads as much as there is, so what lies behind the
// last frame it gave is its own.
// Concurrency: one goroutine at a time.
type Reader struct {
	r          io.Reader
	buf        []byte
	start, end int
	err        error
	again      bool // the last frame is to be given again
	last       Frame
}

// firstBytes is the buffer that a reader begins with: most messages are whole
// in it. It grows with what has arrived; what was announced is believed up to
// believedBytes.
const (
	firstBytes    = 512
	believedBytes = 8 << 10
)

// NewReader reads from r, which the caller bounds.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next frame. Its payload is valid until the next call.
// Errors: io.EOF after the last whole frame; *FrameError, of which
// FrameTruncation is an input that ended inside a frame; else the reader's own.
// After an error Next returns the same error again.
func (r *Reader) Next() (Frame, error) {
	if r.again {
		r.again = false
		return r.last, nil
	}
	if r.err != nil {
		return Frame{}, r.err
	}
	if r.end-r.start < headBytes {
		switch err := r.fill(headBytes); {
		case err != nil && r.end > r.start:
			return Frame{}, r.fail(truncated(Type(r.buf[r.start]), 0, err))
		case err != nil:
			return Frame{}, r.fail(err)
		}
	}
	t := Type(r.buf[r.start])
	length := int64(binary.BigEndian.Uint32(r.buf[r.start+1:]))
	if err := check(t, length); err != nil {
		return Frame{}, r.fail(err)
	}
	whole := headBytes + int(length)
	if r.end-r.start < whole {
		if err := r.fill(whole); err != nil {
			return Frame{}, r.fail(truncated(t, length, err))
		}
	}
	f := Frame{t, r.buf[r.start+headBytes : r.start+whole : r.start+whole]}
	r.start += whole
	r.last = f
	return f, nil
}

// Rest returns what arrived of the frame in which the input ended, once Next
// has said FrameTruncation: a frame of output is one from its first byte on, so
// that a link which never carries a whole one still carries a stream. ok is
// false where not even a head and one byte of output stand there. The payload is
// valid until the next call.
func (r *Reader) Rest() (f Frame, ok bool) {
	cut := (*FrameError)(nil)
	if !errors.As(r.err, &cut) || cut.Reason != FrameTruncation || r.end-r.start <= headBytes+offsetBytes {
		return Frame{}, false
	}
	f = Frame{Type(r.buf[r.start]), r.buf[r.start+headBytes : r.end]}
	return f, f.Type == TypeOut || f.Type == TypeErr
}

// unread gives the last frame again.
func (r *Reader) unread() { r.again = true }

func (r *Reader) fail(err error) error {
	r.err = err
	return err
}

// fill reads until n bytes stand in the buffer.
func (r *Reader) fill(n int) error {
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
	for empty := 0; r.end-r.start < n; {
		if r.end == len(r.buf) || r.start > 0 && len(r.buf)-r.start < n {
			r.room(n)
		}
		got, err := r.r.Read(r.buf[r.end:])
		r.end += got
		switch {
		case r.end-r.start >= n:
			return nil // the error, if any, comes again
		case err != nil:
			return err
		case got > 0:
			empty = 0
		default:
			// A reader that neither reads nor fails must not hold us for ever.
			if empty++; empty == 100 {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// room moves what is in the buffer to its beginning, and makes a larger one if
// that is full: n bytes are wanted in it.
func (r *Reader) room(n int) {
	held := r.buf[r.start:r.end]
	if len(held) < len(r.buf) {
		copy(r.buf, held)
	} else {
		next := make([]byte, min(max(2*len(r.buf), firstBytes, min(n, believedBytes)), headBytes+MaxFrameBytes))
		copy(next, held)
		r.buf = next
	}
	r.start, r.end = 0, len(held)
}

// ReadCall reads the call of a framed request: its leading call frames, joined.
// Errors: those of Next and Decode; *FrameError with UnexpectedFrame where no
// call comes first; an early end is one with FrameTruncation.
func ReadCall[M Message](r *Reader) (M, error) {
	var call []byte
	for frames := 0; ; frames++ {
		f, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && frames == 0:
			return *new(M), truncated(TypeCall, 0, err)
		case errors.Is(err, io.EOF):
			return Decode[M](call)
		case err != nil:
			return *new(M), err
		case f.Type != TypeCall && frames == 0:
			return *new(M), &FrameError{Reason: UnexpectedFrame, Type: f.Type, Length: int64(len(f.Payload))}
		case f.Type != TypeCall:
			r.unread()
			return Decode[M](call)
		case len(call)+len(f.Payload) > MaxRequestBytes:
			return *new(M), tooLarge(MaxRequestBytes)
		}
		call = append(call, f.Payload...)
	}
}

// ReadData reads the rest of a framed request: data frames until the end,
// joined. Expect is how many bytes were announced, or 0: room for them is made at
// once only after a sixteenth of them has arrived.
// Errors: those of Next; *FrameError with UnexpectedFrame for any other frame;
// *Error with TagPayloadTooLarge as soon as there are more than limit bytes.
// Ownership: the result is the caller's.
func ReadData(r *Reader, expect, limit int64) ([]byte, error) {
	return ReadDataDigest(r, expect, limit, nil)
}

// ReadDataDigest is ReadData that adds what comes to sum, if that is not nil,
// while the rest is under way.
func ReadDataDigest(r *Reader, expect, limit int64, sum *Digester) ([]byte, error) {
	var data []byte
	for {
		f, err := r.Next()
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		all := int64(len(data) + len(f.Payload))
		switch {
		case f.Type != TypeData:
			return nil, &FrameError{Reason: UnexpectedFrame, Type: f.Type, Length: int64(len(f.Payload))}
		case all > limit:
			return nil, tooLarge(limit)
		case all > int64(cap(data)) && all < expect:
			data = slices.Grow(data, int(min(expect, limit, 16*all))-len(data))
		}
		data = append(data, f.Payload...)
		if sum != nil {
			sum.Add(data[all-int64(len(f.Payload)):])
		}
	}
}
