package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
)

// FuzzFrame reads any bytes as frames, at once and byte by byte: both see the
// same frames and the same end, a refusal allocates nothing, and what was read
// is written back as it came.
func FuzzFrame(f *testing.F) {
	for _, c := range published {
		var b bytes.Buffer
		if err := c.write(NewWriter(&b)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte(head(TypeData, 1<<32-1)))
	f.Add([]byte("\x02\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var back []byte
		slow := NewReader(iotest.OneByteReader(bytes.NewReader(data)))
		for r := NewReader(bytes.NewReader(data)); ; {
			frame, err := r.Next()
			other, slowErr := slow.Next()
			if frame.Type != other.Type || !bytes.Equal(frame.Payload, other.Payload) || (err == nil) != (slowErr == nil) {
				t.Fatalf("%v, %v and %v, %v", frame, err, other, slowErr)
			}
			if err != nil {
				if len(r.buf) > max(believedBytes, 2*len(data)) {
					t.Fatalf("%d bytes of buffer for %d", len(r.buf), len(data))
				}
				var broken *FrameError
				if err != io.EOF && (!errors.As(err, &broken) || slowErr.Error() != err.Error()) {
					t.Fatalf("%v and %v", err, slowErr)
				}
				if (err == io.EOF) != (len(back) == len(data)) {
					t.Fatalf("%v after %d of %d bytes", err, len(back), len(data))
				}
				break
			}
			var b bytes.Buffer
			w := NewWriter(&b)
			if offset, chunk, err := frame.Output(); err == nil {
				err = w.Output(frame.Type, offset, chunk)
				if err != nil {
					t.Fatal(err)
				}
			} else if err := w.Write(frame); err != nil {
				t.Fatal(err)
			}
			back = append(back, b.Bytes()...)
		}
		if !bytes.HasPrefix(data, back) {
			t.Fatal("written back otherwise")
		}
		// The same bytes as a framed request.
		r := NewReader(bytes.NewReader(data))
		if _, err := ReadCall[FileCall](r); err == nil {
			_, err = ReadData(r, 1<<40, 1<<20)
			if err != nil && Status(err) == 500 {
				t.Fatal(err)
			}
		}
	})
}

// FuzzMessage decodes any bytes as each type of message: what is taken is
// encoded again, comes back as the same value, and has one canonical form.
func FuzzMessage(f *testing.F) {
	for i, k := range kinds {
		data, err := Encode(k.value)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Add(uint8(0), []byte(`{"a":1}`))
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		k := kinds[int(which)%len(kinds)]
		m, err := k.decode(data)
		if err != nil {
			if _, _, err := EncodeError(err); err != nil {
				t.Fatalf("%T: a refusal that cannot be sent: %v", k.value, err)
			}
			return
		}
		first, err := Encode(m)
		if err != nil {
			t.Fatalf("%T: %s was taken and cannot be sent: %v", m, data, err)
		}
		back, err := k.decode(first)
		if err != nil {
			t.Fatalf("%T: %s: %v", m, first, err)
		}
		again, err := Encode(back)
		if err != nil || !slices.Equal(first, again) {
			t.Fatalf("%T: %s and %s, %v", m, first, again, err)
		}
	})
}
