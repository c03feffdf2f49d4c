package wire

import (
	"encoding/binary"
	"io"
	"strconv"
)

// Type is the first byte of a frame.
type Type uint8

// The frame types. There is no other.
const (
	TypeCall      Type = 0x01 // request: JSON; one or more, first, joined before they are read
	TypeResult    Type = 0x01 // response: JSON, terminal
	TypeData      Type = 0x02 // raw bytes
	TypeItem      Type = 0x03 // JSON: one file, or one page of a listing
	TypeError     Type = 0x04 // an error body, terminal
	TypeOpen      Type = 0x10 // JSON Opened, the first frame of every attachment
	TypeOut       Type = 0x11 // offset, bytes of standard output
	TypeErr       Type = 0x12 // offset, bytes of standard error
	TypeOutEnd    Type = 0x13 // JSON OutEnd
	TypeErrEnd    Type = 0x14 // JSON ErrEnd
	TypeWindow    Type = 0x15 // JSON Window
	TypeExit      Type = 0x16 // JSON Exit
	TypeDetach    Type = 0x17 // JSON Detach, last
	TypeTruncated Type = 0x18 // JSON Truncated, last
	TypePing      Type = 0x1f // empty
)

// Types returns the fourteen types in ascending order.
func Types() []Type {
	return []Type{
		TypeCall, TypeData, TypeItem, TypeError, TypeOpen, TypeOut, TypeErr, TypeOutEnd, TypeErrEnd,
		TypeWindow, TypeExit, TypeDetach, TypeTruncated, TypePing,
	}
}

// Valid reports whether t is one of them.
func (t Type) Valid() bool {
	return t >= TypeCall && t <= TypeError || t >= TypeOpen && t <= TypeTruncated || t == TypePing
}

// Frame is one frame: a type, a length of four bytes (big-endian) and a payload
// of at most 1 MiB.
type Frame struct {
	Type    Type
	Payload []byte
}

const (
	headBytes   = 5
	offsetBytes = 8
)

// AppendFrame appends f as it travels. It does not check f; a Writer does.
func AppendFrame(dst []byte, f Frame) []byte {
	return append(appendHead(dst, f.Type, len(f.Payload)), f.Payload...)
}

func appendHead(dst []byte, t Type, length int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, byte(t)), uint32(length))
}

// AppendOutput appends one out or err frame.
func AppendOutput(dst []byte, t Type, offset int64, data []byte) []byte {
	dst = appendHead(dst, t, offsetBytes+len(data))
	return append(binary.BigEndian.AppendUint64(dst, uint64(offset)), data...)
}

// Output reads the payload of an out or err frame: where its bytes begin in the
// stream, and the bytes, at least one, which lie in the frame's own payload.
// Errors: *FrameError.
func (f Frame) Output() (offset int64, data []byte, err error) {
	if f.Type != TypeOut && f.Type != TypeErr {
		return 0, nil, &FrameError{Reason: UnexpectedFrame, Type: f.Type, Length: int64(len(f.Payload))}
	}
	if len(f.Payload) <= offsetBytes {
		return 0, nil, &FrameError{Reason: BadPayload, Type: f.Type, Length: int64(len(f.Payload))}
	}
	u := binary.BigEndian.Uint64(f.Payload)
	data = f.Payload[offsetBytes:]
	// The end must fit too: whoever adds to an offset must not overflow.
	if u > maxOffset-uint64(len(data)) {
		return 0, nil, &FrameError{Reason: BadPayload, Type: f.Type, Length: int64(len(f.Payload))}
	}
	return int64(u), data, nil
}

// maxOffset is the largest offset of any stream: 2^53-1, because the same
// offsets also travel in JSON.
const maxOffset = 1<<53 - 1

// FrameReason says what is wrong with a frame. The set is closed.
type FrameReason string

// The reasons.
const (
	UnknownFrame    FrameReason = "unknown_type"
	FrameTooLong    FrameReason = "too_long"   // a length over 1 MiB; never allocated
	FrameTruncation FrameReason = "truncated"  // the input ended inside a frame
	BadPayload      FrameReason = "payload"    // a payload that its type does not have
	UnexpectedFrame FrameReason = "unexpected" // a frame where its type may not stand
)

// FrameError is a broken frame. One with FrameTruncation is a dropped
// connection; every other one is a violation by the other side.
type FrameError struct {
	Reason FrameReason
	Type   Type
	Length int64 // as announced
	Err    error // FrameTruncation: what ended the input; io.ErrUnexpectedEOF for an early end
}

// Error is one line.
func (e *FrameError) Error() string {
	s := "frame " + string(e.Reason) + ": type 0x" + strconv.FormatUint(uint64(e.Type), 16) + ", length " + strconv.FormatInt(e.Length, 10)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns what ended the input.
func (e *FrameError) Unwrap() error { return e.Err }

// Is reports whether target is a *FrameError with the same Reason.
func (e *FrameError) Is(target error) bool {
	t, ok := target.(*FrameError)
	return ok && t.Reason == e.Reason
}

// check refuses a frame that may not be sent or taken at all.
func check(t Type, length int64) error {
	if !t.Valid() {
		return &FrameError{Reason: UnknownFrame, Type: t, Length: length}
	}
	if length > MaxFrameBytes {
		return &FrameError{Reason: FrameTooLong, Type: t, Length: length}
	}
	if t == TypePing && length != 0 || (t == TypeOut || t == TypeErr) && length <= offsetBytes {
		return &FrameError{Reason: BadPayload, Type: t, Length: length}
	}
	return nil
}

// truncated is an input that ended inside a frame.
func truncated(t Type, length int64, err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &FrameError{Reason: FrameTruncation, Type: t, Length: length, Err: err}
}
