package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/checkfu/checkfu/sandbox"
)

// Body is the body of one framed request, ready to be sent as often as it takes:
// the call, then the bytes, which stay where they lie.
// Concurrency: a Body is immutable; any number of readers may read it at once.
type Body struct {
	parts [][]byte
	size  int64
}

// NewBody makes the body of a framed request. It keeps data, which must not
// change while the Body is in use.
// Errors: those of Encode; *Error with TagPayloadTooLarge where the call is over
// 8 MiB or the whole over the bound of any framed request.
func NewBody(call Message, data []byte) (Body, error) {
	head, err := Encode(call)
	if err != nil {
		return Body{}, err
	}
	var b Body
	b.add(TypeCall, head)
	b.add(TypeData, data)
	if b.size > MaxFramedRequestBytes {
		return Body{}, tooLarge(MaxFramedRequestBytes)
	}
	return b, nil
}

func (b *Body) add(t Type, data []byte) {
	for len(data) > 0 {
		n := min(len(data), MaxFrameBytes)
		b.parts = append(b.parts, appendHead(nil, t, n), data[:n])
		b.size += int64(headBytes + n)
		data = data[n:]
	}
}

// Size is the Content-Length.
func (b Body) Size() int64 { return b.size }

// Digest is the request's digest: of the whole body as it is sent.
func (b Body) Digest() sandbox.Digest {
	h := sha256.New()
	for _, p := range b.parts {
		h.Write(p)
	}
	return sandbox.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// Reader reads the body from its beginning.
func (b Body) Reader() io.Reader { return &bodyReader{parts: b.parts} }

type bodyReader struct {
	parts [][]byte
	at    int // within the first part
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	for len(r.parts) > 0 && n < len(p) {
		got := copy(p[n:], r.parts[0][r.at:])
		n, r.at = n+got, r.at+got
		if r.at == len(r.parts[0]) {
			r.parts, r.at = r.parts[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
